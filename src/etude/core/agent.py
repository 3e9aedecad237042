"""The agent: a network built from the heads a rule asks for."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from etude.core.config import NetworkConfig
from etude.core.memory import FrameStack, Memory
from etude.core.nn import LSTM, MLP, Gates, Linear, lstm_transition
from etude.core.torso import Embedding, Told, Torso, stacked
from etude.core.trees import choose
from etude.core.types import Predictions, Rollout

Summary = TypeVar("Summary")

HEAD_STD = 1e-2
"""Initial weight std of the heads on the torso: the first policy is close to uniform."""

PEAK = 20
"""Bins beyond which the first logits of a peaked value fall no further."""


@dataclasses.dataclass(frozen=True)
class Heads:
    """The outputs a rule needs: sizes by name, per state and per action."""

    state: Mapping[str, int]
    action: Mapping[str, int] = dataclasses.field(default_factory=dict)
    bins: tuple[str, ...] = ()
    """Those among them that are logits of a value's bins, with that of 0 in the middle."""
    context: int = 0
    """How many numbers the agent is told of the rule in each state."""
    acts_by: str = "pi"
    """The head per state whose outputs are the logits of the actions, or the action values that a
    player makes them of."""


def peaked(head: Linear, slope: float) -> Linear:
    """A head of bins whose first logits fall by `slope` from each bin to the next, away from the
    middle, as far as `PEAK` bins."""
    if not slope:
        return head
    distance = jnp.abs(jnp.arange(len(head.b)) - len(head.b) // 2)
    return eqx.tree_at(lambda x: x.b, head, head.b - slope * jnp.minimum(distance, PEAK))


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
        for name in self.heads.keys() & set(heads.bins):
            *others, last = self.heads[name].layers
            layers = (*others, peaked(last, config.value_peak))
            self.heads[name] = eqx.tree_at(lambda mlp: mlp.layers, self.heads[name], layers)

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
    frames: FrameStack | None
    memory: Memory | None
    head: dict[str, Linear]
    model: ActionModel | None
    num_actions: int = eqx.field(static=True)
    acts_by: str = eqx.field(static=True)

    def __init__(
        self,
        observation: PyTree,
        num_actions: int,
        heads: Heads,
        config: NetworkConfig = NetworkConfig(),
        *,
        key: PRNGKeyArray,
    ):
        """`observation`: the form of one observation, without batch axes: a tree of arrays,
        `ShapeDtypeStruct`s or `Symbols`."""
        torso_key, model_key, *head_keys = jax.random.split(key, 2 + len(heads.state))
        self.num_actions, self.acts_by = num_actions, heads.acts_by
        seen = stacked(observation, config.frame_stack)
        self.torso = Torso(seen, config, heads.context, key=torso_key)
        self.frames, self.memory = None, None
        if config.frame_stack > 1:
            self.frames = FrameStack(observation, config.frame_stack)
        if config.memory != "none":
            self.memory = Memory(config, key=jax.random.fold_in(torso_key, 1))
        self.head = {
            name: Linear(config.torso[-1], size, key=k, std=HEAD_STD)
            for (name, size), k in zip(sorted(heads.state.items()), head_keys, strict=True)
        }
        for name in self.head.keys() & set(heads.bins):
            self.head[name] = peaked(self.head[name], config.value_peak)
        self.model = None
        if heads.action:
            self.model = ActionModel(num_actions, heads, config, key=model_key)

    def start(self, *batch: int) -> PyTree[Array]:
        """What is remembered at the start of an episode; without memory, a tree without leaves."""
        frames = None if self.frames is None else self.frames.start(*batch)
        return self._remembered(frames, None if self.memory is None else self.memory.start(*batch))

    def _remembered(self, frames: PyTree[Array], state: PyTree[Array]) -> PyTree[Array]:
        """What is remembered, of the latest observations and the state of the recurrent cell: both
        of them, or the only one that there is."""
        return state if self.frames is None else frames if self.memory is None else (frames, state)

    def _parts(self, memory: PyTree[Array]) -> tuple[PyTree[Array], PyTree[Array]]:
        """What `_remembered` put together."""
        if self.frames is not None and self.memory is not None:
            return memory
        return (None, memory) if self.frames is None else (memory, None)

    def act(
        self,
        memory: PyTree[Array],
        observation: PyTree[Array],
        first: Bool[Array, "*batch"] | None = None,
        *,
        context: Told = None,
    ) -> tuple[PyTree[Array], Float[Array, "*batch A"]]:
        """What is remembered afterwards, and the outputs of the head that the agent acts by, by
        default the logits of the actions: all that acting needs.

        Args:
            memory: What was remembered before; at first, what `start` gives.
            observation: Of each of B environments.
            first: Where a new episode begins, so that all is forgotten before; by default nowhere.
            context: What the agent is told of its rule.
        """
        if first is not None:
            memory = choose(first, self.start(*first.shape), memory)
        frames, state = self._parts(memory)
        if self.frames is not None:
            frames, observation = self.frames.step(frames, observation)
        embedding = self.torso(observation, context)
        if self.memory is not None:
            state, embedding = self.memory.step(state, embedding)
        return self._remembered(frames, state), self.head[self.acts_by](embedding)

    def unroll(self, rollout: Rollout) -> Float[Array, "T1 B embedding"]:
        """The embeddings of all observations of a rollout, each with what was then remembered."""
        observation, before = rollout.observation, (None, None)
        if self.frames is not None or self.memory is not None:
            before = self._parts(jax.tree.map(lambda x: x[0], rollout.memory))
        if self.frames is not None:
            observation = self.frames.unroll(before[0], observation, rollout.starts)
        features = self.torso(observation, rollout.context)
        if self.memory is None:
            return features
        return self.memory.unroll(before[1], features, rollout.starts)

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
        """The action model's heads for one action per state: what a loss needs."""
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
