"""The agent: a network built from the heads a rule asks for."""

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from etude.core.config import NetworkConfig
from etude.core.memory import Memory
from etude.core.nn import LSTM, MLP, Gates, Inputs, Linear, ResidualConvNet, lstm_transition
from etude.core.trees import choose
from etude.core.types import Predictions, Rollout

Summary = TypeVar("Summary")

Embedding = Float[Array, "*batch embedding"]
Told = Float[Array, "*batch_or_none numbers"] | None
"""What an agent is told of its rule, if it expects that: in each state, or in all alike."""

HEAD_STD = 1e-2
"""Initial weight std of the heads on the torso: the first policy is close to uniform."""

CONTEXT_SIZE = 16
"""Size of the embedding of what an agent is told of its rule (arXiv 1805.09801)."""


@dataclasses.dataclass(frozen=True)
class Heads:
    """The outputs a rule needs: sizes by name, per state and per action."""

    state: Mapping[str, int]
    action: Mapping[str, int] = dataclasses.field(default_factory=dict)
    context: int = 0
    """How many numbers the agent is told of the rule in each state."""


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

    def __call__(self, observation: PyTree, dtype: DTypeLike = float) -> Inputs:
        flat = [
            x.astype(dtype).reshape(*x.shape[: x.ndim - rank], -1)
            for x, rank in zip(jax.tree.leaves(observation), self.ranks, strict=True)
        ]
        return flat[0] if len(flat) == 1 else jnp.concatenate(flat, axis=-1)


class Torso(eqx.Module):
    """Every observation leaf flattened and joined, then an MLP; images may be convolved first."""

    mlp: MLP
    conv: ResidualConvNet | None
    flatten: Flatten
    context: Linear | None
    """Embeds what the agent is told of its rule."""

    def __init__(
        self, observation: PyTree, config: NetworkConfig, context: int = 0, *, key: PRNGKeyArray
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
        if context:
            self.context = Linear(context, CONTEXT_SIZE, key=jax.random.fold_in(key, 0))
            inputs += CONTEXT_SIZE
        self.mlp = MLP(inputs, config.torso, config.tanh, key=mlp_key)

    def __call__(self, observation: PyTree, context: Told = None) -> Embedding:
        dtype = self.mlp.layers[0].w.dtype
        if self.conv is not None:
            (image,) = jax.tree.leaves(observation)
            x = jax.nn.relu(self.conv(image.astype(dtype)))
        else:
            x = self.flatten(observation, dtype)
        if self.context is not None:
            assert context is not None, "an agent that expects to be told of its rule was not"
            told = self.context(jax.lax.stop_gradient(context))
            told = jnp.broadcast_to(told, (*x.shape[:-1], CONTEXT_SIZE))
            x = jnp.concatenate([x, told], axis=-1)
        return self.mlp(x)


class ModelStart(NamedTuple):
    """The part of the action model's LSTM step that all actions share."""

    hidden_gates: Gates
    cell: Float[Array, "*batch model"]


class ActionModel(eqx.Module):
    """What would follow each action: one LSTM step from the state, with the action as input."""

    root: Linear
    lstm: LSTM
    heads: dict[str, MLP]

    def __init__(self, num_actions: int, heads: Heads, config: NetworkConfig, *, key: PRNGKeyArray):
        root_key, lstm_key, *head_keys = jax.random.split(key, 2 + len(heads.action))
        self.root = Linear(config.torso[-1], config.model, key=root_key)
        self.lstm = LSTM(num_actions, config.model, key=lstm_key)
        self.heads = {
            name: MLP(config.model, (config.head, size), key=k)
            for (name, size), k in zip(sorted(heads.action.items()), head_keys, strict=True)
        }

    def start(self, embedding: Embedding) -> ModelStart:
        cell = self.root(embedding)
        return ModelStart(self.lstm.hidden_gates(jnp.tanh(cell)), cell)

    def step(self, start: ModelStart, action: Float[Array, "*batch_or_none A"]) -> Predictions:
        """The heads after the step; `action` is one-hot, for each state or one for all."""
        hidden_gates, cell = start
        action_gates = jnp.broadcast_to(self.lstm.input_gates(action), hidden_gates.shape)
        after = lstm_transition(hidden_gates + action_gates, cell)
        return {name: head(after.hidden) for name, head in self.heads.items()}


class Agent(eqx.Module):
    """Policy and predictions θ: `unroll` a rollout, then ask what the rule needs to know."""

    torso: Torso
    memory: Memory | None
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
        self.num_actions = num_actions
        self.torso = Torso(observation, config, heads.context, key=torso_key)
        self.memory = None
        if config.memory != "none":
            self.memory = Memory(config, key=jax.random.fold_in(torso_key, 1))
        self.head = {
            name: Linear(config.torso[-1], size, key=k, std=HEAD_STD)
            for (name, size), k in zip(sorted(heads.state.items()), head_keys, strict=True)
        }
        self.model = None
        if heads.action:
            self.model = ActionModel(num_actions, heads, config, key=model_key)

    def start(self, *batch: int) -> PyTree[Array]:
        """What is remembered at the start of an episode; without memory, a tree without leaves."""
        return None if self.memory is None else self.memory.start(*batch)

    def act(
        self,
        memory: PyTree[Array],
        observation: PyTree[Array],
        first: Bool[Array, "*batch"] | None = None,
        *,
        context: Told = None,
    ) -> tuple[PyTree[Array], Float[Array, "*batch A"]]:
        """What is remembered afterwards, and the logits of the actions: all that acting needs.

        Args:
            memory: What was remembered before; at first, what `start` gives.
            observation: Of each of B environments.
            first: Where a new episode begins, so that all is forgotten before; by default nowhere.
            context: What the agent is told of its rule.
        """
        embedding = self.torso(observation, context)
        if self.memory is not None:
            if first is not None:
                memory = choose(first, self.start(*first.shape), memory)
            memory, embedding = self.memory.step(memory, embedding)
        return memory, self.head["pi"](embedding)

    def unroll(self, rollout: Rollout) -> Float[Array, "T1 B embedding"]:
        """The embeddings of all observations of a rollout, each with what was then remembered."""
        features = self.torso(rollout.observation, rollout.context)
        if self.memory is None:
            return features
        before = jax.tree.map(lambda x: x[0], rollout.memory)
        return self.memory.unroll(before, features, rollout.starts)

    def logits(self, rollout: Rollout) -> Float[Array, "T1 B A"]:
        """The policy at all observations of a rollout."""
        return self.head["pi"](self.unroll(rollout))

    def predict(self, embedding: Embedding) -> Predictions:
        """The heads that depend on the state alone."""
        return {name: head(embedding) for name, head in self.head.items()}

    def consider(self, embedding: Embedding) -> ModelStart:
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
