"""Krazy World (arXiv 1803.01118): a grid whose colours, moves and board change with every task."""

import dataclasses
from typing import Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, UInt8

from etude.envs import pictures
from etude.envs.base import Action, EnvState, TaskEnvironment, Transition

NORMAL, GOAL, ICE, DEATH, WALL, DOOR, KEY, TELEPORTER, ENERGY = range(9)
TILES = 9
COLOURS = pictures.rgb("343c4a 7ae282 96d6ff e24a4a 969ca6 aa7846 ffd65c c494ff ff943c")
"""Of the tiles, in pictures."""
DIRECTIONS = np.array([(-1, 0), (1, 0), (0, -1), (0, 1)])
"""The basic moves: up, down, left, right."""
LOCAL_PIXELS, GLOBAL_PIXELS = 12, 8
"""Of a cell's side in a picture: enough for a view to be convolved without being asked."""
REFILL = 8
"""What an energy tile gives."""


@dataclasses.dataclass(frozen=True)
class Level:
    size: int
    horizon: int
    """Steps in an episode."""
    tiles: dict[int, int]
    """How many of each kind there are; the others are normal."""
    energy: int = 0
    """At the start; 0 if there is no limit."""
    permute_actions: bool = False

    @property
    def cells(self) -> int:
        return self.size**2


_EASY = {GOAL: 3, ICE: 4, DEATH: 4}
_MEDIUM = {GOAL: 1, ICE: 5, DEATH: 5, TELEPORTER: 2, ENERGY: 2}
_HARD = {GOAL: 3, ICE: 10, DEATH: 15, WALL: 10, DOOR: 1, KEY: 1, ENERGY: 10}
LEVELS = {
    "easy": Level(size=5, horizon=25, tiles=_EASY),
    "medium": Level(size=7, horizon=50, tiles=_MEDIUM, energy=8),
    "hard": Level(size=10, horizon=100, tiles=_HARD, energy=12, permute_actions=True),
}


COUNTS = dict(
    goals=GOAL, ice=ICE, deaths=DEATH, walls=WALL, doors=DOOR, keys=KEY, teleporters=TELEPORTER,
    refills=ENERGY,
)  # fmt: skip
"""The settings that say how many tiles of a kind there are."""


def level_of(name: str, permute_actions: bool | None, settings: dict[str, int | None]) -> Level:
    """A level, with what is set otherwise."""
    if name not in LEVELS:
        raise ValueError(f"There is no level {name!r}, only {', '.join(LEVELS)}.")
    given = {k: v for k, v in settings.items() if v is not None}
    if wrong := [k for k, v in given.items() if v < 0]:
        raise ValueError(f"{wrong[0]} must be 0 or more, not {given[wrong[0]]}.")
    tiles = LEVELS[name].tiles | {COUNTS[k]: v for k, v in given.items() if k in COUNTS}
    plain: dict[str, int] = {k: v for k, v in given.items() if k not in COUNTS}
    level = dataclasses.replace(LEVELS[name], tiles={k: v for k, v in tiles.items() if v}, **plain)
    if permute_actions is not None:
        level = dataclasses.replace(level, permute_actions=permute_actions)
    _check(level)
    return level


def _check(level: Level) -> None:
    """Refuses what no board can be drawn of."""
    total = sum(level.tiles.values())
    if level.size < 2 or level.horizon < 1:
        raise ValueError("A board needs a size of at least 2, and an episode a horizon of 1.")
    if not level.tiles.get(GOAL):
        raise ValueError("A board needs at least one of goals.")
    if total >= level.cells:
        raise ValueError(
            f"A board of {level.size}×{level.size} cells has no room for {total} tiles and a start."
        )
    if level.tiles.get(TELEPORTER, 0) not in (0, 2):
        raise ValueError("There are 0 or 2 teleporters: one leads to the other.")
    if level.tiles.get(DOOR) and not level.tiles.get(KEY):
        raise ValueError("Doors need keys.")


class KrazyTask(eqx.Module):
    """A task: what the board is like, what its colours mean, and what the actions do."""

    board: Int[Array, " cells"]
    start: Int[Array, ""]
    colours: Int[Array, " tiles"]
    """The id that each kind of tile is shown by."""
    moves: Int[Array, "actions moves"]
    """The basic moves of each action, one after another; −1 for none."""
    landing: Int[Array, "cells directions key"]
    """Where a basic move ends, without the key and with it: all that the board says of moves."""


