"""Catch: a pellet falls down a board, and the paddle at the bottom should be under it."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from etude.envs.base import Action, EnvParams, EnvState, TimeLimited, Transition
from etude.envs.pictures import board


class CatchState(EnvState):
    pellet_row: Int[Array, ""]
    pellet_column: Int[Array, ""]
    paddle: Int[Array, ""]


class Catch(TimeLimited[CatchState]):
    """Catch the falling pellet (±1 at the end); `rows` and `columns` set the board's size.

    The pellet starts in a random column of the top row and falls one row per step; the paddle
    starts in the centre of the bottom row and moves left, stays or moves right. The episode ends
    when the pellet reaches the bottom, after `rows − 1` steps: +1 if it is caught, −1 if not.
    """

    num_actions = 3

    def __init__(self, rows: int = 8, columns: int = 8):
        if rows < 2 or columns < 1:
            raise ValueError(f"Catch needs at least 2 rows and 1 column, not {rows} × {columns}.")
        self.rows, self.columns, self.limit = rows, columns, rows

    def reset_env(self, key: Array, params: EnvParams) -> tuple[Array, CatchState]:
        column = jax.random.randint(key, (), 0, self.columns)
        zero = jnp.zeros((), jnp.int32)
        state = CatchState(zero, zero, column, jnp.asarray(self.columns // 2, jnp.int32))
        return self._observe(state), state

    def step_env(
        self, key: Array, state: CatchState, action: Action, params: EnvParams
    ) -> Transition[Array, CatchState]:
        paddle = jnp.clip(state.paddle + action - 1, 0, self.columns - 1)
        row = state.pellet_row + 1
        state = CatchState(state.time + 1, row, state.pellet_column, paddle)
        landed = row == self.rows - 1
        outcome = jnp.where(paddle == state.pellet_column, 1.0, -1.0)
        return self._observe(state), state, jnp.where(landed, outcome, 0.0), landed, {}

    def _observe(self, state: CatchState) -> Float[Array, "rows columns"]:
        rows = jnp.arange(self.rows)[:, None]
        columns = jnp.arange(self.columns)[None, :]
        pellet = (rows == state.pellet_row) & (columns == state.pellet_column)
        paddle = (rows == self.rows - 1) & (columns == state.paddle)
        return (pellet | paddle).astype(jnp.float32)

    def render(self, state: CatchState, params: EnvParams) -> np.ndarray:
        planes = np.zeros((self.rows, self.columns, 2))
        planes[-1, int(state.paddle), 0] = 1.0
        planes[int(state.pellet_row), int(state.pellet_column), 1] = 1.0
        return board(planes)
