"""Environments: Catch by hand, names and settings, mistakes."""

import textwrap

import gymnax
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnax.environments import environment

from etude import envs, rules
from etude.core.observations import Symbols
from etude.envs import base, catalogue
from etude.envs.catch import Catch
from etude.errors import UserError
from etude.training.config import TrainRequest
from etude.training.iteration import Training
from etude.training.planning import plan_named
from etude.training.presets import resolve
from etude.training.run import TrainRun


def play_catch(env, column, actions):
    """The rewards and ends of an episode whose pellet starts in the given column."""
    params = env.default_params
    key = next(
        jax.random.key(i)
        for i in range(100)
        if int(env.reset(jax.random.key(i), params)[1].pellet_column) == column
    )
    observation, state = env.reset(key, params)
    assert observation.sum() == 2
    results = []
    for action in actions:
        observation, state, reward, terminated, truncated, _ = env.step(key, state, action, params)
        assert not truncated
        results.append((float(reward), bool(terminated)))
    return results


def test_catch_pays_at_the_bottom_only():
    env = envs.make("catch:rows=4,columns=5").env
    assert play_catch(env, 1, [0, 1, 1]) == [(0.0, False), (0.0, False), (1.0, True)]
    assert play_catch(env, 1, [1, 1, 1]) == [(0.0, False), (0.0, False), (-1.0, True)]
    assert play_catch(env, 4, [2, 2, 2]) == [(0.0, False), (0.0, False), (1.0, True)]


def test_the_paddle_stays_on_the_board():
    env = envs.make("catch:rows=5,columns=3").env
    assert play_catch(env, 0, [0, 0, 0, 0])[-1] == (1.0, True)


def test_catch_shows_pellet_and_paddle():
    task = envs.make("catch:rows=6,columns=11")
    observation, state = task.env.reset(jax.random.key(0), task.params)
    expected = np.zeros((6, 11))
    expected[0, int(state.pellet_column)] = 1
    expected[5, 5] = 1
    np.testing.assert_array_equal(observation, expected)
    assert task.env.render(state, task.params).shape[2] == 3


def steps_of(task, number, seed=0):
    """Rewards, ends and states of so many steps, action 0 throughout."""

    def step(state, key):
        _, after, reward, terminated, _, _ = task.env.step(key, state, 0, task.params)
        return after, (reward, terminated, after)

    _, state = task.env.reset(jax.random.key(seed), task.params)
    keys = jax.random.split(jax.random.key(seed), number)
    return jax.device_get(jax.lax.scan(step, state, keys)[1])


def test_the_walk_changes_its_left_end_and_its_values():
    task = envs.make("random_walk:period=500")
    rewards, ended, states = steps_of(task, 2000)
    phase = np.arange(2000) // 500 % 2
    assert set(rewards[~ended]) == {0.0}
    assert set(rewards[ended & (phase == 0)]) == {0.0, 1.0}
    assert set(rewards[ended & (phase == 1)]) == {-1.0, 1.0}
    np.testing.assert_array_equal(states.clock, np.arange(1, 2001))
    np.testing.assert_array_equal(states.place[ended], 3)
    values = [task.env.true_values(jnp.asarray(clock)) for clock in (499, 500)]
    np.testing.assert_allclose(values[0], np.arange(1, 6) / 6, rtol=1e-6)
    np.testing.assert_allclose(values[1], (2 * np.arange(1, 6) - 6) / 6, rtol=1e-6, atol=1e-7)


def test_the_walk_is_fair():
    _, ended, states = steps_of(envs.make("random_walk"), 20_000)
    assert states.place.min() == 1 and states.place.max() == 5
    assert np.diff(np.flatnonzero(ended)).mean() == pytest.approx(9.0, rel=0.05)  # 3 × 3 steps


