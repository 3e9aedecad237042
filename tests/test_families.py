"""Families of environments: what a drawn task is worth, found by dynamic programming over what the
task says, is what the policy found that way earns in it."""

import itertools
from collections import deque

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from etude.acting.jax_source import JaxSource
from etude.adaptation.classics import best_policy
from etude.core.players import Policy
from etude.envs import make, make_jax
from etude.envs.any_catch import AnyCatch, CatchTask
from etude.envs.bandit import Bandit
from etude.envs.catch import Catch
from etude.envs.deep_sea import DeepSea
from etude.envs.delayed_chain import ChainTask, DelayedChain
from etude.envs.draws import whole_between
from etude.envs.grid_world import GridTask, GridWorld, Objects
from etude.envs.tabular_mdp import TabularMDP
from etude.errors import UserError


def drawn(env, number, seed=0):
    """Tasks, along the first axis."""
    return jax.jit(jax.vmap(env.sample_task))(jax.random.split(jax.random.key(seed), number))


def at(tree, i):
    return jax.tree.map(lambda x: x[i], tree)


def episodes_of(env, task, act, key, number=2000):
    """The return of each episode of a policy that acts on the environment's state."""

    def step(carry, key):
        state, going = carry
        _, after, reward, ended, _ = env.step_env(key, state, act(state), task)
        over = ended | env.is_truncated(after, task)
        return (after, going & ~over), jnp.where(going, reward, 0.0)

    def episode(key):
        start_key, key = jax.random.split(key)
        start = env.reset_env(start_key, task)[1], jnp.ones((), bool)
        return jnp.sum(jax.lax.scan(step, start, jax.random.split(key, env.horizon))[1])

    return jax.vmap(episode)(jax.random.split(key, number))


def earned(env, task, act, number=2000):
    play = jax.jit(lambda task, key: episodes_of(env, task, act, key, number))
    return np.asarray(play(task, jax.random.key(1)))


def assert_mean(returns, expected):
    """Within four standard errors."""
    error = returns.std() / np.sqrt(len(returns))
    assert abs(returns.mean() - expected) <= 4 * error + 1e-5, (returns.mean(), expected, error)


# --- Grid worlds ---------------------------------------------------------------------------------

SMALL = dict(size=4, smallest=3, objects=2, shortest=6, horizon=12)
MOVES = [(-1, 0), (1, 0), (0, -1), (0, 1)]


def ways(walls, size):
    """Where each move leads from each cell."""
    table = np.zeros((size**2, 4), int)
    for cell, (a, (down, right)) in itertools.product(range(size**2), enumerate(MOVES)):
        row, column = cell // size + down, cell % size + right
        blocked = not (0 <= row < size and 0 <= column < size) or walls[row * size + column]
        table[cell, a] = cell if blocked else row * size + column
    return table


def solved(task, size):
    """By backward induction, over cells and which objects are there: the value of an episode, and
    the best action at each step, in each cell, with each set of objects."""
    task = jax.device_get(task)
    objects, number = task.objects, len(task.objects.cell)
    sets = list(itertools.product([False, True], repeat=number))
    lead = ways(task.walls, size)
    value = np.zeros((size**2, 2**number))
    policy = np.zeros((SMALL["horizon"], size**2, 2**number), int)
    for time in reversed(range(int(task.limit))):
        worth = np.zeros((size**2, 2**number, 4))
        for cell, (s, there), a in itertools.product(range(size**2), enumerate(sets), range(4)):
            to = lead[cell, a]
            found = [there[i] and objects.cell[i] == to for i in range(number)]
            paid = sum(objects.reward[i] for i in range(number) if found[i])
            goes_on = 1.0 - sum(objects.ends[i] for i in range(number) if found[i])
            after = 0.0
            for t, then in enumerate(sets):
                chance = 1.0
                for i in range(number):
                    back = objects.returns[i] if objects.exists[i] and not there[i] else 0.0
                    share = float(not found[i]) if there[i] else back
                    chance *= share if then[i] else 1.0 - share
                after += chance * value[to, t]
            worth[cell, s, a] = paid + goes_on * after
        policy[time], value = worth.argmax(axis=-1), worth.max(axis=-1)
    first = sum(2 ** (number - 1 - i) for i in range(number) if objects.exists[i])
    return value[task.starts[: task.choices], first].mean(), jnp.asarray(policy)


