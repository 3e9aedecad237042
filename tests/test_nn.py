"""Layers against plain NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from etude.core.nn import LSTM, MLP, Conv, Linear, LSTMState, ResidualConvNet, truncated_normal
from etude.runs.storage import named_leaves
from tests.conftest import random_like

KEY = jax.random.key(0)


def random(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).normal(size=shape)


def sigmoid(x):
    return 1.0 / (1.0 + np.exp(-x))


def numpy_lstm(lstm: LSTM, x, hidden, cell):
    """The cell of the published weights: gates i, g, f, o, and 1 added to the forget gate."""
    gates = np.concatenate([x, hidden], axis=-1) @ np.asarray(lstm.w) + np.asarray(lstm.b)
    i, g, f, o = np.split(gates, 4, axis=-1)
    cell = sigmoid(f + 1.0) * cell + sigmoid(i) * np.tanh(g)
    return sigmoid(o) * np.tanh(cell), cell


@pytest.mark.usefixtures("x64")
def test_lstm_against_numpy():
    """Three steps from a random state, with a bias that is not zero."""
    lstm = random_like(lambda: LSTM(3, 4, key=KEY))
    hidden, cell = random(2, 2, 4)
    state, step = LSTMState(jnp.asarray(hidden), jnp.asarray(cell)), jax.jit(LSTM.__call__)
    for x in random(3, 2, 3):
        state = step(lstm, x, state)
        hidden, cell = numpy_lstm(lstm, x, hidden, cell)
        np.testing.assert_allclose(state.hidden, hidden, rtol=1e-10)
        np.testing.assert_allclose(state.cell, cell, rtol=1e-10)


def test_lstm_starts_at_zero():
    lstm = random_like(lambda: LSTM(3, 4, key=KEY))
    assert lstm.size == 4
    for leaf in lstm.zero_state(5, 2):
        np.testing.assert_array_equal(leaf, np.zeros((5, 2, 4)))


@pytest.mark.usefixtures("x64")
def test_linear_acts_on_the_last_axis():
    layer = random_like(lambda: Linear(3, 2, key=KEY))
    x = random(4, 5, 3)
    expected = x @ np.asarray(layer.w) + np.asarray(layer.b)
    np.testing.assert_allclose(jax.jit(Linear.__call__)(layer, x), expected, rtol=1e-10)


@pytest.mark.usefixtures("x64")
def test_mlp_has_relu_between_layers_and_none_at_the_end():
    mlp = random_like(lambda: MLP(3, (8, 5), key=KEY))
    x = random(20, 3)
    (w0, b0), (w1, b1) = [(np.asarray(layer.w), np.asarray(layer.b)) for layer in mlp.layers]
    expected = np.maximum(x @ w0 + b0, 0.0) @ w1 + b1
    assert (expected < 0.0).any(), "the example must have something for a last ReLU to cut"
    np.testing.assert_allclose(jax.jit(MLP.__call__)(mlp, x), expected, rtol=1e-10, atol=1e-12)


def test_initial_weights_are_truncated_normal():
    """Cut at two standard deviations of std 1/√fan_in; biases zero."""
    layer = Linear(100, 400, key=KEY)
    bound = 2.0 * 100**-0.5
    assert 0.95 * bound < np.abs(layer.w).max() <= bound
    # A standard normal cut at ±2 has standard deviation 0.8796.
    np.testing.assert_allclose(np.std(layer.w), 0.8796 * 100**-0.5, rtol=0.02)
    np.testing.assert_array_equal(layer.b, np.zeros(400))


def test_initial_std_can_be_given():
    w = truncated_normal(KEY, (50, 50), 0.3)
    np.testing.assert_allclose(np.std(w), 0.3 * 0.8796, rtol=0.05)


@pytest.mark.usefixtures("x64")
def test_conv_against_numpy():
    """A same-size 3×3 convolution: each output sees its neighbours, zeros beyond the edge."""
    conv = random_like(lambda: Conv(2, 3, key=KEY))
    x = random(2, 4, 5, 2)
    padded = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
    expected = np.zeros((2, 4, 5, 3)) + np.asarray(conv.b)
    for i in range(3):
        for j in range(3):
            expected += padded[:, i : i + 4, j : j + 5] @ np.asarray(conv.w)[i, j]
    np.testing.assert_allclose(jax.jit(Conv.__call__)(conv, x), expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(
    ("shape", "channels", "outputs"),
    [
        ((8, 8, 3), (4, 5), 2 * 2 * 5),
        ((5, 7), (4,), 3 * 4 * 4),  # odd sizes round up; no channel axis
        ((9, 10, 1), (2, 3, 4), 2 * 2 * 4),
    ],
)
def test_residual_net_shapes(shape, channels, outputs):
    """Each stage halves the image, rounding up; any batch axes go before."""
    net = random_like(lambda: ResidualConvNet(shape, channels, key=KEY))
    assert net.outputs == outputs
    for batch in ((), (2,), (3, 2)):
        image = jax.ShapeDtypeStruct((*batch, *shape), jnp.float32)
        assert jax.eval_shape(net, image).shape == (*batch, outputs)


def test_residual_net_treats_batch_entries_alike():
    net = random_like(lambda: ResidualConvNet((4, 5), (2,), key=KEY))
    images = random(3, 2, 4, 5).astype(np.float32)
    apply = jax.jit(ResidualConvNet.__call__)
    np.testing.assert_allclose(apply(net, images)[1, 0], apply(net, images[1, 0]), rtol=1e-5)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_parameters_follow_the_default_float(dtype):
    with jax.enable_x64(dtype == jnp.float64):
        layers = jax.eval_shape(
            lambda: (
                Linear(2, 3, key=jax.random.key(0)),
                MLP(2, (3, 4), key=jax.random.key(0)),
                LSTM(2, 3, key=jax.random.key(0)),
                LSTM(2, 3, key=jax.random.key(0)).zero_state(2),
                ResidualConvNet((4, 4), (2,), key=jax.random.key(0)),
            )
        )
    for name, leaf in named_leaves(layers).items():
        assert leaf.dtype == dtype, name
