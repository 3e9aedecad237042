"""Layers: small, exact, in the layout of the published weights.

Every layer acts on the last axis and accepts any leading axes. Parameters take JAX's default float
type, so the same code runs in float32 and, with x64 enabled, in float64.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Num, PRNGKeyArray

from etude.core.convolution import convolve, convolve_strided, max_pool
from etude.errors import UserError

Layer = TypeVar("Layer")

Inputs = Float[Array, "*batch inputs"]
Outputs = Float[Array, "*batch outputs"]
Gates = Float[Array, "*batch gates"]
Hidden = Float[Array, "*batch hidden"]


def truncated_normal(key: PRNGKeyArray, shape: Sequence[int], std: float) -> Array:
    """Normal draws cut off at two standard deviations, scaled by `std`."""
    return std * jax.random.truncated_normal(key, -2.0, 2.0, tuple(shape))


def chain(
    make: Callable[..., Layer], inputs: int, sizes: Sequence[int], keys: Iterable[PRNGKeyArray]
) -> tuple[Layer, ...]:
    """Layers of the given output sizes, each of which reads the one before."""
    widths = zip([inputs, *sizes], sizes, keys, strict=False)
    return tuple(make(before, after, key=key) for before, after, key in widths)


class Linear(eqx.Module):
    """`x @ w + b`; weights start truncated normal with std 1/√fan_in unless `std` is given."""

    w: Float[Array, "inputs outputs"]
    b: Float[Array, " outputs"]

    def __init__(self, inputs: int, outputs: int, *, key: PRNGKeyArray, std: float | None = None):
        self.w = truncated_normal(key, (inputs, outputs), inputs**-0.5 if std is None else std)
        self.b = jnp.zeros(outputs)

    def __call__(self, x: Inputs) -> Outputs:
        y = x @ self.w
        return y + jnp.broadcast_to(self.b, y.shape)


class MLP(eqx.Module):
    """Linear layers with ReLU between them and none after the last; or, if `tanh`, with a tanh
    after each of them."""

    layers: tuple[Linear, ...]
    tanh: bool = eqx.field(static=True)

    def __init__(self, inputs: int, sizes: Sequence[int], tanh: bool = False, *, key: PRNGKeyArray):
        self.tanh = tanh
        self.layers = chain(Linear, inputs, sizes, jax.random.split(key, len(sizes)))

    def __call__(self, x: Inputs) -> Outputs:
        for layer in self.layers[:-1]:
            x = jnp.tanh(layer(x)) if self.tanh else jax.nn.relu(layer(x))
        x = self.layers[-1](x)
        return jnp.tanh(x) if self.tanh else x


def action_layer(inputs: int, outputs: int, *, key: PRNGKeyArray) -> Linear:
    """The map of an action block."""
    return Linear(2 * inputs, outputs, key=key)


def action_block(
    linear: Linear,
    x: Float[Array, "*batch A n"],
    beside: Float[Array, "*batch state"] | None = None,
) -> Float[Array, "*batch A m"]:
    """Each action's row joined with the mean over actions, one linear map for all, ReLU. What is
    `beside` the actions comes first in every row.

    What all actions share is computed once per state instead of once per action: the mean's part of
    the map, and both parts of what is beside the actions, which is its own mean.
    """
    own, mean = jnp.split(linear.w, 2)
    if beside is None:
        shared = jnp.mean(x, axis=-2) @ mean
    else:
        width = beside.shape[-1]
        shared = beside @ (own[:width] + mean[:width]) + jnp.mean(x, axis=-2) @ mean[width:]
        own = own[width:]
    shared = shared + jnp.broadcast_to(linear.b, shared.shape)
    return jax.nn.relu(x @ own + shared[..., None, :])


class LSTMState(NamedTuple):
    hidden: Hidden
    cell: Hidden


class LSTM(eqx.Module):
    """LSTM cell: gates i, g, f, o from `[x, h] @ w + b`, with 1 added to the forget gate."""

    w: Float[Array, "inputs+hidden 4*hidden"]
    b: Float[Array, " 4*hidden"]

    def __init__(self, inputs: int, hidden: int, *, key: PRNGKeyArray):
        fan_in = inputs + hidden
        self.w = truncated_normal(key, (fan_in, 4 * hidden), fan_in**-0.5)
        self.b = jnp.zeros(4 * hidden)

    @property
    def size(self) -> int:
        return self.b.shape[0] // 4

    def zero_state(self, *batch: int) -> LSTMState:
        hidden, cell = (jnp.zeros((*batch, self.size), self.w.dtype) for _ in range(2))
        return LSTMState(hidden, cell)

    def input_gates(self, x: Inputs) -> Gates:
        """The input's share of the gates, with the bias: all time steps can be done at once."""
        gates = x @ self.w[: -self.size]
        return gates + jnp.broadcast_to(self.b, gates.shape)

    def hidden_gates(self, h: Hidden) -> Gates:
        """The hidden state's share of the gates."""
        return h @ self.w[-self.size :]

    def advance(self, gates: Gates, state: LSTMState) -> tuple[LSTMState, Hidden]:
        """The state and the output after an input whose share of the gates is known."""
        after = lstm_transition(gates + self.hidden_gates(state.hidden), state.cell)
        return after, after.hidden

    def __call__(self, x: Inputs, state: LSTMState) -> LSTMState:
        return self.advance(self.input_gates(x), state)[0]

    def read_backward(
        self, xs: Float[Array, "T B inputs"], ends: Bool[Array, "T B"]
    ) -> Float[Array, "T B hidden"]:
        """What is known at each step of itself and of all later ones up to the next of `ends`."""
        recurrent = self.w[-self.size :]  # cut out once, not at every step

        def step(state: LSTMState, x):
            gates, end = x
            state = jax.tree.map(lambda s: jnp.where(end[:, None], 0.0, s), state)
            state = lstm_transition(gates + state.hidden @ recurrent, state.cell)
            return state, state.hidden

        start = self.zero_state(xs.shape[1])
        return jax.lax.scan(step, start, (self.input_gates(xs), ends), reverse=True)[1]