@pytest.mark.parametrize("rewards", ["dense", "sparse"])
def test_a_drawn_grid_world_is_worth_what_its_best_policy_earns(rewards):
    env = GridWorld(**SMALL, rewards=rewards)
    tasks, values = drawn(env, 3), []
    weights = jnp.array([2, 1])

    @jax.jit
    def play(task, policy, key):
        act = lambda s: policy[s.time, s.cell, jnp.sum(weights * s.there)]  # noqa: E731
        return episodes_of(env, task, act, key)

    for i in range(3):
        value, policy = solved(at(tasks, i), 4)
        assert_mean(np.asarray(play(at(tasks, i), policy, jax.random.key(i))), value)
        values.append(value)
    if rewards == "dense":
        assert len(set(values)) == 3 and min(values) > 0
    else:
        assert set(values) == {1.0}  # on these, nothing bad is in the way of what is good


def reached(walls, size, start):
    lead, seen, front = ways(walls, size), {start}, deque([start])
    while front:
        for to in set(lead[front.popleft()]) - seen:
            seen.add(to)
            front.append(to)
    return seen


def test_what_a_grid_world_draws():
    env = GridWorld(size=6, smallest=3, objects=3, walls=0.6)
    tasks = jax.device_get(drawn(env, 200))
    objects = tasks.objects
    for i in range(200):
        task = at(tasks, i)
        open_cells = set(np.flatnonzero(~task.walls))
        starts = task.starts[: task.choices]
        assert reached(task.walls, 6, int(starts[0])) == open_cells
        placed = set(task.objects.cell)
        assert len(placed) == 3 and placed <= open_cells
        assert set(starts) <= open_cells - placed
        assert len(starts) in (1, len(open_cells) - 3)
    assert ((tasks.limit >= 20) & (tasks.limit <= 100)).all() and len(set(tasks.limit)) > 40
    sparse = objects.returns[:, 0] == 0
    assert 0.3 < sparse.mean() < 0.7
    assert (np.abs(objects.reward[sparse]) == 1).all() and (objects.ends[sparse] == 1).all()
    dense = at(objects, ~sparse)
    assert ((np.abs(dense.reward) >= 0.25) & (np.abs(dense.reward) <= 1)).all()
    assert ((dense.returns >= 0.02) & (dense.returns <= 0.5)).all()
    assert (dense.ends[dense.reward > 0] == 0).all() and (dense.ends <= 0.5).all()
    assert (objects.reward[:, 0] > 0).all() and (objects.reward[:, 1:] < 0).mean() > 0.4
    np.testing.assert_array_equal(np.bincount(objects.exists.sum(axis=1)) > 40, [0, 1, 1, 1])
    assert {bool(x) for x in (~tasks.walls).sum(axis=1) == 36} == {False, True}


def test_objects_of_a_grid_world_pay_go_and_come_back():
    """A board of ··a / ·#b with the start in its corner: a comes back at once, b ends it all."""
    env = GridWorld(size=3, smallest=2, objects=2)
    walls = jnp.array([0, 0, 0, 0, 1, 0, 1, 1, 1], bool)
    objects = Objects(
        jnp.array([2, 5]), jnp.array([0.5, -1.0]), jnp.array([0.0, 1.0]), jnp.array([1.0, 0.0]),
        jnp.array([True, True]),
    )  # fmt: skip
    task = GridTask(walls, objects, jnp.zeros(3, jnp.int32), jnp.asarray(1), jnp.asarray(30))
    seen, state = env.reset_env(jax.random.key(0), task)
    assert seen.shape == (3, 3, 4) and seen.sum() == 1 + 4 + 2
    assert seen[0, 0, 0] == seen[0, 2, 2] == seen[1, 2, 3] == 1
    found = []
    for action in (0, 3, 3, 0, 0, 1):  # up is a wall; right, right: a; up: stay; stay; down: b
        seen, state, reward, ended, _ = env.step_env(jax.random.key(1), state, action, task)
        found.append((int(state.cell), float(reward), bool(ended), state.there.tolist()))
    assert found == [
        (0, 0.0, False, [True, True]),
        (1, 0.0, False, [True, True]),
        (2, 0.5, False, [False, True]),
        (2, 0.0, False, [True, True]),
        (2, 0.5, False, [False, True]),
        (5, -1.0, True, [True, False]),
    ]
    _, state, *_ = env.step_env(jax.random.key(1), state, 2, task)
    assert state.cell == 5  # the wall in the middle