def test_the_chain_alternates_noise_and_signal():
    task = envs.make("signal_chain")
    rewards, ended, _ = steps_of(task, 10_000)
    np.testing.assert_allclose(rewards[1::2], 0.1)
    assert abs(rewards[::2].mean()) < 0.05 and rewards[::2].std() == pytest.approx(1.0, rel=0.05)
    np.testing.assert_array_equal(np.flatnonzero(ended), np.arange(9, 10_000, 10))
    expected = [0.5, 0.5, 0.4, 0.4, 0.3, 0.3, 0.2, 0.2, 0.1, 0.1]
    np.testing.assert_allclose(task.env.true_values(), expected, rtol=1e-6)


def test_a_bandit_pays_by_its_arms():
    task = envs.make("bandit:arms=3,pulls=4")
    rewards, ended, _ = steps_of(task, 4000)
    assert rewards.mean() == pytest.approx(0.25, abs=0.03)
    np.testing.assert_array_equal(np.flatnonzero(ended), np.arange(3, 4000, 4))
    assert set(rewards) == {0.0, 1.0}


def ways_through(walls):
    """From each open cell of a maze to those beside it."""
    cells = {(int(r), int(c)) for r, c in np.argwhere(~walls)}
    return {(r, c): {(r + 1, c), (r - 1, c), (r, c + 1), (r, c - 1)} & cells for r, c in cells}


def distances(ways, start):
    found, front = {start: 0}, [start]
    for place in front:  # grows as it goes
        for near in ways[place] - found.keys():
            found[near] = found[place] + 1
            front.append(near)
    return found


