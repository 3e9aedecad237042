"""DiscoRL's meta-network η: reads what an agent did and predicts, and says what to aim for.

The facts are those of the Nature paper (Oh et al. 2025) and its published weights. Several products
are computed in smaller pieces than the textbook form, with the same result; each says so.
"""

from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from etude.core.distributions import select_action
from etude.core.nn import LSTM, MLP, Linear, LSTMState, action_block, action_layer, chain
from etude.core.returns import signed_log
from etude.core.types import Rollout

STATE_INPUTS = (
    "π(a)",
    "μ(a)",
    "reward",
    "goes on",
    "v",
    "next v",
    "advantage",
    "normalised advantage",
    "π⁻(a)",
    "y",
    "next y",
    "y⁻",
    "next y⁻",
    "z(a)",
    "mean z",
    "next mean z",
    "max z",
    "next max z",
    "z⁻(a)",
    "mean z⁻",
    "next mean z⁻",
    "max z⁻",
    "next max z⁻",
)
"""What the network reads of each transition; the channels of the action blocks join them."""
ACTION_INPUTS = 9
OUTPUT_STD = 0.3


class Reading(eqx.Module):
    """What the meta-network sees of one network (θ or θ⁻) at the rollout's T + 1 observations.

    `y` and `z` hold the predictions' embeddings, once for each of the two encoders that read them.
    """

    pi: Float[Array, "T1 B A"]
    y: tuple[Float[Array, "T1 B"], ...]
    z: tuple[Float[Array, "T1 B A"], ...]
    q: Float[Array, "T1 B A"]


class ValueEstimates(eqx.Module):
    """Values, advantages and their normalised forms; `qv` ones are for every action."""

    value: Float[Array, "T1 B"]
    target_q: Float[Array, "T1 B A"]
    q_target: Float[Array, "T B"]
    q_td: Float[Array, "T B"]
    advantage: Float[Array, "T B"]
    normalised_advantage: Float[Array, "T B"]
    qv_advantage: Float[Array, "T1 B A"]
    normalised_qv_advantage: Float[Array, "T1 B A"]


class NetworkInputs(eqx.Module):
    rollout: Rollout
    online: Reading
    target: Reading
    values: ValueEstimates


class ProposedTargets(eqx.Module):
    """Logits that the agent's policy and predictions should move to."""

    pi: Float[Array, "T B A"]
    y: Float[Array, "T B Y"]
    z: Float[Array, "T B Y"]


def embed_distributions(nets: Sequence[MLP], logits: Float[Array, "*batch n"]) -> list[Array]:
    """Each net's scalar for softmax(logits).

    The first layers share one product with the unnormalised weights, and the normaliser divides
    its few outputs, so that no array of the logits' size is written but the weights themselves.
    """
    peak = jax.lax.stop_gradient(jnp.max(logits, axis=-1, keepdims=True))
    weight = jnp.exp(logits - peak)
    first = jnp.concatenate([net.layers[0].w for net in nets], axis=1)
    hidden = weight @ first / jnp.sum(weight, axis=-1, keepdims=True)
    parts = jnp.split(hidden, len(nets), axis=-1)

    def finish(net: MLP, x: Array) -> Array:
        x = x + jnp.broadcast_to(net.layers[0].b, x.shape)
        return net.layers[1](jax.nn.relu(x))[..., 0]

    return [finish(net, x) for net, x in zip(nets, parts, strict=True)]


def pair(x: Float[Array, "T1 B"]) -> list[Float[Array, "T B"]]:
    """The value at each transition's start and at its end."""
    return [x[:-1], x[1:]]


