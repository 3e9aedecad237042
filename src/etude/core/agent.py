"""The agent: a network built from the heads a rule asks for."""

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from etude.core.config import NetworkConfig
from etude.core.nn import LSTM, MLP, Linear, LSTMState, ResidualConvNet, lstm_transition
from etude.core.types import Predictions

Summary = TypeVar("Summary")

HEAD_STD = 1e-2
"""Initial weight std of the heads on the torso: the first policy is close to uniform."""


Told = Callable[[PyTree[Array]], Float[Array, "*batch_or_none numbers"]]
"""From observations to numbers for each, or the same for all, by a module of a rule."""

TOLD_SIZE = 16
"""Size of the embedding of what an agent is told (arXiv 1805.09801)."""


@dataclasses.dataclass(frozen=True)
class Heads:
    """The outputs a rule needs: sizes by name, per state and per action."""

    state: Mapping[str, int]
    action: Mapping[str, int] = dataclasses.field(default_factory=dict)
    told: Told | None = None
    """What the agent is told of the rule in each state, if anything."""


class Flatten(eqx.Module):
    """Every leaf of an observation flattened, and all of them joined."""

    size: int = eqx.field(static=True)
    ranks: tuple[int, ...] = eqx.field(static=True)
    """The number of axes of each leaf: all axes before those are batch."""

    @staticmethod
    def like(observation: PyTree) -> "Flatten":
        """For observations of this form, which has no batch axes."""
        shapes = [leaf.shape for leaf in jax.tree.leaves(observation)]
        return Flatten(sum(map(math.prod, shapes)), tuple(map(len, shapes)))

    def __call__(self, observation: PyTree, dtype: Any = float) -> Float[Array, "*batch inputs"]:
        flat = [
            x.astype(dtype).reshape(*x.shape[: x.ndim - rank], -1)
            for x, rank in zip(jax.tree.leaves(observation), self.ranks, strict=True)
        ]
        return flat[0] if len(flat) == 1 else jnp.concatenate(flat, axis=-1)


class Context(eqx.Module):
    """An embedding of what the agent is told of the rule. That part is not the agent's to learn."""

    told: Told
    layer: Linear

    def __init__(self, told: Told, observation: PyTree, *, key: PRNGKeyArray):
        self.told = told
        self.layer = Linear(jax.eval_shape(told, observation).shape[-1], TOLD_SIZE, key=key)

    def __call__(self, observation: PyTree) -> Float[Array, "*batch_or_none context"]:
        return self.layer(jax.lax.stop_gradient(self.told)(observation))


class Torso(eqx.Module):
    """Every observation leaf flattened and joined, then an MLP; images may be convolved first."""

    mlp: MLP
    conv: ResidualConvNet | None
    flatten: Flatten
    context: Context | None

    def __init__(
        self,
        observation: PyTree,
        config: NetworkConfig,
        told: Told | None = None,
        *,
        key: PRNGKeyArray,
    ):
        conv_key, mlp_key = jax.random.split(key)
        self.flatten = Flatten.like(observation)
        self.conv, self.context = None, None
        inputs = self.flatten.size
        if config.conv:
            shapes = [leaf.shape for leaf in jax.tree.leaves(observation)]
            if len(shapes) != 1 or len(shapes[0]) not in (2, 3):
                raise ValueError(
                    f"A convolutional torso needs one observation of height × width (× channels), "
                    f"not {', '.join(map(str, shapes))}."
                )
            self.conv = ResidualConvNet(shapes[0], config.conv, key=conv_key)
            inputs = self.conv.outputs
        if told is not None:
            self.context = Context(told, observation, key=jax.random.fold_in(key, 0))
            inputs += TOLD_SIZE
        self.mlp = MLP(inputs, config.torso, config.tanh, key=mlp_key)

    def __call__(self, observation: PyTree) -> Float[Array, "*batch embedding"]:
        dtype = self.mlp.layers[0].w.dtype
        if self.conv is not None:
            (image,) = jax.tree.leaves(observation)
            x = jax.nn.relu(self.conv(image.astype(dtype)))
        else:
            x = self.flatten(observation, dtype)
        if self.context is not None:
            context = self.context(observation)
            context = jnp.broadcast_to(context, (*x.shape[:-1], TOLD_SIZE))
            x = jnp.concatenate([x, context], axis=-1)
        return self.mlp(x)