@pytest.mark.parametrize("size", [10, 20])
def test_mazes_are_perfect_and_their_goals_in_reach(size):
    env = envs.make(f"maze:size={size}").env
    tasks = jax.jit(jax.vmap(env.sample_task))(jax.random.split(jax.random.key(1), 30))
    lengths = []
    for walls, start, goal in zip(*map(np.asarray, jax.tree.leaves(tasks)), strict=True):
        ways = ways_through(walls)
        far = distances(ways, tuple(start))
        assert len(far) == len(ways) == 2 * (size // 2) ** 2 - 1  # all connected, and
        assert sum(map(len, ways.values())) == 2 * (len(ways) - 1)  # no loop
        assert tuple(start) != tuple(goal)
        lengths.append(far[tuple(goal)])
    assert np.mean(np.array(lengths) <= env.horizon / 2) >= 0.9


def test_a_maze_pays_at_its_goal_and_shows_walls():
    task = envs.make("maze:size=4,horizon=10")
    walls = np.ones((5, 5), bool)
    walls[1, 1:4] = False  # ···
    walls[1:4, 3] = False  #   ·
    walls[3, 1:4] = False  # ···
    params = type(task.params)(jnp.asarray(walls), jnp.array([1, 1]), jnp.array([1, 3]))
    key = jax.random.key(0)
    observation, state = task.env.reset_env(key, params)
    np.testing.assert_allclose(observation, [1, 0, 0, 0, 0, 0, 1, 1, 1, 1, 0, 0, 1, 1, 1])
    observation, state, reward, ended, _ = task.env.step_env(key, state, 0, params)
    assert reward == pytest.approx(-0.1 - 1e-3) and not ended
    np.testing.assert_allclose(observation[:6], [0, -0.101, 1, 0, 0, 0], rtol=1e-5)
    _, state, reward, ended, _ = task.env.step_env(key, state, 3, params)
    assert reward == pytest.approx(-0.1) and not ended
    _, state, reward, ended, _ = task.env.step_env(key, state, 3, params)
    assert reward == pytest.approx(1.0) and ended


def test_a_random_mdp_follows_its_tables():
    task = envs.make("tabular_mdp:states=3,actions=2,horizon=5")
    sample = jax.vmap(task.env.sample_task)
    tasks = jax.device_get(sample(jax.random.split(jax.random.key(0), 3000)))
    np.testing.assert_allclose(tasks.transitions.sum(axis=-1), 1.0, rtol=1e-5)
    np.testing.assert_allclose(tasks.transitions.mean(axis=0), 1 / 3, atol=0.02)
    assert tasks.rewards.mean() == pytest.approx(1.0, abs=0.05)
    assert tasks.rewards.std() == pytest.approx(1.0, rel=0.05)
    rewards, ended, states = steps_of(task, 20_000)
    np.testing.assert_array_equal(np.flatnonzero(ended), np.arange(4, 20_000, 5))
    truth = jax.device_get(task.params)
    before = np.concatenate([[0], states.place[:-1]])
    for place in range(3):
        here, moved = before == place, (before == place) & ~ended
        assert rewards[here].mean() == pytest.approx(truth.rewards[place, 0], abs=0.05)
        shares = np.bincount(states.place[moved], minlength=3) / moved.sum()
        np.testing.assert_allclose(shares, truth.transitions[place, 0], atol=0.03)


@pytest.mark.parametrize(
    "spec",
    [
        *("catch", "bandit", "random_walk", "krazy_world", "maze", "tabular_mdp", "grid_world"),
        *("deep_sea", "any_catch"),
    ],
)
def test_our_environments_draw_themselves(spec):
    task = envs.make(spec)
    _, state = task.env.reset(jax.random.key(0), task.params)
    before = task.env.render(state, task.params)
    assert before.shape[2] == 3
    pictures = []
    for action in range(task.num_actions):
        _, after, *_ = task.env.step(jax.random.key(1), state, action, task.params)
        pictures.append(task.env.render(after, task.params))
    assert any((before != picture).any() for picture in pictures)


def test_gymnax_settings_reach_constructor_and_params():
    assert envs.make("gymnax/CartPole-v1:max_steps_in_episode=7").params.max_steps_in_episode == 7
    assert envs.make("gymnax/Breakout-MinAtar:use_minimal_action_set=false").num_actions == 6
    assert envs.make("gymnax/Breakout-MinAtar").observation.shape == (10, 10, 4)


def test_ones_own_environment_is_found_where_one_stands(tmp_path, monkeypatch):
    source = """
        from tests.probes import BestAction
        class Mine(BestAction):
            def __init__(self, actions=2):
                super().__init__()
                self.actions = actions
    """
    (tmp_path / "my_module.py").write_text(textwrap.dedent(source))
    monkeypatch.chdir(tmp_path)
    assert envs.make("my_module:Mine").num_actions == 2
    assert envs.make("my_module:Mine:actions=4").num_actions == 4


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("katch", "did you mean 'catch'"),
        ("catch:rows=1", "at least 2 rows"),
        ("catch:depth=3", "no setting 'depth'"),
        ("bandit:arms=0", "needs arms"),
        ("random_walk:period=0", "needs states and a period"),
        ("signal_chain:noise=-1", "cannot have length"),
        ("catch:rows", "form name=value"),
        ("catch:rows=", "form name=value"),
        ("catch:rows=5,rows=6", "rows is set twice"),
        ("gymnax/Pong", "did you mean 'gymnax/Pong-misc'"),
        ("gymnax/Pendulum-v1", "only discrete"),
        ("no_such_module:Env", "no module 'no_such_module'"),
        ("tests.probes:Nope", "has no class 'Nope'"),
        ("tests.probes:NotAnEnvironment", "cannot be made|not an environment"),
        ("os:sep", "not a class"),
        ("builtins:dict", "is not an environment"),
        ("catch:rows=4.5", "rows of 'catch' must be of type int"),
        ("catch:rows=a", "rows of 'catch' must be of type int"),
        ("catch:depth=3", "settings are: rows, columns, max_steps_in_episode"),
        ("tests.probes:NoActions", "cannot be reset and stepped"),
        ("tests.probes:NothingToSee", "has nothing to observe"),
        ("tests.probes:NoFinalObservation", "final_observation"),
        ("tests.probes:TwoRewards", "as scalars"),
    ],
)
def test_a_wrong_environment_gets_a_sentence(spec, words):
    with pytest.raises(UserError, match=words) as error:
        envs.make(spec)
    assert "\n" not in str(error.value)


