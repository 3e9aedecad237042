"""Grid worlds whose board, objects and time limit each task draws anew.

After the training environments of LPG (arXiv 2007.08794) and GROOVE (arXiv 2310.02782): objects
that pay, that may end an episode when they are collected, and that may come back.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from etude.envs import pictures
from etude.envs.base import Action, EnvState, TaskEnvironment, Transition
from etude.envs.draws import whole_between
from etude.envs.krazy_world import DIRECTIONS

LEAST_REWARD = 0.25
"""Of an object, by size, where rewards are dense."""
MOST_DANGER = 0.5
"""The highest probability that a bad object ends an episode where rewards are dense."""
RETURNS = 0.02, 0.5
"""Where rewards are dense, the bounds of how likely an object is to come back at each step."""


class Objects(eqx.Module):
    """Of each object, along one axis."""

    cell: Int[Array, " objects"]
    reward: Float[Array, " objects"]
    ends: Float[Array, " objects"]
    """Probability that collecting it ends the episode."""
    returns: Float[Array, " objects"]
    """Probability per step that it comes back once it is gone."""
    exists: Bool[Array, " objects"]


class GridTask(eqx.Module):
    walls: Bool[Array, " cells"]
    """What lies around a smaller board counts as wall."""
    objects: Objects
    starts: Int[Array, " starts"]
    """Cells that an episode may begin in; the first `choices` of them count."""
    choices: Int[Array, ""]
    limit: Int[Array, ""]
    """Steps in an episode."""


class GridState(EnvState):
    cell: Int[Array, ""]
    there: Bool[Array, " objects"]
    """Objects that can be collected now."""


class GridWorld(TaskEnvironment[GridState, GridTask]):
    """Collect what pays, on a board of up to `size` × `size` cells that each task draws anew.

    Drawn are the sides of the board (from `smallest` on), its walls (a share of up to `walls`), the
    time limit (from `shortest` to `horizon` steps, log-uniform), where episodes begin (always in
    one cell, or anywhere), and 1 to `objects` objects, the first of which is good. With dense
    rewards, objects pay up to ±1 and come back, and bad ones may end the episode; with sparse ones,
    each pays ±1 once and ends it. `rewards` is dense, sparse, or mixed: drawn as well. All that is
    not wall can be reached. An observation shows the agent, the walls, and each object that is
    there.
    """

    num_actions = 4
    own_limits = True

    def __init__(
        self,
        size: int = 7,
        smallest: int = 4,
        objects: int = 4,
        walls: float = 0.25,
        shortest: int = 20,
        horizon: int = 100,
        rewards: str = "mixed",
    ):
        if not 2 <= smallest <= size:
            raise ValueError(f"A board has sides from 2 to {size}, not from {smallest}.")
        if not 1 <= objects < smallest**2:
            raise ValueError(f"There is room for 1 to {smallest**2 - 1} objects, not {objects}.")
        if not 0 <= walls < 1:
            raise ValueError(f"The share of walls is at least 0 and below 1, not {walls}.")
        if not 1 <= shortest <= horizon:
            raise ValueError(f"An episode has from 1 to {horizon} steps, not from {shortest}.")
        if rewards not in ("mixed", "dense", "sparse"):
            raise ValueError(f"Rewards are mixed, dense or sparse, not {rewards}.")
        self.size, self.smallest, self.objects, self.walls = size, smallest, objects, walls
        self.shortest, self.horizon, self.rewards = shortest, horizon, rewards

    # --- Tasks ---

    def sample_task(self, key: PRNGKeyArray) -> GridTask:
        board_key, object_key, limit_key, start_key = jax.random.split(key, 4)
        board = self._draw_board(board_key)
        anywhere = jax.random.bernoulli(start_key)
        start, others = board.order[:1], board.order[1:]
        return GridTask(
            walls=board.walls,
            objects=self._draw_objects(object_key, others[: self.objects]),
            starts=jnp.concatenate([start, others[self.objects :]]),
            choices=jnp.where(anywhere, board.open_cells - self.objects, 1),
            limit=whole_between(limit_key, self.shortest, self.horizon),
        )

    def _draw_board(self, key: PRNGKeyArray) -> "Board":
        """Walls are left out if they would not leave room for the objects and the start."""
        side_key, share_key, wall_key, start_key, order_key = jax.random.split(key, 5)
        sides = jax.random.randint(side_key, (2,), self.smallest, self.size + 1)
        rows, columns = jnp.divmod(jnp.arange(self.size**2), self.size)
        inside = (rows < sides[0]) & (columns < sides[1])
        row, column = jax.random.randint(start_key, (2,), 0, sides)
        start = row * self.size + column
        share = jax.random.uniform(share_key, maxval=self.walls)
        walls = jax.random.bernoulli(wall_key, share, inside.shape).at[start].set(False)
        reached = _reachable(~walls & inside, start, self.size)
        room = jnp.sum(reached) > self.objects
        reached = jnp.where(room, reached, inside)
        order = jnp.where(reached, jax.random.uniform(order_key, inside.shape), 2.0)
        order = jnp.argsort(order.at[start].set(-1.0)).astype(jnp.int32)
        return Board(~reached, order, jnp.sum(reached))

    def _draw_objects(self, key: PRNGKeyArray, cells: Int[Array, " objects"]) -> Objects:
        kind_key, number_key, sign_key, size_key, end_key, return_key = jax.random.split(key, 6)
        shape = (self.objects,)
        mixed = jax.random.bernoulli(kind_key)
        dense = {"dense": True, "sparse": False}.get(self.rewards, mixed)
        good = jax.random.bernoulli(sign_key, shape=shape).at[0].set(True)
        size = jax.random.uniform(size_key, shape, minval=LEAST_REWARD)
        size = jnp.where(dense, size, 1.0)
        danger = jnp.where(good, 0.0, jax.random.uniform(end_key, shape, maxval=MOST_DANGER))
        back = jnp.exp(jax.random.uniform(return_key, shape, float, *np.log(RETURNS)))
        number = jax.random.randint(number_key, (), 1, self.objects + 1)
        return Objects(
            cell=cells,
            reward=jnp.where(good, size, -size),
            ends=jnp.where(dense, danger, 1.0),
            returns=jnp.where(dense, back, 0.0),
            exists=jnp.arange(self.objects) < number,
        )

    # --- Episodes ---

    def reset_env(self, key: Array, params: GridTask) -> tuple[Array, GridState]:
        cell = params.starts[jax.random.randint(key, (), 0, params.choices)]
        state = GridState(jnp.zeros((), jnp.int32), cell, params.objects.exists)
        return self._observe(state, params), state

    def step_env(
        self, key: Array, state: GridState, action: Action, params: GridTask
    ) -> Transition[Array, GridState]:
        """First the agent moves and collects; then what was gone before may come back."""
        end_key, return_key = jax.random.split(key)
        objects = params.objects
        cell = self._moved(state.cell, action, params.walls)
        found = state.there & (objects.cell == cell)
        ends = jax.random.bernoulli(end_key, jnp.sum(found * objects.ends))
        back = jax.random.bernoulli(return_key, objects.returns) & ~state.there & objects.exists
        state = GridState(state.time + 1, cell, (state.there & ~found) | back)
        return self._observe(state, params), state, jnp.sum(found * objects.reward), ends, {}

    def _moved(
        self, cell: Int[Array, ""], action: Action, walls: Bool[Array, " cells"]
    ) -> Int[Array, ""]:
        place = jnp.stack(jnp.divmod(cell, self.size)) + jnp.asarray(DIRECTIONS)[action]
        inside = jnp.all((place >= 0) & (place < self.size))
        target = jnp.where(inside, place[0] * self.size + place[1], cell)
        return jnp.where(walls[target], cell, target).astype(jnp.int32)

    def is_truncated(self, state: GridState, params: GridTask) -> Bool[Array, ""]:
        return state.time >= params.limit

    # --- What is seen ---

    def _observe(self, state: GridState, params: GridTask) -> Float[Array, "size size planes"]:
        cells = jnp.arange(self.size**2)
        agent = (cells == state.cell)[:, None]
        things = (cells[:, None] == params.objects.cell[None]) & state.there[None]
        planes = jnp.concatenate([agent, params.walls[:, None], things], axis=1)
        return planes.reshape(self.size, self.size, -1).astype(jnp.float32)

    def render(self, state: GridState, params: GridTask) -> np.ndarray:
        """Walls are grey; objects green or red, as bright as they are good or bad."""
        colours = np.full((self.size**2, 3), pictures.BACKGROUND, float)
        colours[np.asarray(params.walls)] = (150, 156, 166)
        objects = params.objects
        for cell, reward, there in zip(objects.cell, objects.reward, state.there, strict=True):
            if there:
                colours[int(cell), 1 if reward > 0 else 0] = 80 + 175 * abs(float(reward))
        grid = colours.reshape(self.size, self.size, 3)
        return pictures.cells(grid, divmod(int(state.cell), self.size))


class Board(NamedTuple):
    walls: Bool[Array, " cells"]
    order: Int[Array, " cells"]
    """The start, then all other open cells in random order, then the walls."""
    open_cells: Int[Array, ""]


def _reachable(
    free: Bool[Array, " cells"], start: Int[Array, ""], size: int
) -> Bool[Array, " cells"]:
    free = free.reshape(size, size)

    def spread(_, reached: Bool[Array, "size size"]) -> Bool[Array, "size size"]:
        around = jnp.pad(reached, 1)
        near = around[:-2, 1:-1] | around[2:, 1:-1] | around[1:-1, :-2] | around[1:-1, 2:]
        return reached | (near & free)

    first = jnp.zeros(size**2, bool).at[start].set(True).reshape(size, size)
    return jax.lax.fori_loop(0, size**2, spread, first).ravel()
