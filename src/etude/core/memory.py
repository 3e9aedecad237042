"""An agent's memory: a recurrent cell on top of the torso, and what is read out of it."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray, PyTree

from etude.core.config import NetworkConfig
from etude.core.nn import GRU, LSTM, Hidden, Linear
from etude.core.trees import choose

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
