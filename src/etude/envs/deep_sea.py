"""Deep seas (bsuite, arXiv 1908.03568) of any depth, whose actions each task mirrors anew."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from etude.envs.base import Action, EnvState, TaskEnvironment, Transition
from etude.envs.pictures import board

COST = 0.01
"""Of all moves to the right that lead to the treasure, together."""


class SeaTask(eqx.Module):
    depth: Int[Array, ""]
    """Steps in an episode; the sea is as wide as it is deep."""
    mirrored: Bool[Array, "size size"]
    """Where action 0 is the one that leads to the right."""


class SeaState(EnvState):
    """The row is the time."""

    column: Int[Array, ""]


class DeepSea(TaskEnvironment[SeaState, SeaTask]):
    """A dive that pays only at the end of the one way that goes right at every step.

    A step leads one row down, and one column to the left or to the right. Each move to the right
    costs 0.01 divided by the depth, and the last of all moves to the right finds the treasure: 1.
    Drawn are the depth, from `shallowest` to `size`, and, if `mirrored`, which action leads to the
    right in each cell. A random diver finds the treasure once in 2 to the power of the depth.
    """

    num_actions = 2

    def __init__(self, size: int = 10, shallowest: int = 4, mirrored: bool = True):
        if not 1 <= shallowest <= size:
            raise ValueError(f"A sea is 1 to {size} deep, not from {shallowest}.")
        self.size = self.horizon = size
        self.shallowest, self.mirrored = shallowest, mirrored

    def sample_task(self, key: PRNGKeyArray) -> SeaTask:
        depth_key, mirror_key = jax.random.split(key)
        depth = jax.random.randint(depth_key, (), self.shallowest, self.size + 1)
        mirrored = jax.random.bernoulli(mirror_key, shape=(self.size, self.size))
        return SeaTask(depth, mirrored & self.mirrored)

    def reset_env(self, key: Array, params: SeaTask) -> tuple[Array, SeaState]:
        zero = jnp.zeros((), jnp.int32)
        state = SeaState(zero, zero)
        return self._observe(state), state

    def step_env(
        self, key: Array, state: SeaState, action: Action, params: SeaTask
    ) -> Transition[Array, SeaState]:
        right = (jnp.asarray(action) == 1) ^ params.mirrored[state.time, state.column]
        ends = state.time + 1 >= params.depth
        found = ends & right & (state.column == params.depth - 1)
        reward = jnp.where(found, 1.0, 0.0) - jnp.where(right, COST / params.depth, 0.0)
        column = jnp.clip(state.column + jnp.where(right, 1, -1), 0, params.depth - 1)
        state = SeaState(state.time + 1, column.astype(jnp.int32))
        return self._observe(state), state, reward, ends, {}

    def _observe(self, state: SeaState) -> Float[Array, "size size"]:
        """Where the diver is; nothing after the last step, at the bottom of the deepest sea."""
        rows, columns = jnp.arange(self.size)[:, None], jnp.arange(self.size)[None]
        return ((rows == state.time) & (columns == state.column)).astype(jnp.float32)

    def render(self, state: SeaState, params: SeaTask) -> np.ndarray:
        depth = int(params.depth)
        planes = np.zeros((self.size, self.size, 2))
        planes[min(int(state.time), self.size - 1), int(state.column), 0] = 1.0
        planes[depth - 1, depth - 1, 1] = 1.0
        return board(planes)