def lstm_transition(gates: Gates, cell: Hidden) -> LSTMState:
    """The new state from the summed gates and the old cell."""
    i, g, f, o = jnp.split(gates, 4, axis=-1)
    cell = jax.nn.sigmoid(f + 1.0) * cell + jax.nn.sigmoid(i) * jnp.tanh(g)
    return LSTMState(jax.nn.sigmoid(o) * jnp.tanh(cell), cell)


class GRU(eqx.Module):
    """GRU cell (arXiv 1406.1078) with the reset gate after the product, as in cuDNN: of the update,
    reset and candidate parts, all of the state's share is one product.

    At the start its units remember for 1 to `memory` steps (arXiv 1804.11188): with all gates half
    open, nothing that is more than a few steps old could be learned from."""

    inputs: Linear
    recurrent: Float[Array, "hidden 3*hidden"]

    def __init__(self, inputs: int, hidden: int, memory: float = 20.0, *, key: PRNGKeyArray):
        input_key, recurrent_key, memory_key = jax.random.split(key, 3)
        linear = Linear(inputs, 3 * hidden, key=input_key)
        times = jax.random.uniform(memory_key, (hidden,), minval=1.0, maxval=memory)
        bias = linear.b.at[:hidden].set(-jnp.log(times))
        self.inputs = eqx.tree_at(lambda x: x.b, linear, bias)
        orthogonal = jax.nn.initializers.orthogonal()
        keys = jax.random.split(recurrent_key, 3)
        self.recurrent = jnp.concatenate([orthogonal(k, (hidden, hidden)) for k in keys], axis=1)

    def zero_state(self, *batch: int) -> Hidden:
        return jnp.zeros((*batch, self.recurrent.shape[0]), self.recurrent.dtype)

    def input_gates(self, x: Inputs) -> Gates:
        """The input's share, with the bias: all time steps can be done at once."""
        return self.inputs(x)

    def advance(self, gates: Gates, state: Hidden) -> tuple[Hidden, Hidden]:
        """The state after an input whose share is known, which is the output too."""
        update_x, reset_x, candidate_x = jnp.split(gates, 3, axis=-1)
        update_h, reset_h, candidate_h = jnp.split(state @ self.recurrent, 3, axis=-1)
        update = jax.nn.sigmoid(update_x + update_h)
        reset = jax.nn.sigmoid(reset_x + reset_h)
        candidate = jnp.tanh(candidate_x + reset * candidate_h)
        state = (1.0 - update) * state + update * candidate
        return state, state


class Conv(eqx.Module):
    """A square convolution of images, which are height × width × channels: of the same size out as
    in, or, with a stride, wherever the kernel fits as a whole."""

    w: Float[Array, "size size inputs outputs"]
    b: Float[Array, " outputs"]
    stride: int | None = eqx.field(static=True)

    def __init__(
        self,
        inputs: int,
        outputs: int,
        size: int = 3,
        stride: int | None = None,
        *,
        key: PRNGKeyArray,
    ):
        self.w = truncated_normal(
            key, (size, size, inputs, outputs), (size * size * inputs) ** -0.5
        )
        self.b = jnp.zeros(outputs)
        self.stride = stride

    def __call__(
        self, x: Num[Array, "batch h w inputs"], relu: bool = False, scale: float = 1.0
    ) -> Float[Array, "batch h2 w2 outputs"]:
        """If `relu`, the images go through a ReLU first. They are multiplied by `scale`, or rather
        the kernel is, which is smaller."""
        w = self.w if scale == 1.0 else self.w * scale
        if self.stride is None:
            return convolve(x, w, self.b, relu)
        return convolve_strided(x, w, self.b, self.stride, relu)


