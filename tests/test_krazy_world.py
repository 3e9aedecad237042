"""Krazy World: each rule on a board drawn by hand, and what every drawn board must have."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from etude import envs
from etude.core.agent import Agent, Heads, NetworkConfig
from etude.envs import krazy_world
from etude.envs.krazy_world import LEVELS, TILES, Board, KrazyTask, KrazyWorld, landings, reachable

LETTERS = ".GIDWOKTE"
UP, DOWN, LEFT, RIGHT = range(4)


def board_of(text):
    """Kinds of tiles by their letters, row by row, and where the S is."""
    letters = "".join(text.split())
    size = round(len(letters) ** 0.5)
    kinds = jnp.array([0 if x == "S" else LETTERS.index(x) for x in letters], jnp.int32)
    start = jnp.asarray(letters.index("S"), jnp.int32)
    return Board(kinds, start, landings(kinds, size)), size


def world(text, **level):
    """An environment and a task with that board, plain colours and plain moves."""
    board, size = board_of(text)
    env = KrazyWorld()
    env.level = dataclasses.replace(LEVELS["easy"], size=size, **level)
    moves = jnp.arange(4, dtype=jnp.int32)[:, None]
    colours = jnp.arange(TILES, dtype=jnp.int32)
    return env, KrazyTask(board.board, board.start, colours, moves, board.landing)


def walk(env, task, actions):
    """The state after the actions, and the reward of each."""
    key = jax.random.key(0)
    _, state = env.reset_env(key, task)
    rewards = []
    for action in actions:
        _, state, reward, _, _ = env.step_env(key, state, jnp.asarray(action), task)
        rewards.append(float(reward))
    return state, rewards


def place(env, state):
    return divmod(int(state.cell), env.level.size)


def test_goals_pay_once_and_the_episode_goes_on():
    env, task = world("SG. ... ..G")
    state, rewards = walk(env, task, [RIGHT, RIGHT, LEFT, RIGHT, DOWN, DOWN])
    assert rewards == [1.0, 0.0, 0.0, 0.0, 0.0, 1.0]
    assert not state.dead


def test_ice_slides_on_until_something_stops_it():
    env, task = world("SII.. ..... ..... ..... .....", energy=5)
    state, _ = walk(env, task, [RIGHT])
    assert place(env, state) == (0, 3) and state.energy == 4  # past the ice, one step of energy
    state, _ = walk(env, task, [RIGHT, LEFT])
    assert place(env, state) == (0, 0)
    env, task = world("SIIW. ..... ..... ..... .....")
    assert place(env, walk(env, task, [RIGHT])[0]) == (0, 2)  # stopped by a wall, on the ice
    env, task = world("SIIII ..... ..... ..... .....")
    state, _ = walk(env, task, [RIGHT, DOWN])
    assert place(env, state) == (1, 4)  # stopped by the edge, then off it
    env, task = world("SID .I. ..G")
    state, _ = walk(env, task, [RIGHT])
    assert state.dead


def test_death_ends_the_episode():
    env, task = world("SD. ... ..G")
    key = jax.random.key(0)
    _, state = env.reset(key, task)
    _, after, reward, terminated, _, _ = env.step(key, state, RIGHT, task)
    assert terminated and reward == 0.0
    assert after.cell == task.start and not after.dead  # the next episode
    assert not env.step(key, state, DOWN, task)[3]


def test_walls_and_edges_do_not_yield():
    env, task = world("SW. W.. ..G")
    state, _ = walk(env, task, [RIGHT, DOWN, UP, LEFT])
    assert place(env, state) == (0, 0)
    assert set(np.flatnonzero(state.visited)) == {krazy_world.NORMAL}


def test_a_door_opens_with_its_key():
    env, task = world("KSO ..W ..W")
    state, _ = walk(env, task, [RIGHT])
    assert place(env, state) == (0, 1)
    state, _ = walk(env, task, [LEFT, RIGHT, RIGHT])
    assert place(env, state) == (0, 2) and state.has_key
    assert bool(state.taken[0])  # the key is gone from the board


def test_teleporters_lead_to_each_other():
    env, task = world("ST. ... T.G")
    state, rewards = walk(env, task, [RIGHT, RIGHT, RIGHT])
    assert place(env, state) == (2, 2) and rewards == [0.0, 0.0, 1.0]
    state, _ = walk(env, task, [DOWN, DOWN])
    assert place(env, state) == (0, 1)


def test_without_energy_nothing_moves():
    env, task = world("S..E. ..... ..... ..... .....", energy=4)
    state, _ = walk(env, task, [DOWN, UP, DOWN, UP, RIGHT])
    assert place(env, state) == (0, 0) and state.energy == 0
    state, _ = walk(env, task, [RIGHT, RIGHT, RIGHT])
    assert state.energy == 1 + krazy_world.REFILL
    state, _ = walk(env, task, [RIGHT, RIGHT, RIGHT, LEFT, RIGHT])
    assert state.energy == 1 + krazy_world.REFILL - 2  # an energy tile gives but once
    env, task = world("SG. ... ...")
    assert walk(env, task, [RIGHT] + [LEFT, RIGHT] * 30)[0].energy == 0  # no limit, no count


def test_actions_may_be_permuted_and_put_together():
    env, task = world("S.G ... ...", energy=5)
    swapped = eqx.tree_at(lambda t: t.moves, task, jnp.array([[RIGHT], [DOWN], [LEFT], [UP]]))
    assert place(env, walk(env, swapped, [UP])[0]) == (0, 1)
    double = eqx.tree_at(lambda t: t.moves, task, jnp.array([[RIGHT, RIGHT], [DOWN, -1]]))
    state, rewards = walk(env, double, [0, 1])
    assert place(env, state) == (1, 2) and rewards == [1.0, 0.0] and state.energy == 3


def kinds_entered(text, actions):
    state, _ = walk(*world(text), actions)
    return "".join(LETTERS[i] for i in np.flatnonzero(state.visited))


def test_the_kinds_of_tiles_entered_are_remembered():
    assert kinds_entered("SII.. ..... ..... ..... .....", [RIGHT]) == ".I"  # slid over
    assert kinds_entered("SIK.. ..... ..... ..... .....", [RIGHT]) == ".IK"
    assert kinds_entered("KSO ..W ..W", [RIGHT]) == "."  # closed
    assert kinds_entered("KSO ..W ..W", [LEFT, RIGHT, RIGHT]) == ".OK"
    assert kinds_entered("ST. ... T.G", [RIGHT]) == ".T"
    assert kinds_entered("SG. ED. ...", [RIGHT, LEFT, DOWN, RIGHT]) == ".GDE"


def test_nothing_happens_after_death_within_an_action():
    env, task = world("SDG ... ...")
    double = eqx.tree_at(lambda t: t.moves, task, jnp.array([[RIGHT, RIGHT]]))
    state, rewards = walk(env, double, [0])
    assert state.dead and rewards == [0.0] and place(env, state) == (0, 1)


def test_a_closed_door_stops_a_slide():
    env, task = world("KSIO. ..... ..... ..... .....")
    assert place(env, walk(env, task, [RIGHT])[0]) == (0, 2)
    assert place(env, walk(env, task, [LEFT, RIGHT, RIGHT])[0]) == (0, 3)


def test_an_action_costs_energy_even_if_nothing_moves():
    env, task = world("SW. ... ...", energy=3)
    assert walk(env, task, [RIGHT, UP])[0].energy == 1


def test_the_last_of_the_energy_may_fetch_more():
    env, task = world("SE. ... ...", energy=1)
    state, _ = walk(env, task, [RIGHT, RIGHT])
    assert place(env, state) == (0, 2) and state.energy == krazy_world.REFILL - 1


def test_the_order_of_the_actions_is_a_setting():
    def orders(**settings):
        env = KrazyWorld(**settings)
        tasks = jax.jit(jax.vmap(env.sample_task))(jax.random.split(jax.random.key(0), 200))
        return len(np.unique(np.asarray(tasks.moves)[..., 0], axis=0))

    assert orders(permute_actions=True) == 24 and orders(permute_actions=False) == 1


def test_what_is_seen_is_the_colour_of_tiles_in_view():
    env, task = world("SG. .D. ...")
    colours = jnp.array([3, 5, 0, 8, 1, 2, 4, 6, 7], jnp.int32)
    task = eqx.tree_at(lambda t: t.colours, task, colours)
    key = jax.random.key(0)
    observation, state = env.reset_env(key, task)
    tiles = np.asarray(observation[:-3]).reshape(3, 3, TILES)
    np.testing.assert_array_equal(tiles[0].sum(), 0)  # beyond the edge
    shown = np.argmax(tiles[1:, 1:], axis=-1)
    np.testing.assert_array_equal(shown, [[3, 5], [3, 8]])
    observation, *_ = env.step_env(key, state, jnp.asarray(RIGHT), task)
    tiles = np.asarray(observation[:-3]).reshape(3, 3, TILES)
    assert np.argmax(tiles[1, 1]) == 3  # the goal was taken: a normal tile
    np.testing.assert_allclose(observation[-3:], [0, 1 / 3, 0], rtol=1e-6)


def test_the_whole_board_can_be_seen():
    assert envs.make("krazy_world:view=global").observation.shape == (25 * TILES + 3,)
    env, task = world("SG. .D. I..", energy=8)
    env.view = "global"
    colours = jnp.array([3, 5, 0, 8, 1, 2, 4, 6, 7], jnp.int32)
    task = eqx.tree_at(lambda t: t.colours, task, colours)
    key = jax.random.key(0)
    observation, state = env.reset_env(key, task)

    def shown(observation):
        return np.argmax(np.asarray(observation[:-3]).reshape(9, TILES), axis=-1).tolist()

    assert shown(observation) == [3, 5, 3, 3, 8, 3, 0, 3, 3]
    np.testing.assert_allclose(observation[-3:], [0, 0, 1])
    observation, *_ = env.step_env(key, state, jnp.asarray(RIGHT), task)
    assert shown(observation) == [3, 3, 3, 3, 8, 3, 0, 3, 3]  # the goal is gone
    np.testing.assert_allclose(observation[-3:], [0, 1 / 3, 7 / 8], rtol=1e-6)


# From the paper's description of the three levels: tiles by kind, size, energy, permuted actions.
PUBLISHED = {
    "easy": (dict(G=3, I=4, D=4), 5, 0, False),
    "medium": (dict(G=1, I=5, D=5, T=2, E=2), 7, 8, False),
    "hard": (dict(G=3, I=10, D=15, W=10, O=1, K=1, E=10), 10, 12, True),
}


@pytest.mark.parametrize("name", LEVELS)
def test_levels_are_as_published(name):
    tiles, size, energy, permuted = PUBLISHED[name]
    env = KrazyWorld(level=name)
    task = jax.jit(env.sample_task)(jax.random.key(1))
    assert task.board.shape == (size**2,)
    found = {x: int((task.board == kind).sum()) for kind, x in enumerate(LETTERS) if kind}
    assert {x: number for x, number in found.items() if number} == tiles
    assert env.reset_env(jax.random.key(0), task)[1].energy == energy
    assert LEVELS[name].permute_actions == permuted


@pytest.mark.parametrize("name", LEVELS)
def test_every_board_has_its_tiles_and_a_goal_in_reach(name):
    env, level = KrazyWorld(level=name), LEVELS[name]
    tasks = jax.jit(jax.vmap(env.sample_task))(jax.random.split(jax.random.key(7), 200))
    boards = np.asarray(tasks.board)
    for kind, number in level.tiles.items():
        np.testing.assert_array_equal((boards == kind).sum(axis=1), number)
    assert (boards[np.arange(200), np.asarray(tasks.start)] == krazy_world.NORMAL).all()
    used = (boards != krazy_world.NORMAL).any(axis=0)
    assert used.all()  # the last row and column as well
    for i in range(30):
        task = jax.tree.map(lambda x, i=i: x[i], tasks)
        assert plain_search(task, level) <= (level.energy or level.horizon)
    colours = np.sort(np.asarray(tasks.colours), axis=1)
    np.testing.assert_array_equal(colours, np.broadcast_to(np.arange(TILES), (200, TILES)))
    assert len(np.unique(np.asarray(tasks.colours), axis=0)) > 100
    orders = len(np.unique(np.asarray(tasks.moves)[..., 0], axis=0))
    assert orders == (24 if level.permute_actions else 1)


def plain_move(board, place, step, has_key):
    """Where a basic move ends, by the rules, one tile at a time."""
    size, at = len(board), place
    pair = [(int(r), int(c)) for r, c in np.argwhere(board == krazy_world.TELEPORTER)]
    while True:
        to = (int(at[0] + step[0]), int(at[1] + step[1]))
        if not (0 <= to[0] < size and 0 <= to[1] < size):
            return at
        if board[to] == krazy_world.WALL or (board[to] == krazy_world.DOOR and not has_key):
            return at
        at = to
        if board[at] == krazy_world.TELEPORTER:
            return pair[1 - pair.index(at)]
        if board[at] != krazy_world.ICE:
            return at


def plain_search(task, level):
    """Steps to the nearest goal, by breadth-first search in plain Python."""
    board = np.asarray(task.board).reshape(level.size, level.size)
    start = (divmod(int(task.start), level.size), False)
    seen, front = {start}, [start]
    for steps in range(1, 200):
        later = []
        for place, has_key in front:
            for step in krazy_world.DIRECTIONS:
                at = plain_move(board, place, step, has_key)
                state = (at, has_key or board[at] == krazy_world.KEY)
                if board[at] == krazy_world.GOAL:
                    return steps
                if board[at] != krazy_world.DEATH and state not in seen:
                    seen.add(state)
                    later.append(state)
        front = later
    return np.inf


def test_reach_counts_steps_keys_and_deaths():
    def goal_within(text, steps):
        board, _ = board_of(text)
        return bool(jnp.any(reachable(board, steps) & (board.board == krazy_world.GOAL)))

    assert goal_within("S.G ... ...", 2) and not goal_within("S.G ... ...", 1)
    assert not goal_within("SDG DD. ...", 9)
    assert goal_within("SOG KW. .W.", 9) and not goal_within("SOG .W. .W.", 9)
    assert goal_within("SIT WWW TG.", 9)


@pytest.mark.parametrize("name", ["medium", "hard"])
def test_all_moves_of_a_drawn_board_agree_with_plain_python(name):
    env, size = KrazyWorld(level=name), LEVELS[name].size
    task = jax.jit(env.sample_task)(jax.random.key(3))
    board = np.asarray(task.board).reshape(size, size)
    for cell in range(size**2):
        for i, step in enumerate(krazy_world.DIRECTIONS):
            for has_key in (0, 1):
                row, column = plain_move(board, divmod(cell, size), step, has_key)
                assert task.landing[cell, i, has_key] == row * size + column


def test_compound_actions_come_beside_the_basic_moves():
    env = KrazyWorld(compound=3)
    moves = np.asarray(jax.jit(env.sample_task)(jax.random.key(3)).moves)
    assert moves.shape == (8, 3) and env.num_actions == 8
    np.testing.assert_array_equal(moves[:4], [[i, -1, -1] for i in range(4)])
    lengths = (moves[4:] >= 0).sum(axis=1)
    assert set(lengths) <= {2, 3}


# --- Settings and pictures ------------------------------------------------------------------------


def test_sizes_and_tiles_are_settings():
    env = KrazyWorld("hard", size=6, goals=2, walls=0, doors=0, keys=0, refills=1, horizon=40)
    task = jax.jit(env.sample_task)(jax.random.key(3))
    counts = np.bincount(np.asarray(task.board), minlength=TILES)
    assert counts.sum() == 36 and env.horizon == 40
    expected = dict(GOAL=2, ICE=10, DEATH=15, WALL=0, DOOR=0, KEY=0, TELEPORTER=0, ENERGY=1)
    assert {x: counts[getattr(krazy_world, x)] for x in expected} == expected
    assert KrazyWorld("hard").level == LEVELS["hard"]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (dict(goals=0), "at least one of goals"),
        (dict(size=3), "no room for 11 tiles"),
        (dict(teleporters=3), "0 or 2 teleporters"),
        (dict(doors=1), "Doors need keys"),
        (dict(ice=-1), "ice must be 0 or more"),
    ],
)
def test_boards_that_cannot_be_drawn_get_a_sentence(settings, words):
    with pytest.raises(ValueError, match=words):
        KrazyWorld(**settings)


def test_a_picture_shows_colours_the_agent_and_its_energy():
    env, task = world("SG. .D. ...", energy=8)
    env.observe = "pixels"
    colours = jnp.array([3, 5, 0, 8, 1, 2, 4, 6, 7], jnp.int32)
    task = eqx.tree_at(lambda t: t.colours, task, colours)
    palette = krazy_world.COLOURS.astype(np.uint8)
    key = jax.random.key(0)
    for view, side in (("local", 12), ("global", 8)):
        env.view = view
        picture, state = map(np.asarray, (env.reset_env(key, task)[0], 0))
        assert picture.dtype == np.uint8 and picture.shape == (4 * side, 3 * side, 3)
        corner = lambda row, column, x=picture, n=side: x[row * n, column * n]  # noqa: E731
        first = (1, 1) if view == "local" else (0, 0)
        if view == "local":
            assert not picture[:side].any()  # beyond the edge
        np.testing.assert_array_equal(corner(*first), palette[3])
        np.testing.assert_array_equal(corner(first[0], first[1] + 1), palette[5])
        np.testing.assert_array_equal(corner(first[0] + 1, first[1] + 1), palette[8])
        centre = [x * side + side // 2 for x in first]
        assert (picture[centre[0], centre[1]] == 255).all()
        assert (picture[-1] == 255).all()
        _, state = env.reset_env(key, task)
        picture = np.asarray(env.step_env(key, state, jnp.asarray(RIGHT), task)[0])
        assert (picture[-1, :, 0] == 255).mean() == pytest.approx(7 / 8, abs=0.03)


def test_pictures_are_convolved():
    task = envs.make("krazy_world:observe=pixels")
    heads, config = Heads({"pi": 4}), NetworkConfig(torso=(8,))
    agent = jax.eval_shape(lambda: Agent(task.observation, 4, heads, config, key=jax.random.key(0)))
    kernels = [x for x in jax.tree.leaves(agent) if x.ndim == 4]
    assert kernels
