"""Trials: what is seen, what is paid, and that a task lasts as long as its trial."""

import itertools
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from etude.acting.jax_source import JaxSource
from etude.core.players import Policy
from etude.envs import make
from etude.envs.trials import as_distribution
from etude.errors import UserError


def played(spec, length, num_envs=6, seed=0):
    task = make(spec)
    policy = Policy(lambda seen: jnp.zeros((num_envs, task.num_actions)))
    source, keys = JaxSource(task, num_envs), jax.random.split(jax.random.key(seed))
    actors = source.reset(policy, keys[0])
    return task, jax.jit(lambda a, k: source.collect(policy, a, k, length))(actors, keys[1])


def test_what_is_seen_comes_from_the_step_before_across_episodes_too():
    _, (_, rollout, episodes) = played("trials/bandit:arms=3,pulls=4,episodes=2", 8)
    seen = rollout.observation
    assert not seen.action[0].any() and not seen.reward[0].any() and not seen.ended[0].any()
    np.testing.assert_array_equal(seen.action[1:8], jax.nn.one_hot(rollout.action[:7], 3))
    np.testing.assert_array_equal(seen.reward[1:8], rollout.reward[:7])
    np.testing.assert_array_equal(np.flatnonzero(seen.ended[:8, 0]), [4])
    np.testing.assert_array_equal(np.flatnonzero(rollout.terminal[:, 0]), [7])
    np.testing.assert_array_equal(episodes.ended, rollout.terminal)
    np.testing.assert_allclose(episodes.returns[7], rollout.reward.sum(axis=0))
    assert not seen.action[8].any()  # a new trial knows nothing of the last


def test_explore_episodes_are_seen_but_not_paid():
    _, (_, rollout, _) = played("trials/bandit:arms=2,pulls=5,episodes=3,explore=2", 15, 20)
    assert not rollout.reward[:10].any() and rollout.reward[10:].any()
    shown = np.asarray(rollout.observation.reward)
    assert shown[1:10].any()
    np.testing.assert_array_equal(shown[11:15], rollout.reward[10:14])


def test_a_task_lasts_as_long_as_its_trial():
    task = make("trials/bandit:arms=4,pulls=2,episodes=3")
    observe, state = task.env.reset(jax.random.key(0), None)
    tasks = [state.task.probabilities]
    for i in range(12):
        _, state, *_ = task.env.step(jax.random.key(i), state, 0, None)
        tasks.append(state.task.probabilities)
    same = [bool((a == b).all()) for a, b in itertools.pairwise(tasks)]
    assert same == [True] * 5 + [False] + [True] * 5 + [False]
    assert observe.before.shape == observe.observation.shape


def test_an_episode_that_ends_early_makes_way_for_the_next():
    """In Krazy World some episodes end before the horizon; no step is lost by that."""
    task, (_, rollout, _) = played("trials/krazy_world:episodes=2", 50, 30)
    horizon = task.env.env.horizon
    first = np.argmax(np.asarray(rollout.observation.ended[1:]) > 0, axis=0) + 1
    assert first.min() < horizon and first.max() == horizon
    trial = np.argmax(np.asarray(rollout.terminal), axis=0) + 1
    assert (trial <= 2 * horizon).all() and (trial > first).all()


def test_pairs_are_products_of_what_was_seen_done_and_paid():
    _, (_, rollout, _) = played("trials/tabular_mdp:states=3,actions=2,episodes=2,pairs=true", 6)
    seen = jax.tree.map(lambda x: np.asarray(x[4, 1]), rollout.observation)
    there = np.outer(seen.before, seen.action).ravel()
    np.testing.assert_allclose(seen.pairs, np.concatenate([there, seen.reward * there]))
    assert there.sum() == 1


def test_expected_rewards_are_paid_where_the_task_knows_them():
    spec = "trials/bandit:arms=2,pulls=5,episodes=1,expected=true"
    _, (actors, rollout, _) = played(spec, 4)
    means = jnp.take_along_axis(actors.env_state.task.probabilities, rollout.action.T, axis=1).T
    np.testing.assert_allclose(rollout.reward, means)
    assert set(np.unique(rollout.observation.reward[1:])) <= {0.0, 1.0}


@pytest.mark.parametrize(
    "spec, words",
    [
        ("trials/catch", "distribution of tasks: it lacks `sample_task` and `horizon`"),
        ("trials/bandit:episodes=0", "1 or more episodes"),
        ("trials/bandit:explore=-1", "0 or more to explore, not 5 and -1"),
        ("trials/bandit:episodes", "'episodes' should have the form name=value"),
        ("trials/maze:expected=true", "is for tasks that tell the mean of each reward"),
        ("trial/bandit", "did you mean 'trials/bandit'"),
        ("trials/", "did you mean 'trials/"),
        ("trials/trials/bandit", "did you mean 'trials/bandit'"),
        ("trials/bandit:episodes=3,explore=3", "nothing would be paid"),
        ("trials/bandits", "did you mean"),
        ("trials/bandit:arm=3", "'trials/bandit' has no setting 'arm'; did you mean 'arms'"),
        ("trials/bandit:episods=3", "no setting 'episods'; did you mean 'episodes'"),
        ("trials/bandit:x=3", "its settings are: episodes, explore, pairs, expected, arms, pulls"),
    ],
)
def test_mistakes_get_a_sentence(spec, words):
    with pytest.raises(UserError, match=words):
        make(spec)


def test_what_a_distribution_of_tasks_lacks_is_named():
    env = SimpleNamespace(sample_task=None, reset_env=None, step_env=None)
    with pytest.raises(UserError, match=r"mine is one task.* lacks `horizon`\."):
        as_distribution(env, "mine")
