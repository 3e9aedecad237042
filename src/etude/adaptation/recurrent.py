"""A recurrent policy: its state is what it has found out about a task."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from etude.adaptation.config import Cell
from etude.core.agent import HEAD_STD, Flatten
from etude.core.nn import GRU, LSTM, Linear

CELLS = {"gru": GRU, "lstm": LSTM}


class Seen(NamedTuple):
    """What the policy is told at each step."""

    observation: PyTree[Array]
    before: PyTree[Array]
    """The observation in which that action was taken."""
    action: Int[Array, "*batch"]
    """The one before; −1 at the start of a trial."""
    reward: Float[Array, "*batch"]
    """The one before."""
    ended: Bool[Array, "*batch"]
    """Whether an episode has just ended, so that this is the first step of another."""


class RecurrentPolicy(eqx.Module):
    """From what is seen, step by step, to the logits of the actions and a value, in the units of a
    `Baseline`.

    An associative one multiplies what belongs together, so that "this, done there, paid so much"
    can be written into a unit of the state, and read where it matters again: with layers that add,
    that takes very long to learn. It is for observations of few symbols; the pairs of all that can
    be observed and done are many where much can be observed.
    """

    encoder: Linear
    """Brings together what belongs together: where an action was taken, and what it paid."""
    cell: GRU | LSTM
    torso: Linear
    """Reads what matters here out of the state: it sees both the state and what is seen."""
    gate: Linear | None
    """What is seen, to multiply what is read by; only an associative policy has it."""
    pi: Linear
    value: Linear
    flatten: Flatten
    num_actions: int = eqx.field(static=True)

    def __init__(
        self,
        observation: PyTree,
        num_actions: int,
        hidden: int = 256,
        cell: Cell = "gru",
        associative: bool = False,
        *,
        key: PRNGKeyArray,
    ):
        encoder_key, cell_key, torso_key, pi_key, value_key = jax.random.split(key, 5)
        self.flatten = Flatten.like(observation)
        self.num_actions = num_actions
        pairs = 2 * self.flatten.size * num_actions if associative else 0
        inputs = 2 * self.flatten.size + num_actions + 2 + pairs
        self.encoder = Linear(inputs, hidden, key=encoder_key)
        self.cell = CELLS[cell](hidden, hidden, key=cell_key)
        self.torso = Linear(2 * hidden, hidden, key=torso_key)
        self.gate = (
            Linear(hidden, hidden, key=jax.random.fold_in(torso_key, 1)) if associative else None
        )
        self.pi = Linear(hidden, num_actions, key=pi_key, std=HEAD_STD)
        self.value = Linear(hidden, 1, key=value_key, std=HEAD_STD)

    def start(self, *batch: int) -> PyTree[Array]:
        return self.cell.zero_state(*batch)

    def step(
        self, state: PyTree[Array], seen: Seen
    ) -> tuple[PyTree[Array], Float[Array, "*batch A"], Float[Array, "*batch"]]:
        """The state after what was seen, the logits and the value."""
        cell: Any = self.cell
        inputs = self.inputs(seen)
        state = cell.advance(cell.input_gates(inputs), state)
        return state, *self.heads(cell.output(state), inputs)

    def inputs(self, seen: Seen) -> Float[Array, "*batch hidden"]:
        kind = self.pi.w.dtype
        before = self.flatten(seen.before, kind)
        action = jax.nn.one_hot(seen.action, self.num_actions, dtype=kind)
        reward, ended = (x[..., None].astype(kind) for x in (seen.reward, seen.ended))
        parts = [self.flatten(seen.observation, kind), before, action, reward, ended]
        if self.gate is None:
            return jax.nn.relu(self.encoder(jnp.concatenate(parts, axis=-1)))
        done_there = before[..., :, None] * action[..., None, :]
        done_there = done_there.reshape(*done_there.shape[:-2], -1)
        return self.encoder(jnp.concatenate([*parts, done_there, reward * done_there], axis=-1))

    def heads(
        self, output: Float[Array, "*batch hidden"], inputs: Float[Array, "*batch hidden"]
    ) -> tuple[Float[Array, "*batch A"], Float[Array, "*batch"]]:
        """The logits and the value."""
        read = self.torso(jnp.concatenate([output, inputs], axis=-1))
        read = jax.nn.relu(read) if self.gate is None else read * self.gate(inputs)
        return self.pi(read), self.value(read)[..., 0]