class ModelStart(NamedTuple):
    """The part of the action model's LSTM step that all actions share."""

    hidden_gates: Float[Array, "*batch gates"]
    cell: Float[Array, "*batch model"]


class ActionModel(eqx.Module):
    """What would follow each action: one LSTM step from the state, with the action as input."""

    root: Linear
    lstm: LSTM
    heads: dict[str, MLP]

    def __init__(
        self,
        inputs: int,
        num_actions: int,
        heads: Mapping[str, int],
        config: NetworkConfig,
        *,
        key: PRNGKeyArray,
    ):
        root_key, lstm_key, *head_keys = jax.random.split(key, 2 + len(heads))
        self.root = Linear(inputs, config.model, key=root_key)
        self.lstm = LSTM(num_actions, config.model, key=lstm_key)
        self.heads = {
            name: MLP(config.model, (config.head, size), key=k)
            for (name, size), k in zip(sorted(heads.items()), head_keys, strict=True)
        }

    def start(self, embedding: Float[Array, "*batch embedding"]) -> "ModelStart":
        cell = self.root(embedding)
        return ModelStart(self.lstm.hidden_gates(jnp.tanh(cell)), cell)

    def step(self, start: "ModelStart", action: Float[Array, "*batch_or_none A"]) -> Predictions:
        """The heads after the step; `action` is one-hot, for each state or one for all."""
        hidden_gates, cell = start
        action_gates = jnp.broadcast_to(self.lstm.input_gates(action), hidden_gates.shape)
        after: LSTMState = lstm_transition(hidden_gates + action_gates, cell)
        return {name: head(after.hidden) for name, head in self.heads.items()}


class Agent(eqx.Module):
    """Policy and predictions θ: `embed` an observation, then ask what the rule needs to know."""

    torso: Torso
    head: dict[str, Linear]
    model: ActionModel | None
    num_actions: int = eqx.field(static=True)

    def __init__(
        self,
        observation: PyTree,
        num_actions: int,
        heads: Heads,
        config: NetworkConfig = NetworkConfig(),
        *,
        key: PRNGKeyArray,
    ):
        """`observation`: arrays or `ShapeDtypeStruct`s of one observation, without batch axes."""
        torso_key, model_key, *head_keys = jax.random.split(key, 2 + len(heads.state))
        embedding = config.torso[-1]
        self.num_actions = num_actions
        self.torso = Torso(observation, config, heads.told, key=torso_key)
        self.head = {
            name: Linear(embedding, size, key=k, std=HEAD_STD)
            for (name, size), k in zip(sorted(heads.state.items()), head_keys, strict=True)
        }
        self.model = (
            ActionModel(embedding, num_actions, heads.action, config, key=model_key)
            if heads.action
            else None
        )

    def embed(self, observation: PyTree) -> Float[Array, "*batch embedding"]:
        return self.torso(observation)

    def predict(self, embedding: Float[Array, "*batch embedding"]) -> Predictions:
        """The heads that depend on the state alone."""
        return {name: head(embedding) for name, head in self.head.items()}

    def policy(self, observation: PyTree) -> Float[Array, "*batch A"]:
        """Policy logits: all that acting needs."""
        return self.head["pi"](self.embed(observation))

    def consider(self, embedding: Float[Array, "*batch embedding"]) -> ModelStart:
        """What predictions about actions start from, the same for all of them."""
        assert self.model is not None, "the rule asked for no action heads"
        return self.model.start(embedding)

    def predict_action(self, start: ModelStart, action: Int[Array, "*batch"]) -> Predictions:
        """The action model's heads for one action a state: what a loss needs."""
        assert self.model is not None
        one_hot = jax.nn.one_hot(action, self.num_actions, dtype=start.cell.dtype)
        return self.model.step(start, one_hot)

    def predict_actions(
        self,
        start: ModelStart,
        summarise: Callable[[Predictions], Summary] = lambda predictions: predictions,
    ) -> Summary:
        """The action model's heads for every action, or a summary of them, the action axis first.

        The actions go one after another, and a backward pass computes each one's heads again, so
        that wide heads are alive for one action at a time: `summarise` what you need of them.
        """
        assert self.model is not None
        model = self.model

        @jax.checkpoint
        def one_action(one_hot):
            return summarise(model.step(start, one_hot))

        return jax.lax.map(one_action, jnp.eye(self.num_actions, dtype=start.cell.dtype))
