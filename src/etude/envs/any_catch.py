"""Catch on boards of all sizes within one frame."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from etude.envs.base import Action, TaskEnvironment, Transition
from etude.envs.catch import CatchState
from etude.envs.pictures import board


class CatchTask(eqx.Module):
    rows: Int[Array, ""]
    columns: Int[Array, ""]


class AnyCatch(TaskEnvironment[CatchState, CatchTask]):
    """Catch on boards from `smallest` × `smallest` up to `rows` × `columns`, drawn with the task.

    The rules are those of `catch`. A smaller board is in the upper left corner of the frame. Where
    it is wider than high, not every pellet can be caught.
    """

    num_actions = 3

    def __init__(self, rows: int = 8, columns: int = 8, smallest: int = 3):
        if not 2 <= smallest <= min(rows, columns):
            raise ValueError(
                f"Boards within {rows} × {columns} have sides from 2 to {min(rows, columns)}, "
                f"not from {smallest}."
            )
        self.rows, self.columns, self.smallest = rows, columns, smallest
        self.horizon = rows - 1

    def sample_task(self, key: PRNGKeyArray) -> CatchTask:
        row_key, column_key = jax.random.split(key)
        rows = jax.random.randint(row_key, (), self.smallest, self.rows + 1)
        return CatchTask(rows, jax.random.randint(column_key, (), self.smallest, self.columns + 1))

    def reset_env(self, key: Array, params: CatchTask) -> tuple[Array, CatchState]:
        column = jax.random.randint(key, (), 0, params.columns)
        zero = jnp.zeros((), jnp.int32)
        state = CatchState(zero, zero, column, params.columns // 2)
        return self._observe(state, params), state

    def step_env(
        self, key: Array, state: CatchState, action: Action, params: CatchTask
    ) -> Transition[Array, CatchState]:
        paddle = jnp.clip(state.paddle + action - 1, 0, params.columns - 1).astype(jnp.int32)
        row = state.pellet_row + 1
        state = CatchState(state.time + 1, row, state.pellet_column, paddle)
        landed = row == params.rows - 1
        outcome = jnp.where(paddle == state.pellet_column, 1.0, -1.0)
        return self._observe(state, params), state, jnp.where(landed, outcome, 0.0), landed, {}

    def _observe(self, state: CatchState, params: CatchTask) -> Float[Array, "rows columns"]:
        rows, columns = jnp.arange(self.rows)[:, None], jnp.arange(self.columns)[None]
        pellet = (rows == state.pellet_row) & (columns == state.pellet_column)
        paddle = (rows == params.rows - 1) & (columns == state.paddle)
        return (pellet | paddle).astype(jnp.float32)

    def render(self, state: CatchState, params: CatchTask) -> np.ndarray:
        planes = np.zeros((self.rows, self.columns, 3))
        planes[int(params.rows) - 1, int(state.paddle), 0] = 1.0
        planes[int(state.pellet_row), int(state.pellet_column), 1] = 1.0
        planes[int(params.rows) :, :, 2] = planes[:, int(params.columns) :, 2] = 0.5
        return board(planes)