class Encoder(eqx.Module):
    """Turns a rollout and the agent's predictions on it into a few numbers per transition."""

    y_net: MLP
    z_net: MLP
    blocks: tuple[Linear, ...]

    def __init__(
        self, prediction: int, embedding: int, channels: Sequence[int], *, key: PRNGKeyArray
    ):
        y_key, z_key, *block_keys = jax.random.split(key, 2 + len(channels))
        self.y_net = MLP(prediction, (embedding, 1), key=y_key)
        self.z_net = MLP(prediction, (embedding, 1), key=z_key)
        self.blocks = chain(action_layer, ACTION_INPUTS, channels, block_keys)

    def __call__(
        self, inputs: NetworkInputs, which: int
    ) -> tuple[Float[Array, "T B features"], Float[Array, "T B A channels"]]:
        """`which` of the readings' embeddings are this encoder's."""
        by_action = self._by_action(inputs, which)
        taken = jnp.take_along_axis(by_action, inputs.rollout.action[..., None, None], axis=2)
        features = jnp.stack(self._by_state(inputs, which), axis=-1)
        return (
            jnp.concatenate([features, jnp.mean(by_action, axis=2), taken[..., 0, :]], axis=-1),
            by_action,
        )

    def _by_state(self, inputs: NetworkInputs, which: int) -> list[Float[Array, "T B"]]:
        rollout, values = inputs.rollout, inputs.values
        pi = jax.lax.stop_gradient(jax.nn.softmax(inputs.online.pi))

        def taken(x):
            return select_action(x[: rollout.action.shape[0]], rollout.action)

        def taken_probability(logits):
            return taken(jax.lax.stop_gradient(jax.nn.softmax(logits)))

        def z_inputs(z):
            return [taken(z), *pair(jnp.sum(pi * z, axis=-1)), *pair(jnp.max(z, axis=-1))]

        return [
            taken_probability(inputs.online.pi),
            taken_probability(rollout.behaviour_logits),
            signed_log(rollout.reward),
            1.0 - rollout.terminal.astype(rollout.reward.dtype),
            *pair(signed_log(values.value)),
            signed_log(values.advantage),
            values.normalised_advantage,
            taken_probability(inputs.target.pi),
            *pair(inputs.online.y[which]),
            *pair(inputs.target.y[which]),
            *z_inputs(inputs.online.z[which]),
            *z_inputs(inputs.target.z[which]),
        ]

    def _by_action(self, inputs: NetworkInputs, which: int) -> Float[Array, "T B A channels"]:
        rollout, values = inputs.rollout, inputs.values
        steps = rollout.action.shape[0]
        logits = (inputs.online.pi, rollout.behaviour_logits, inputs.target.pi)
        x = jnp.stack(
            [
                *(jax.lax.stop_gradient(jax.nn.softmax(x[:steps])) for x in logits),
                inputs.online.z[which][:steps],
                inputs.target.z[which][:steps],
                signed_log(values.target_q[:steps]),
                signed_log(values.qv_advantage[:steps]),
                values.normalised_qv_advantage[:steps],
                jax.nn.one_hot(rollout.action, rollout.num_actions, dtype=rollout.reward.dtype),
            ],
            axis=-1,
        )
        for block in self.blocks:
            x = action_block(block, x)
        return x


class MetaRNN(eqx.Module):
    """Remembers an agent's lifetime: one LSTM step per agent update, fed with batch averages."""

    encoder: Encoder
    embed: Linear
    lstm: LSTM

    def __call__(
        self,
        inputs: NetworkInputs,
        y: Float[Array, "T B Y"] | None,
        extra: Float[Array, "T B"],
        state: LSTMState,
    ) -> LSTMState:
        """The next state; `y` are the targets of the agent's y, if it has any."""
        features, _ = self.encoder(inputs, which=1)
        y_embedding = jnp.zeros_like(extra)
        if y is not None:
            (y_embedding,) = embed_distributions([self.encoder.y_net], y)
        outputs = jnp.stack([extra, y_embedding], axis=-1)
        # The mean goes before the linear layer, where it is the same and costs less.
        mean = inputs.rollout.mean(jnp.concatenate([features, outputs], axis=-1))
        return self.lstm(self.embed(mean), state)


