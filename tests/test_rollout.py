"""Acting: what is written down is what happened, also at ends and time limits."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from etude import envs
from etude.acting.jax_source import JaxSource
from etude.core.players import Policy


def uniform(num_actions):
    return Policy(lambda seen: jnp.zeros((jax.tree.leaves(seen)[0].shape[0], num_actions)))


def unroll(spec, length, num_envs=3, seed=0):
    task = envs.make(spec)
    key = jax.random.key(seed)
    source, policy = JaxSource(task, num_envs), uniform(task.num_actions)
    run = jax.jit(lambda a, k: source.collect(policy, a, k, length))
    return task, run(source.reset(policy, key), key)


def test_shapes_are_time_major():
    _, (_, rollout, episodes) = unroll("catch:rows=5,columns=4", 7)
    assert rollout.observation.shape == (8, 3, 5, 4)
    assert rollout.behaviour_logits.shape == (8, 3, 3)
    for x in (rollout.action, rollout.reward, rollout.terminal, rollout.mask, episodes.ended):
        assert x.shape == (7, 3)


def test_after_a_terminal_comes_the_first_observation_of_the_next_episode():
    _, (_, rollout, episodes) = unroll("catch:rows=4,columns=5", 9)
    np.testing.assert_array_equal(rollout.terminal[:, 0], [False, False, True] * 3)
    assert not rollout.seam.any() and rollout.mask.all()
    for t in (3, 6, 9):
        assert rollout.observation[t, 0, 0].sum() == 1  # the pellet is in the top row
    np.testing.assert_array_equal(episodes.ended, rollout.terminal)
    np.testing.assert_array_equal(episodes.returns[2::3], rollout.reward[2::3])
    assert set(np.unique(episodes.lengths[2::3])) == {3}


def test_a_time_limit_leaves_a_seam():
    """Five steps, then the seam from the last observation to the next episode's first one."""
    _, (_, rollout, episodes) = unroll("gymnax/CartPole-v1:max_steps_in_episode=5", 12)
    seams = np.array([False] * 5 + [True] + [False] * 5 + [True])
    np.testing.assert_array_equal(rollout.seam[:, 0], seams)
    np.testing.assert_array_equal(rollout.mask[:, 0], ~seams)
    np.testing.assert_array_equal(rollout.reward[:, 0], np.where(seams, 0.0, 1.0))
    assert not rollout.terminal.any()
    np.testing.assert_array_equal(np.nonzero(episodes.ended[:, 0])[0], [4, 10])
    np.testing.assert_array_equal(episodes.returns[jnp.array([4, 10]), 0], [5.0, 5.0])
    np.testing.assert_array_equal(episodes.lengths[jnp.array([4, 10]), 0], [5, 5])
    # The cart moves on smoothly to the seam and starts afresh (|x| < 0.05) behind it.
    x = rollout.observation[:, 0]
    assert jnp.abs(x[5] - x[4]).max() < 0.5
    assert jnp.abs(x[6]).max() <= 0.05 and jnp.abs(x[5]).max() > 0.05


def test_the_last_observation_before_a_seam_is_the_environments_own():
    """Replays the actions by hand and compares with the environment's final observation."""
    task, (_, rollout, _) = unroll("gymnax/CartPole-v1:max_steps_in_episode=5", 6, num_envs=1)
    key = jax.random.key(0)
    _, state = jax.vmap(task.env.reset, in_axes=(0, None))(jax.random.split(key, 1), task.params)
    state = jax.tree.map(lambda x: x[0], state)
    for t in range(5):
        observation, state, *_ = task.env.step_env(key, state, rollout.action[t, 0], task.params)
        np.testing.assert_allclose(rollout.observation[t + 1, 0], observation, rtol=1e-4, atol=1e-6)


def test_a_rollout_goes_on_where_the_last_one_stopped():
    """Two rollouts of 4 equal one of 8 in which the same keys are used step by step."""
    task = envs.make("gymnax/CartPole-v1:max_steps_in_episode=3")
    source, policy = JaxSource(task, 2), uniform(2)
    actors = source.reset(policy, jax.random.key(0))
    first, a, _ = source.collect(policy, actors, jax.random.key(1), 4)
    _, b, _ = source.collect(policy, first, jax.random.key(2), 4)
    np.testing.assert_array_equal(a.observation[-1], b.observation[0])
    np.testing.assert_array_equal(a.seam[3], [True, True])
    assert not b.seam[:3].any() and b.seam[3].all()


