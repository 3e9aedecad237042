"""An agent's memory: the latest observations, which the torso sees too, and a recurrent cell on top
of the torso."""

from collections.abc import Callable
from typing import TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray, PyTree

from etude.core.config import NetworkConfig
from etude.core.nn import GRU, LSTM, Hidden, Linear
from etude.core.trees import choose

Result = TypeVar("Result")

Features = Float[Array, "*batch features"]

CELLS = {"gru": GRU, "lstm": LSTM}


class Memory(eqx.Module):
    """Remembers features of what was observed since the episode began.

    What is read out of the state depends on the features too, so that what is seen now decides
    what to recall. A gated memory multiplies the two, so that "this, done there, paid so much" can
    be written into a unit of the state and read where it matters again; with layers that add, that
    takes very long to learn. It suits observations of few symbols.
    """

    cell: GRU | LSTM
    read: Linear
    gate: Linear | None

    def __init__(self, config: NetworkConfig, *, key: PRNGKeyArray):
        features, size = config.torso[-1], config.memory_size
        cell_key, read_key = jax.random.split(key)
        self.cell = CELLS[config.memory](features, size, key=cell_key)
        self.read = Linear(size + features, features, key=read_key)
        gate_key = jax.random.fold_in(read_key, 1)
        self.gate = Linear(features, features, key=gate_key) if config.gated else None

    def start(self, *batch: int) -> PyTree[Array]:
        """Nothing remembered yet."""
        return self.cell.zero_state(*batch)

    def step(self, state: PyTree[Array], features: Features) -> tuple[PyTree[Array], Features]:
        """The state after these features, and what the heads read."""
        seen = self._seen(features)
        state, output = self.cell.advance(self.cell.input_gates(seen), state)
        return state, self._recall(output, seen)

    def unroll(
        self,
        state: PyTree[Array],
        features: Float[Array, "T1 B features"],
        starts: Bool[Array, "T1 B"],
    ) -> Float[Array, "T1 B features"]:
        """What `step` gives at each time, from `state` on, which is forgotten where `starts`."""
        seen, nothing = self._seen(features), self.start(features.shape[1])

        def step(state, x):
            gates, first = x
            return self.cell.advance(gates, choose(first, nothing, state))

        # Only what depends on the step before is done step by step.
        outputs = jax.lax.scan(step, state, (self.cell.input_gates(seen), starts))[1]
        return self._recall(outputs, seen)

    def _seen(self, features: Features) -> Features:
        return jax.nn.relu(features) if self.gate is None else features

    def _recall(self, output: Hidden, seen: Features) -> Features:
        read = self.read(jnp.concatenate([output, seen], axis=-1))
        return jax.nn.relu(read) if self.gate is None else read * self.gate(seen)


class FrameStack(eqx.Module):
    """Remembers the latest observations, as they are, so that the torso sees `number` of them at
    once: rollouts and replay hold each observation once.

    Images, and grids of symbols, are stacked along their channels, vectors along their only axis,
    the latest last. Before an episode's first observation there were zeros.
    """

    number: int = eqx.field(static=True)
    structure: jax.tree_util.PyTreeDef = eqx.field(static=True)
    forms: tuple[tuple[tuple[int, ...], str], ...] = eqx.field(static=True)
    """Shape and type of each leaf of an observation."""

    def __init__(self, observation: PyTree, number: int):
        leaves, self.structure = jax.tree.flatten(observation)
        self.forms = tuple((tuple(x.shape), str(x.dtype)) for x in leaves)
        self.number = number

    def start(self, *batch: int) -> PyTree[Array]:
        """Zeros for the observations before the first, their axis after those of the batch."""
        shapes = [((*batch, self.number - 1, *shape), dtype) for shape, dtype in self.forms]
        return jax.tree.unflatten(self.structure, [jnp.zeros(*form) for form in shapes])

    def step(
        self, before: PyTree[Array], observation: PyTree[Array]
    ) -> tuple[PyTree[Array], PyTree[Array]]:
        """The observations to remember, and the stacks up to now."""

        def step(rank: int, old: Array, new: Array) -> tuple[Array, Array]:
            axis = new.ndim - rank
            frames = jnp.concatenate([old, jnp.expand_dims(new, axis)], axis)
            kept = jax.lax.slice_in_dim(frames, 1, None, axis=axis)
            return kept, _stack(list(jnp.moveaxis(frames, axis, 0)), rank)

        kept, stacks = zip(*self._by_leaf(step, before, observation), strict=True)
        return jax.tree.unflatten(self.structure, kept), jax.tree.unflatten(self.structure, stacks)

    def unroll(
        self, before: PyTree[Array], observation: PyTree[Array], starts: Bool[Array, "T1 B"]
    ) -> PyTree[Array]:
        """The stacks that `step` gives at each time, from `before` on, where what came before one
        of the `starts` is forgotten."""
        length, seen = starts.shape[0], [jnp.ones_like(starts)]
        for back in range(self.number - 1):
            started = jnp.pad(starts, ((back, 0), (0, 0)))[:length]
            seen.append(seen[-1] & ~started)

        def unroll(rank: int, old: Array, new: Array) -> Array:
            frames = jnp.concatenate([jnp.moveaxis(old, 1, 0), new])
            since = [
                choose(flag, frames[i : i + length], jnp.zeros_like(new))
                for i, flag in enumerate(seen[::-1])
            ]
            return _stack(since, rank)

        stacks = self._by_leaf(unroll, before, observation)
        return jax.tree.unflatten(self.structure, stacks)

    def _by_leaf(
        self, function: Callable[[int, Array, Array], Result], before: PyTree, observation: PyTree
    ) -> list[Result]:
        """A function of each leaf's rank, what is remembered of it, and its new values."""
        leaves = zip(self.forms, *map(jax.tree.leaves, (before, observation)), strict=True)
        return [function(len(shape), old, new) for (shape, _), old, new in leaves]


def _stack(frames: list[Array], rank: int) -> Array:
    """Along the channels, which images of two axes, and single numbers, do not have yet."""
    return jnp.concatenate(frames, axis=-1) if rank % 2 else jnp.stack(frames, axis=-1)