def test_each_grid_world_has_its_own_time_limit_wherever_it_is_played():
    spec = "grid_world:size=3,smallest=3,objects=1,shortest=3,horizon=9,rewards=dense"
    limit = int(make_jax(spec).params.limit)
    policy = Policy(lambda seen: jnp.zeros((2, 4)))

    def played(name, once):
        source = JaxSource(make_jax(name), 2, once=once)

        def play(key):
            return source.collect(policy, source.reset(policy, key), key, 9)

        return jax.jit(play)(jax.random.key(3))

    _, rollout, episodes = played(spec, once=True)
    np.testing.assert_array_equal(np.argwhere(episodes.ended), [[limit - 1, 0], [limit - 1, 1]])
    assert (
        not rollout.terminal.any() and rollout.seam[limit:].all() and not rollout.seam[:limit].any()
    )
    actors, rollout, _ = played(f"trials/{spec},episodes=9", once=False)
    for i, of_task in enumerate(np.asarray(actors.env_state.task.limit)):
        first = np.flatnonzero(rollout.observation.ended[:, i])[0]
        assert first == of_task


# --- Deep seas, chains, Catch --------------------------------------------------------------------


def test_a_deep_sea_pays_for_the_one_way_to_the_right():
    env = DeepSea(size=6, shallowest=3)
    tasks = drawn(env, 60)
    assert set(np.asarray(tasks.depth)) == {3, 4, 5, 6}
    assert 0.4 < tasks.mirrored.mean() < 0.6
    right = lambda s, task: 1 - task.mirrored[s.time, s.column].astype(int)  # noqa: E731
    ways = {
        "right": right,
        "left": lambda s, task: 1 - right(s, task),
        "late": lambda s, task: jnp.where(s.time < 1, 1 - right(s, task), right(s, task)),
    }

    @jax.jit
    def play(task):
        key = jax.random.key(0)
        return {
            name: episodes_of(env, task, lambda s, act=act: act(s, task), key, 1)[0]
            for name, act in ways.items()
        }

    for i in range(4):
        task = at(tasks, i)
        found, depth = jax.device_get(play(task)), int(task.depth)
        expected = {"right": 0.99, "left": 0.0, "late": -0.01 * (depth - 1) / depth}
        assert found == pytest.approx(expected, rel=1e-5)
    plain = drawn(DeepSea(size=6, mirrored=False), 5)
    assert not plain.mirrored.any()


def test_a_delayed_chain_pays_for_one_step_later():
    env = DelayedChain(length=6, actions=3, distractors=2)
    task = ChainTask(*map(jnp.asarray, (5, 1, 2, 2, 0.0)))
    key = jax.random.key(0)
    for choice, paid in ((2, 1.0), (0, -1.0)):
        seen, state = env.reset_env(key, task)
        rewards, ends, shown = [], [], []
        for action in (0, choice, 1, 0, 2):
            seen, state, reward, ended, info = env.step_env(key, state, action, task)
            assert float(reward) == float(info["expected_reward"])
            rewards.append(float(reward))
            ends.append(bool(ended))
            shown.append(np.asarray(seen[:9]).tolist())
        assert rewards == [0, 0, 0, paid, 0] and ends == [False] * 4 + [True]
        chosen = np.eye(3)[choice].tolist()
        assert shown[0] == [0, 1, 0, 0, 0, 0, 0, 0, 0]
        assert shown[3] == [0, 0, 0, 0, 1, 0, *chosen] and seen.shape == (11,)


def test_what_a_delayed_chain_draws_and_what_it_is_worth():
    env = DelayedChain(length=12, shortest=3, delay=5, noise=0.8)
    tasks = jax.device_get(drawn(env, 400))
    assert set(tasks.length) == set(range(3, 13)) and set(tasks.delay) == set(range(6))
    assert (tasks.decides + tasks.delay < tasks.length).all() and set(tasks.best) == {0, 1}
    assert tasks.noise.min() < 0.05 and 0.75 < tasks.noise.max() <= 0.8
    task = at(drawn(env, 1, seed=3), 0)
    for act, worth in ((lambda s: task.best, 1.0), (lambda s: 1 - task.best, -1.0)):
        returns = earned(env, task, act)
        assert_mean(returns, worth)
        expected = float(task.noise) * np.sqrt(float(task.length))
        assert returns.std() == pytest.approx(expected, rel=0.1)
    assert not drawn(DelayedChain(noise=0.0), 3).noise.any()


def test_catch_of_any_size_is_catch_in_the_corner_of_a_frame():
    env, plain = AnyCatch(rows=6, columns=7), Catch(rows=4, columns=5)
    task, key = CatchTask(jnp.asarray(4), jnp.asarray(5)), jax.random.key(2)
    seen, state = env.reset_env(key, task)
    expected, twin = plain.reset_env(key, plain.default_params)
    for action in (2, 0, 0):
        np.testing.assert_array_equal(seen[:4, :5], expected)
        assert seen.sum() == expected.sum()
        seen, state, reward, ended, _ = env.step_env(key, state, action, task)
        expected, twin, *same, _ = plain.step_env(key, twin, action, plain.default_params)
        assert [reward, ended] == same
    tasks = drawn(env, 300)
    sizes = {*zip(np.asarray(tasks.rows).tolist(), np.asarray(tasks.columns).tolist(), strict=True)}
    assert sizes == set(itertools.product(range(3, 7), range(3, 8)))


