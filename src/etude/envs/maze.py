"""Perfect mazes, seen through a window of 3×3 (arXiv 1803.01118)."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from etude.envs import pictures
from etude.envs.base import Action, EnvState, TaskEnvironment, Transition
from etude.envs.krazy_world import DIRECTIONS

WALL_PENALTY = 1e-3


class MazeTask(eqx.Module):
    walls: Bool[Array, "grid grid"]
    start: Int[Array, "2"]
    goal: Int[Array, "2"]


class MazeState(EnvState):
    place: Int[Array, "2"]
    action: Int[Array, ""]
    """The last one; −1 at the start of an episode."""
    reward: Float[Array, ""]


class Maze(TaskEnvironment[MazeState, MazeTask]):
    """Find the goal of a maze without loops; `size` is the side of the board, walls included.

    Rooms and walls alternate, so that an even `size` gets one more row and column of wall. An
    episode has `horizon` steps H (by default 10 · size) or ends at the goal, which pays 1 + 1/H; a
    step costs 1/H, and running into a wall 0.001. An observation says whether this is an episode's
    first step, the last reward, the last action, and where the 3×3 cells around are walls.
    """

    num_actions = 4

    def __init__(self, size: int = 10, horizon: int = 0):
        if size < 4:
            raise ValueError(f"The size of a maze must be at least 4, not {size}.")
        if horizon < 0:
            raise ValueError(f"The horizon of a maze must be at least 1, not {horizon}.")
        self.rooms = size // 2
        self.grid = 2 * self.rooms + 1
        self.horizon = horizon or 10 * size

    def sample_task(self, key: PRNGKeyArray) -> MazeTask:
        maze_key, place_key = jax.random.split(key)
        places = jax.random.choice(place_key, self.rooms**2, (2,), replace=False)
        start, goal = (2 * jnp.stack(jnp.divmod(p, self.rooms)) + 1 for p in places)
        return MazeTask(carve(maze_key, self.rooms), start, goal)

    def reset_env(self, key: Array, params: MazeTask) -> tuple[Array, MazeState]:
        time, action = jnp.zeros((), jnp.int32), jnp.asarray(-1, jnp.int32)
        state = MazeState(time, params.start, action, jnp.zeros(()))
        return self._observe(state, params), state

    def step_env(
        self, key: Array, state: MazeState, action: Action, params: MazeTask
    ) -> Transition[Array, MazeState]:
        target = state.place + jnp.asarray(DIRECTIONS)[action]
        blocked = params.walls[target[0], target[1]]
        place = jnp.where(blocked, state.place, target)
        at_goal = jnp.all(place == params.goal)
        step = 1.0 / self.horizon
        reward = jnp.where(at_goal, 1.0 + step, 0.0) - WALL_PENALTY * blocked - step
        state = MazeState(state.time + 1, place, jnp.asarray(action, jnp.int32), reward)
        return self._observe(state, params), state, reward, at_goal, {}

    def is_truncated(self, state: MazeState, params: MazeTask) -> Bool[Array, ""]:
        return state.time >= self.horizon

    def _observe(self, state: MazeState, params: MazeTask) -> Float[Array, "15"]:
        walls = jax.lax.dynamic_slice(params.walls, state.place - 1, (3, 3))
        last = jnp.stack([(state.action < 0).astype(float), state.reward])
        action = jax.nn.one_hot(state.action, 4)
        return jnp.concatenate([last, action, walls.ravel().astype(float)])

    def render(self, state: MazeState, params: MazeTask) -> np.ndarray:
        colours = np.where(np.asarray(params.walls)[..., None], (150, 156, 166), (30, 36, 48))
        colours = colours.astype(float)
        colours[tuple(np.asarray(params.goal))] = (122, 226, 130)
        row, column = np.asarray(state.place)
        return pictures.cells(colours, (int(row), int(column)))


def carve(key: PRNGKeyArray, rooms: int) -> Bool[Array, "grid grid"]:
    """The walls of a maze with exactly one way between any two rooms: from where it stands, a walk
    breaks through to a random room it has not seen, or goes back where there is none."""
    grid, steps = 2 * rooms + 1, 2 * rooms**2

    def step(carry, key):
        walls, seen, stack, depth = carry
        room = stack[depth]
        around = room[None] + jnp.asarray(DIRECTIONS)
        inside = jnp.all((around >= 0) & (around < rooms), axis=1)
        place = jnp.clip(around, 0, rooms - 1)
        free = inside & ~seen[place[:, 0], place[:, 1]]
        stuck = ~jnp.any(free)
        choice = jax.random.categorical(key, jnp.where(free, 0.0, -jnp.inf))
        target = jnp.where(stuck, room, place[choice])
        between = room + target + 1  # of rooms at 2r + 1, the cell in the middle
        walls = walls.at[between[0], between[1]].set(False)
        walls = walls.at[2 * target[0] + 1, 2 * target[1] + 1].set(False)
        seen = seen.at[target[0], target[1]].set(True)
        depth = jnp.maximum(0, jnp.where(stuck, depth - 1, depth + 1))
        # One entry at a time: a copy of the stack for each step would take days for large mazes.
        stack = stack.at[depth].set(jnp.where(stuck, stack[depth], target))
        return (walls, seen, stack, depth), None

    first_key, key = jax.random.split(key)
    first = jax.random.randint(first_key, (2,), 0, rooms)
    walls = jnp.ones((grid, grid), bool).at[2 * first[0] + 1, 2 * first[1] + 1].set(False)
    seen = jnp.zeros((rooms, rooms), bool).at[first[0], first[1]].set(True)
    stack = jnp.zeros((rooms**2, 2), first.dtype).at[0].set(first)
    start = (walls, seen, stack, jnp.zeros((), jnp.int32))
    return jax.lax.scan(step, start, jax.random.split(key, steps))[0][0]