class KrazyState(EnvState):
    cell: Int[Array, ""]
    has_key: Bool[Array, ""]
    energy: Int[Array, ""]
    taken: Bool[Array, " cells"]
    """Goals, keys and energy that are gone; their tiles are normal now."""
    visited: Bool[Array, " tiles"]
    """Kinds of tiles entered so far in the episode."""
    goals: Int[Array, ""]
    """Reached so far."""
    dead: Bool[Array, ""]


class KrazyWorld(TaskEnvironment[KrazyState, KrazyTask]):
    """A grid of goals, ice, death and more, whose meaning each task sets anew: find out, then act.

    `level` is easy, medium or hard; `view` is local (the 3×3 around the agent) or global. Each goal
    pays 1 once. With `compound=2` or 3 there are four more actions, each of up to that many basic
    moves. `permute_colours=false` shows the same tiles alike in all tasks; `permute_actions` says
    whether the same actions lead elsewhere, as by default they do only on the hard level.
    `observe=pixels` shows an image instead, for a convolution: a square per cell in the colour of
    its id, white where the agent is; below, the energy. `size`, `horizon`, `energy`, and the
    numbers of `goals`, `ice`, `deaths`, `walls`, `doors`, `keys`, `teleporters` and `refills` are
    those of the level unless they are set.
    """

    def __init__(
        self,
        level: str = "easy",
        view: Literal["local", "global"] = "local",
        compound: int = 1,
        permute_colours: bool = True,
        permute_actions: bool | None = None,
        observe: Literal["symbols", "pixels"] = "symbols",
        size: int | None = None,
        horizon: int | None = None,
        energy: int | None = None,
        goals: int | None = None,
        ice: int | None = None,
        deaths: int | None = None,
        walls: int | None = None,
        doors: int | None = None,
        keys: int | None = None,
        teleporters: int | None = None,
        refills: int | None = None,
    ):
        if observe not in ("symbols", "pixels"):
            raise ValueError(f"What is observed are symbols or pixels, not {observe!r}.")
        if view not in ("local", "global"):
            raise ValueError(f"The view is local or global, not {view!r}.")
        if compound not in (1, 2, 3):
            raise ValueError(f"An action has up to 1, 2 or 3 basic moves, not {compound}.")
        settings = dict(size=size, horizon=horizon, energy=energy, goals=goals, ice=ice)
        settings |= dict(deaths=deaths, walls=walls, doors=doors, keys=keys)
        settings |= dict(teleporters=teleporters, refills=refills)
        self.level = level_of(level, permute_actions, settings)
        self.view, self.observe, self.compound = view, observe, compound
        self.horizon, self.num_actions = self.level.horizon, 4 if compound == 1 else 8
        self.permute_colours = permute_colours

    # --- Tasks ---

    def sample_task(self, key: PRNGKeyArray) -> KrazyTask:
        board_key, colour_key, move_key = jax.random.split(key, 3)
        drawn = draw_board(board_key, self.level)
        kinds = jnp.arange(TILES, dtype=jnp.int32)
        colours = jax.random.permutation(colour_key, kinds) if self.permute_colours else kinds
        moves = self._draw_moves(move_key)
        return KrazyTask(drawn.board, drawn.start, colours, moves, drawn.landing)

    def _draw_moves(self, key: PRNGKeyArray) -> Int[Array, "actions moves"]:
        """The four basic moves and, if wanted, four that put several together."""
        length_key, draw_key, order_key = jax.random.split(key, 3)
        basic = jnp.full((4, self.compound), -1).at[:, 0].set(jnp.arange(4))
        if self.compound > 1:
            drawn = jax.random.randint(draw_key, (4, self.compound), 0, 4)
            length = jax.random.randint(length_key, (4, 1), 2, self.compound + 1)
            more = jnp.where(jnp.arange(self.compound)[None] < length, drawn, -1)
            basic = jnp.concatenate([basic, more])
        if self.level.permute_actions:
            basic = jax.random.permutation(order_key, basic)
        return basic.astype(jnp.int32)

    # --- Episodes ---

    def reset_env(self, key: Array, params: KrazyTask) -> tuple[Array, KrazyState]:
        state = KrazyState(
            cell=params.start,
            has_key=jnp.zeros((), bool),
            energy=jnp.asarray(self.level.energy, jnp.int32),
            taken=jnp.zeros(self.level.cells, bool),
            visited=jnp.zeros(TILES, bool).at[NORMAL].set(True),
            goals=jnp.zeros((), jnp.int32),
            dead=jnp.zeros((), bool),
            time=jnp.zeros((), jnp.int32),
        )
        return self._observe(state, params), state

    def step_env(
        self, key: Array, state: KrazyState, action: Action, params: KrazyTask
    ) -> Transition[Array, KrazyState]:
        """An action costs one unit of energy, however far it leads; without any, nothing moves."""
        limited = self.level.energy > 0
        able = state.energy > 0 if limited else jnp.ones((), bool)
        reward = jnp.zeros(())
        after = eqx.tree_at(
            lambda s: (s.energy, s.time), state, (state.energy - (able & limited), state.time + 1)
        )
        for direction in params.moves[action]:
            after, gain = self._move(after, direction, able, params)
            reward = reward + gain
        return self._observe(after, params), after, reward, after.dead, {}

    def _move(
        self, state: KrazyState, direction: Int[Array, ""], able: Bool[Array, ""], params: KrazyTask
    ) -> tuple[KrazyState, Float[Array, ""]]:
        """One basic move, with what is found where it ends."""
        go = able & (direction >= 0) & ~state.dead
        cell = params.landing[state.cell, direction, state.has_key.astype(jnp.int32)]
        cell = jnp.where(go, cell, state.cell)
        moved = cell != state.cell
        tile = jnp.where(state.taken[cell], NORMAL, params.board[cell])
        fresh = moved & ~state.taken[cell]
        goal, key, energy = (fresh & (tile == kind) for kind in (GOAL, KEY, ENERGY))
        visited = state.visited | (moved & self._entered(state, direction, cell, params))
        after = KrazyState(
            cell=cell,
            has_key=state.has_key | key,
            energy=state.energy + REFILL * energy,
            taken=state.taken.at[cell].set(state.taken[cell] | goal | key | energy),
            visited=visited,
            goals=state.goals + goal,
            dead=state.dead | (moved & (tile == DEATH)),
            time=state.time,
        )
        return after, goal.astype(float)

    def _entered(
        self, state: KrazyState, direction: Int[Array, ""], cell: Int[Array, ""], params: KrazyTask
    ) -> Bool[Array, " tiles"]:
        """Kinds of the first tile of a move and of its last: between them there is only ice."""
        row, column = jnp.divmod(state.cell, self.level.size)
        first = jnp.stack([row, column]) + jnp.asarray(DIRECTIONS)[direction]
        first = jnp.clip(first[0] * self.level.size + first[1], 0, self.level.cells - 1)
        kinds = jnp.arange(TILES)
        return (kinds == params.board[first]) | (kinds == params.board[cell])

    def is_truncated(self, state: KrazyState, params: KrazyTask) -> Bool[Array, ""]:
        return state.time >= self.horizon

    # --- What is seen ---

    def _observe(self, state: KrazyState, params: KrazyTask) -> Array:
        shown = self._shown(state, params)
        if self.observe == "pixels":
            return self._picture(shown, state)
        return self._symbols(shown, state)

    def _shown(self, state: KrazyState, params: KrazyTask) -> Int[Array, "height width"]:
        """The ids of the tiles in view, −1 beyond the board's edge."""
        size = self.level.size
        shown = params.colours[jnp.where(state.taken, NORMAL, params.board)].reshape(size, size)
        if self.view == "local":
            around = jnp.pad(shown, 1, constant_values=-1)
            shown = jax.lax.dynamic_slice(around, jnp.divmod(state.cell, size), (3, 3))
        return shown

    def _symbols(
        self, shown: Int[Array, "height width"], state: KrazyState
    ) -> Float[Array, " inputs"]:
        """The tiles in view, one-hot by their ids, where the agent is and what energy it has."""
        row, column = jnp.divmod(state.cell, self.level.size)
        tiles = jax.nn.one_hot(shown.ravel(), TILES).ravel()
        energy = state.energy / max(1, self.level.energy)
        place = jnp.stack([row / self.level.size, column / self.level.size, energy])
        return jnp.concatenate([tiles, place])

    def _picture(
        self, shown: Int[Array, "height width"], state: KrazyState
    ) -> UInt8[Array, "rows columns 3"]:
        """The tiles in view as squares, and a strip as long as there is energy, up to that of the
        start."""
        local = self.view == "local"
        pixels = LOCAL_PIXELS if local else GLOBAL_PIXELS
        own = (1, 1) if local else jnp.divmod(state.cell, self.level.size)
        colours = jnp.concatenate([jnp.asarray(COLOURS), jnp.zeros((1, 3))]).astype(jnp.uint8)
        squares = jnp.repeat(jnp.repeat(colours[shown], pixels, axis=0), pixels, axis=1)
        inner = jnp.arange(pixels // 4, pixels - pixels // 4)
        rows, columns = (x * pixels + inner for x in own)
        squares = squares.at[rows[:, None], columns[None]].set(255)
        width = squares.shape[1]
        share = jnp.minimum(1.0, state.energy / max(1, self.level.energy))
        lit = (jnp.arange(width) < share * width).astype(jnp.uint8) * jnp.uint8(255)
        strip = jnp.broadcast_to(lit[None, :, None], (pixels, width, 3))
        return jnp.concatenate([squares, strip])

    def render(self, state: KrazyState, params: KrazyTask) -> np.ndarray:
        board = np.where(np.asarray(state.taken), NORMAL, np.asarray(params.board))
        cells = COLOURS[board].reshape(self.level.size, self.level.size, 3)
        return pictures.cells(cells, divmod(int(state.cell), self.level.size))


# --- Boards --------------------------------------------------------------------------------------


class Board(NamedTuple):
    board: Int[Array, " cells"]
    start: Int[Array, ""]
    landing: Int[Array, "cells directions key"]


def draw_board(key: PRNGKeyArray, level: Level) -> Board:
    """A board with exactly the level's tiles, on which some goal can be reached from the start
    with the energy there is at first. Boards without are thrown away."""

    def draw(key: PRNGKeyArray) -> Board:
        cells = jax.random.permutation(key, level.cells)
        kinds = np.repeat(list(level.tiles), list(level.tiles.values()))
        board = jnp.full(level.cells, NORMAL, jnp.int32)
        board = board.at[cells[1 : 1 + len(kinds)]].set(jnp.asarray(kinds, jnp.int32))
        return Board(board, cells[0].astype(jnp.int32), landings(board, level.size))

    def again(key: PRNGKeyArray) -> tuple[PRNGKeyArray, Board]:
        key, draw_key = jax.random.split(key)
        return key, draw(draw_key)

    def fails(carry: tuple[PRNGKeyArray, Board]) -> Bool[Array, ""]:
        reached = reachable(carry[1], level.energy or level.horizon)
        return ~jnp.any(reached & (carry[1].board == GOAL))

    return jax.lax.while_loop(fails, lambda carry: again(carry[0]), again(key))[1]


def landings(board: Int[Array, " cells"], size: int) -> Int[Array, "cells directions key"]:
    """Where each basic move from each cell ends: blocked by walls, edges and closed doors, carried
    on by ice in the same direction, and to the other one of a pair by a teleporter."""
    cells = board.shape[0]
    start = jnp.broadcast_to(jnp.arange(cells, dtype=jnp.int32)[:, None, None], (cells, 4, 2))
    step = jnp.asarray(DIRECTIONS, jnp.int32)
    has_key = jnp.array([False, True])[None, None]

    def one_on(cell):
        row, column = cell // size + step[None, :, 0, None], cell % size + step[None, :, 1, None]
        inside = (row >= 0) & (row < size) & (column >= 0) & (column < size)
        target = jnp.clip(row * size + column, 0, cells - 1)
        closed = (board[target] == WALL) | ((board[target] == DOOR) & ~has_key)
        return jnp.where(inside & ~closed, target, cell)

    def slide(_, cell):
        slides = (board[cell] == ICE) & (cell != start)
        return jnp.where(slides, one_on(cell), cell)

    end = jax.lax.fori_loop(0, size, slide, one_on(start))
    places = jnp.nonzero(board == TELEPORTER, size=2, fill_value=0)[0]
    other = jnp.where(end == places[0], places[1], places[0]).astype(jnp.int32)
    return jnp.where((board[end] == TELEPORTER) & (end != start), other, end)


def reachable(board: Board, steps: int) -> Bool[Array, " cells"]:
    """The cells that basic moves can lead to within so many steps, past doors whose key was
    fetched on the way."""
    cells = board.board.shape[0]
    key_there = (board.board == KEY)[board.landing]
    with_key = jnp.array([False, True])[None, None] | key_there
    after = board.landing * 2 + with_key  # a state is a cell, without the key or with it
    alive = (board.board != DEATH)[:, None, None]

    def spread(_, reached):
        sources = jnp.broadcast_to(reached.reshape(cells, 1, 2) & alive, after.shape)
        return reached.at[after.ravel()].max(sources.ravel())

    reached = jnp.zeros(2 * cells, bool).at[2 * board.start].set(True)
    return jax.lax.fori_loop(0, steps, spread, reached).reshape(cells, 2).any(axis=1)