def test_the_best_one_can_do_in_catch_depends_on_its_size():
    env = AnyCatch(rows=6, columns=9)
    chase = lambda s: 1 + jnp.sign(s.pellet_column - s.paddle)  # noqa: E731
    play = jax.jit(lambda task, key: episodes_of(env, task, chase, key))
    for rows, columns in ((3, 9), (6, 9), (4, 7), (3, 8)):
        task = CatchTask(jnp.asarray(rows), jnp.asarray(columns))
        far = np.abs(np.arange(columns) - columns // 2)
        worth = np.where(far <= rows - 1, 1.0, -1.0).mean()
        assert_mean(np.asarray(play(task, jax.random.key(0))), worth)


# --- MDPs and bandits ----------------------------------------------------------------------------


def test_an_mdp_may_draw_its_scale_and_its_length():
    env, key = TabularMDP(states=4, actions=2, horizon=9, shortest=3, scale=10.0), jax.random.key(5)
    tasks = drawn(env, 400)
    assert set(np.asarray(tasks.limit)) == set(range(3, 10))
    assert 0.1 <= tasks.scale.min() < 0.15 and 7 < tasks.scale.max() <= 10.0
    task, plain = env.sample_task(key), TabularMDP(states=4, actions=2).sample_task(key)
    assert plain.scale is None and plain.limit is None
    np.testing.assert_array_equal(task.rewards, plain.rewards)
    np.testing.assert_array_equal(task.transitions, plain.transitions)

    assert task.limit is not None and task.scale is not None
    limit = int(task.limit)
    policy = jnp.zeros((9, 4), int).at[:limit].set(best_policy(task, limit))
    value = np.zeros(4)
    for _ in range(limit):
        value = (np.asarray(task.rewards) + np.asarray(task.transitions) @ value).max(axis=1)
    returns = earned(env, task, lambda s: policy[s.time, s.place])
    assert_mean(returns, float(task.scale) * value[0])


def test_a_bandit_may_draw_its_scale_and_its_pulls():
    env, key = Bandit(arms=3, pulls=8, shortest=2, scale=4.0), jax.random.key(1)
    tasks = drawn(env, 300)
    assert set(np.asarray(tasks.limit)) == set(range(2, 9))
    assert 0.25 <= tasks.pays.min() < 0.3 and 3.5 < tasks.pays.max() <= 4.0
    task = env.sample_task(key)
    np.testing.assert_array_equal(task.probabilities, Bandit(arms=3).sample_task(key).probabilities)
    assert task.limit is not None and task.pays is not None
    best = int(jnp.argmax(task.probabilities))
    worth = float(task.pays * task.limit * task.probabilities[best])
    assert_mean(earned(env, task, lambda s: best), worth)
    assert jax.tree.structure(env.default_params) == jax.tree.structure(task)


def test_whole_numbers_are_drawn_by_their_ratio():
    keys = jax.random.split(jax.random.key(0), 4000)
    found = np.asarray(jax.vmap(lambda key: whole_between(key, 1, 7))(keys))
    assert set(found) == set(range(1, 8))
    assert np.mean(found == 1) == pytest.approx(np.log(2) / np.log(8), abs=0.03)


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("grid_world:smallest=9", "sides from 2 to 7, not from 9"),
        ("grid_world:smallest=2,objects=4", "room for 1 to 3 objects"),
        ("grid_world:walls=1.0", "share of walls"),
        ("grid_world:shortest=0", "from 1 to 100 steps"),
        ("grid_world:rewards=many", "mixed, dense or sparse"),
        ("deep_sea:shallowest=11", "is 1 to 10 deep"),
        ("delayed_chain:shortest=0", "has 1 to 20 steps"),
        ("delayed_chain:actions=1", "2 or more actions"),
        ("any_catch:rows=4,smallest=5", "sides from 2 to 4"),
        ("tabular_mdp:shortest=11", "drawn from 1 up to 10"),
        ("bandit:scale=0.5", "scale of rewards is 1 or more"),
    ],
)
def test_a_family_that_makes_no_sense_gets_a_sentence(spec, words):
    with pytest.raises(UserError, match=words):
        make(spec)