class MetaNetwork(eqx.Module):
    """The rule itself: a backward LSTM over the trajectory, modulated by the meta-RNN."""

    encoder: Encoder
    lstm: LSTM
    modulation: Linear
    extra: Linear
    y_out: Linear
    z_out: Linear
    pi_block: Linear
    pi_out: Linear
    rnn: MetaRNN

    def __init__(
        self,
        *,
        prediction: int,
        hidden: int,
        rnn: int,
        embedding: int,
        channels: Sequence[int],
        pi_channels: int,
        key: PRNGKeyArray,
    ):
        keys = iter(jax.random.split(key, 11))
        features = len(STATE_INPUTS) + 2 * channels[-1]
        self.encoder = Encoder(prediction, embedding, channels, key=next(keys))
        self.lstm = LSTM(features, hidden, key=next(keys))
        self.modulation = Linear(rnn, hidden, key=next(keys), std=1.0)
        self.extra = Linear(hidden, 1, key=next(keys), std=OUTPUT_STD)
        self.y_out = Linear(hidden, prediction, key=next(keys), std=OUTPUT_STD)
        self.z_out = Linear(hidden, prediction, key=next(keys), std=OUTPUT_STD)
        self.pi_block = Linear(2 * (hidden + channels[-1]), pi_channels, key=next(keys))
        self.pi_out = Linear(pi_channels, 1, key=next(keys), std=OUTPUT_STD)
        self.rnn = MetaRNN(
            Encoder(prediction, embedding, channels, key=next(keys)),
            Linear(features + 2, embedding, key=next(keys)),
            LSTM(embedding, rnn, key=next(keys)),
        )

    def __call__(
        self, inputs: NetworkInputs, rnn_state: LSTMState | None, predictions: bool = True
    ) -> tuple[ProposedTargets, LSTMState | None]:
        """The targets (from the meta-RNN's state as it was) and the meta-RNN's next state; without
        a state, nothing is remembered and nothing modulated. If agents make no `predictions`, the
        meta-RNN does not read the targets for them."""
        features, by_action = self.encoder(inputs, which=0)
        targets, extra = self.propose(features, by_action, inputs.rollout.segment_ends, rnn_state)
        if rnn_state is None:
            return targets, None
        y = targets.y if predictions else None
        return targets, self.rnn(inputs, y, extra, rnn_state)

    def propose(
        self,
        features: Float[Array, "T B features"],
        by_action: Float[Array, "T B A channels"],
        ends: Bool[Array, "T B"],
        rnn_state: LSTMState | None,
    ) -> tuple[ProposedTargets, Float[Array, "T B"]]:
        """The targets, and a number for the meta-RNN, from what the encoder makes of a rollout."""
        x = self.lstm.read_backward(features, ends)
        if rnn_state is not None:
            x = x * jnp.broadcast_to(self.modulation(rnn_state.hidden), x.shape)
        targets = ProposedTargets(self._policy(x, by_action), self.y_out(x), self.z_out(x))
        return targets, self.extra(x)[..., 0]

    @property
    def input_names(self) -> list[str]:
        """Of the features of a transition, in their order."""
        channels = range(self.encoder.blocks[-1].w.shape[1])
        kinds = ("mean over actions, channel {}", "taken action, channel {}")
        return [*STATE_INPUTS, *(kind.format(i) for kind in kinds for i in channels)]

    def embed_y(self, y: Float[Array, "*batch Y"]) -> tuple[Array, ...]:
        return tuple(embed_distributions([self.encoder.y_net, self.rnn.encoder.y_net], y))

    def embed_z(self, z: Float[Array, "*batch Y"]) -> tuple[Array, ...]:
        return tuple(embed_distributions([self.encoder.z_net, self.rnn.encoder.z_net], z))

    def _policy(
        self, x: Float[Array, "T B hidden"], by_action: Float[Array, "T B A c"]
    ) -> Float[Array, "T B A"]:
        """One action block on `x` repeated for every action and joined with `by_action`."""
        block = action_block(self.pi_block, by_action, beside=x)
        return self.pi_out(block)[..., 0]