def test_the_table_of_environments_says_what_they_are():
    for name, listed in envs.available().items():
        task = envs.make(name)
        assert hasattr(task.env, "sample_task") == (name in catalogue.TASKS)
        (observation,) = jax.tree.leaves(task.observation)
        assert (task.num_actions, observation.shape) == (listed.actions, listed.observation), name
        assert jnp.issubdtype(observation.dtype, jnp.number) or observation.dtype == bool


@pytest.mark.slow
def test_whatever_is_listed_can_be_trained():
    rule, small = rules.load("policy_gradient"), dict(torso=(4,), batch=2, rollout=3, steps=6)
    for name in envs.available():
        request = TrainRequest(env=name, rule="policy_gradient", **small)
        training = Training.create(envs.make(name), resolve(request, "policy_gradient"))
        # One program, for nearly all the time is compilation.
        play_and_learn = jax.jit(lambda key, t=training: t.iterate(rule, t.init(rule, key)))
        state, metrics = play_and_learn(jax.random.key(0))
        numbers = jax.tree.leaves((metrics, state.learner.agent))
        assert all(np.isfinite(x).all() for x in numbers), name
        assert float(metrics["gradient_norm"]) > 0.0 or envs.available()[name].actions == 1, name


def test_an_index_that_is_observed_is_a_symbol():
    for name, number in (("FrozenLake-misc", 16), ("FourRooms-misc", 12)):
        (seen,) = jax.tree.leaves(envs.make(f"gymnax/{name}").observation)
        assert isinstance(seen, Symbols) and seen.number == number
    for name in ("gymnax/CartPole-v1", "catch", "gymnax/Pong-misc"):
        (seen,) = jax.tree.leaves(envs.make(name).observation)
        assert not isinstance(seen, Symbols)


def test_what_is_known_not_to_learn_says_so_before():
    known = {*catalogue.HARD, *catalogue.FORGETFUL}
    assert known <= envs.available().keys()
    for env, memory, words in (
        ("maze:size=4", "none", "many places look the same, for which agents need --memory gru."),
        ("maze:size=4", "gru", None),
        ("random_walk", "none", "it has one action"),
        ("catch", "none", None),
    ):
        request = TrainRequest(env=env, rule="ppo", memory=memory)
        notes = TrainRun.untraced(plan_named(request).plan).notes()
        assert [words in x for x in notes] == ([] if words is None else [True])


def test_what_the_table_leaves_out_of_gymnax_cannot_be_played():
    left_out = set(gymnax.registered_envs) - set(catalogue.THEIRS)
    for name in left_out - {"MNISTBandit-bsuite"}:  # which downloads its data
        with pytest.raises(UserError):
            envs.make(f"gymnax/{name}")


class GymnaxCatch(environment.Environment):
    """Our Catch on gymnax's base."""

    def __init__(self):
        self.own = Catch(rows=4, columns=3)

    def reset_env(self, key, params):
        return self.own.reset_env(key, params)

    def step_env(self, key, state, action, params):
        return self.own.step_env(key, state, action, params)


@pytest.mark.parametrize("limit", [2, 4])  # episodes end after 3 steps
def test_our_base_of_environments_does_what_gymnax_does(limit):
    both, params = (Catch(rows=4, columns=3), GymnaxCatch()), base.EnvParams(limit)
    states = [env.reset(jax.random.key(0), params)[1] for env in both]
    for i in range(9):
        arguments = [(jax.random.key(i), state, i % 3, params) for state in states]
        after = [env.step(*a) for env, a in zip(both, arguments, strict=True)]
        assert jax.tree.structure(after[0]) == jax.tree.structure(after[1])
        jax.tree.map(np.testing.assert_array_equal, *after)
        states = [x[1] for x in after]
