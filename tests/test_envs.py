"""Environments: Catch by hand, names and settings, mistakes."""

import textwrap

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from etude import envs
from etude.errors import UserError


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
        ("catch:rows", "There is no environment|no module"),
        ("catch:rows=", "form name=value"),
        ("gymnax/Pong", "did you mean 'gymnax/Pong-misc'"),
        ("gymnax/Pendulum-v1", "only discrete"),
        ("no_such_module:Env", "no module 'no_such_module'"),
        ("tests.probes:Nope", "has no class 'Nope'"),
        ("tests.probes:NotAnEnvironment", "cannot be made|not an environment"),
        ("os:sep", "not a class"),
        ("builtins:dict", "cannot be made"),
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


def test_every_listed_environment_with_discrete_actions_steps():
    made = 0
    for name in envs.available():
        try:
            task = envs.make(name)
        except UserError:
            continue  # continuous actions, or data to download
        made += 1
        assert task.num_actions >= 2
        assert all(
            jnp.issubdtype(x.dtype, jnp.number) or x.dtype == bool
            for x in jax.tree.leaves(task.observation)
        )
    assert made >= 15