def test_actions_follow_the_policy():
    task = envs.make("catch")
    logits = jnp.broadcast_to(jnp.log(jnp.array([0.7, 0.2, 0.1])), (64, 3))
    source, policy = JaxSource(task, 64), Policy(lambda observation: logits)
    actors = source.reset(policy, jax.random.key(0))
    _, rollout, _ = source.collect(policy, actors, jax.random.key(1), 64)
    share = jnp.bincount(rollout.action.ravel(), length=3) / rollout.action.size
    np.testing.assert_allclose(share, [0.7, 0.2, 0.1], atol=0.03)
    np.testing.assert_array_equal(rollout.behaviour_logits, logits[None].repeat(65, 0))


@pytest.mark.parametrize("gamma", [0.9])
def test_discount_is_zero_across_ends_and_seams(gamma):
    _, (_, rollout, _) = unroll("gymnax/CartPole-v1:max_steps_in_episode=5", 12)
    ends = rollout.terminal | rollout.seam
    np.testing.assert_array_equal(rollout.discount(gamma), jnp.where(ends, 0.0, jnp.float32(0.9)))


def test_episodes_started_only_where_needed_are_the_same():
    """Drawing tasks is costly; the environment's own `step` draws one each time."""
    task = envs.make("trials/krazy_world:episodes=2")
    source, policy = JaxSource(task, 6), uniform(task.num_actions)
    keys = jax.random.split(jax.random.key(3), 6)
    states = source.reset(policy, jax.random.key(0)).env_state
    one_by_one = jax.jit(jax.vmap(task.env.step, in_axes=(0, 0, 0, None)))
    together, ended = jax.jit(source._step_envs), 0
    for action in range(60):
        actions = jnp.full(6, action % 4)
        ours = together(keys, states, actions)
        theirs = one_by_one(keys, states, actions, task.params)
        for a, b in zip(*map(jax.tree.leaves, (ours[:5], theirs[:5])), strict=True):
            np.testing.assert_array_equal(a, b)
        states, ended = ours[1], ended + int(ours[3].sum())
    assert ended >= 6


def test_one_episode_and_then_seams():
    task = envs.make("catch:rows=4,columns=5")
    source, policy = JaxSource(task, 2, once=True), uniform(3)
    actors = source.reset(policy, jax.random.key(0))
    collect = jax.jit(lambda a: source.collect(policy, a, jax.random.key(1), 7))
    after, rollout, episodes = collect(actors)
    np.testing.assert_array_equal(rollout.terminal[:, 0], [False, False, True] + [False] * 4)
    np.testing.assert_array_equal(rollout.seam[:, 0], [False] * 3 + [True] * 4)
    np.testing.assert_array_equal(rollout.mask, ~rollout.seam)
    assert not rollout.reward[3:].any() and (np.abs(rollout.reward[2]) == 1).all()
    for t in range(4, 8):
        np.testing.assert_array_equal(rollout.observation[t], rollout.observation[3])
    np.testing.assert_array_equal(episodes.ended, rollout.terminal)
    np.testing.assert_array_equal(after.env_state.time, 3)


def test_a_single_episode_ends_at_its_time_limit():
    task = envs.make("gymnax/CartPole-v1:max_steps_in_episode=5")
    source, policy = JaxSource(task, 2, once=True), uniform(2)
    actors = source.reset(policy, jax.random.key(0))
    _, rollout, episodes = jax.jit(lambda a: source.collect(policy, a, jax.random.key(1), 8))(
        actors
    )
    np.testing.assert_array_equal(rollout.seam[:, 0], [False] * 5 + [True] * 3)
    assert not rollout.terminal.any()  # its end may be worth something
    np.testing.assert_array_equal(np.nonzero(episodes.ended[:, 0])[0], [4])