class ResidualStage(eqx.Module):
    """One IMPALA stage: convolution, max-pooling by two, two residual blocks (arXiv 1802.01561)."""

    entry: Conv
    blocks: tuple[tuple[Conv, Conv], ...]

    def __init__(self, inputs: int, channels: int, *, key: PRNGKeyArray):
        keys = jax.random.split(key, 5)
        self.entry = Conv(inputs, channels, key=keys[0])
        self.blocks = tuple(
            (Conv(channels, channels, key=a), Conv(channels, channels, key=b))
            for a, b in zip(keys[1::2], keys[2::2], strict=True)
        )

    def __call__(
        self, x: Num[Array, "batch h w inputs"], scale: float = 1.0
    ) -> Float[Array, "batch h2 w2 c"]:
        x = max_pool(self.entry(x, scale=scale))
        for first, second in self.blocks:
            x = x + second(first(x, relu=True), relu=True)
        return x


class ResidualConvNet(eqx.Module):
    """IMPALA's residual stages and a ReLU; the result is flattened. A 2-D image counts as one
    channel."""

    stages: tuple[ResidualStage, ...]
    rank: int = eqx.field(static=True)
    outputs: int = eqx.field(static=True)
    scale: float = eqx.field(static=True)
    """What images are multiplied by."""

    def __init__(
        self,
        shape: Sequence[int],
        channels: Sequence[int],
        scale: float = 1.0,
        *,
        key: PRNGKeyArray,
    ):
        height, width, depth = (*shape, 1)[:3]
        keys = jax.random.split(key, len(channels))
        self.stages = chain(ResidualStage, depth, channels, keys)
        self.rank, self.scale = len(shape), scale
        for _ in channels:
            height, width = -(-height // 2), -(-width // 2)
        self.outputs = height * width * channels[-1]

    def __call__(self, image: Num[Array, "..."]) -> Outputs:
        batch, x = _one_batch(image, self.rank)
        first, *others = self.stages
        x = first(x, self.scale)
        for stage in others:
            x = stage(x)
        return jax.nn.relu(x).reshape(*batch, self.outputs)


class ClassicConvNet(eqx.Module):
    """The three convolutions of DQN (Nature 518, 2015), each with a ReLU; the result is flattened.
    A 2-D image counts as one channel."""

    layers: tuple[Conv, ...]
    rank: int = eqx.field(static=True)
    outputs: int = eqx.field(static=True)
    scale: float = eqx.field(static=True)
    """What images are multiplied by."""

    def __init__(
        self,
        shape: Sequence[int],
        channels: Sequence[int],
        scale: float = 1.0,
        *,
        key: PRNGKeyArray,
    ):
        height, width, depth = (*shape, 1)[:3]
        form = [(8, 4), (4, 2), (3, 1)]
        for size, stride in form:
            height, width = ((n - size) // stride + 1 for n in (height, width))
        if min(height, width) < 1:
            raise UserError(
                "The classic convolution needs images of at least 36 × 36 pixels, "
                f"not {' × '.join(map(str, shape[:2]))}."
            )
        keys = jax.random.split(key, len(form))
        self.layers = tuple(
            Conv(inputs, outputs, *sizes, key=k)
            for inputs, outputs, sizes, k in zip(
                (depth, *channels[:-1]), channels, form, keys, strict=True
            )
        )
        self.rank, self.scale = len(shape), scale
        self.outputs = height * width * channels[-1]

    def __call__(self, image: Num[Array, "..."]) -> Outputs:
        batch, x = _one_batch(image, self.rank)
        first, *others = self.layers
        x = first(x, scale=self.scale)
        for layer in others:
            x = layer(x, relu=True)
        return jax.nn.relu(x).reshape(*batch, self.outputs)


def _one_batch(
    image: Num[Array, "..."], rank: int
) -> tuple[tuple[int, ...], Num[Array, "batch h w c"]]:
    """The batch axes of images with `rank` axes each, and the images with one batch axis."""
    batch, shape = image.shape[: image.ndim - rank], image.shape[image.ndim - rank :]
    return batch, image.reshape(-1, *(*shape, 1)[:3])
