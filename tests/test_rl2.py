"""RL² and E-RL²: what the policy sees, what it is paid for, and what a trial is."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from etude.adaptation.recurrent import RecurrentPolicy, Seen
from etude.adaptation.rl2 import (
    PPO,
    Baseline,
    Trials,
    play_trials,
    replay,
    trial_advantages,
)
from etude.core.distributions import log_prob
from etude.core.nn import GRU
from etude.envs import make
from etude.envs.bandit import Bandit, BanditParams


def trials_on(spec, episodes, number=6, **network):
    task = make(spec)
    policy = RecurrentPolicy(
        task.observation, task.num_actions, hidden=7, **network, key=jax.random.key(0)
    )
    # Heads that start near 0 would hide what the memory holds.
    policy = eqx.tree_at(lambda p: p.pi.w, policy, replace_fn=lambda w: 100.0 * w)
    tasks = jax.vmap(task.env.sample_task)(jax.random.split(jax.random.key(1), number))
    trials = jax.jit(lambda key: play_trials(task.env, policy, tasks, key, episodes))(
        jax.random.key(2)
    )
    return task.env, policy, trials


@pytest.mark.parametrize("network", [dict(cell="gru"), dict(cell="lstm"), dict(associative=True)])
def test_a_replay_of_trials_is_what_was_played(network):
    _, policy, trials = trials_on("krazy_world", 3, **network)
    logits, value = replay(policy, trials)
    mask = np.asarray(trials.mask)
    assert not mask.all()  # some died early
    again = log_prob(logits, trials.action)
    np.testing.assert_allclose(again[mask], trials.log_prob[mask], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(value[mask], trials.value[mask], rtol=1e-4, atol=1e-5)


def test_what_is_seen_comes_from_the_step_before():
    env, _, trials = trials_on("bandit:arms=3,pulls=4", 2)
    seen, horizon = trials.seen, env.horizon
    assert trials.mask.all() and trials.action.shape == (8, 6)
    np.testing.assert_array_equal(seen.action[0], -1)
    np.testing.assert_array_equal(seen.action[1:], trials.action[:-1])  # across episodes, too
    np.testing.assert_array_equal(seen.reward[1:], trials.reward[:-1])
    expected = np.zeros((8, 6), bool)
    expected[horizon] = True  # the first step of the second episode
    np.testing.assert_array_equal(seen.ended, expected)
    np.testing.assert_array_equal(trials.episode, np.repeat([0, 1], 4)[:, None].repeat(6, axis=1))
    totals = np.asarray(trials.reward).reshape(2, 4, 6).sum(axis=1)
    np.testing.assert_allclose(trials.returns(), totals.mean(axis=0))
    np.testing.assert_allclose(trials.returns(first=1), totals[1])


def test_an_end_before_the_horizon_is_seen_by_the_next_episode():
    env, _, trials = trials_on("krazy_world", 2, number=30)
    horizon = env.horizon
    lengths = np.asarray(trials.mask[:horizon]).sum(axis=0)
    assert lengths.min() < horizon
    last = np.asarray(trials.action)[lengths - 1, np.arange(30)]
    np.testing.assert_array_equal(trials.seen.action[horizon], last)
    np.testing.assert_array_equal(trials.seen.ended[horizon], True)


def hand_made(reward, value, mask, episode):
    column = lambda x, kind=float: jnp.asarray(x, kind)[:, None]  # noqa: E731
    observation = column(reward)[..., None]
    seen = Seen(observation, observation, column(episode, int), column(reward), column(mask, bool))
    return Trials(
        seen=seen,
        action=column(episode, jnp.int32),
        reward=column(reward),
        expected=column(reward),
        log_prob=column(reward),
        value=column(value),
        mask=column(mask, bool),
        episode=column(episode, int),
        last_state=(),
    )


def test_advantages_go_on_over_the_episodes_of_a_trial():
    trials = hand_made([1.0, 0.0, 2.0], [0.5, 9.0, 1.0], [True, False, True], [0, 0, 1])
    ours = trial_advantages(trials, trials.value, 0.5, 0.5)
    delta = [1.0 + 0.5 * 1.0 - 0.5, 2.0 - 1.0]  # the step that does not count takes no time
    expected = [delta[0] + 0.25 * delta[1], 0.0, delta[1]]
    np.testing.assert_allclose(ours[:, 0], expected)


def test_explore_rewards_do_not_reach_the_returns():
    trials = hand_made([5.0, 7.0, 2.0], [0.0, 0.0, 0.0], [True, True, True], [0, 0, 1])
    all_paid = trial_advantages(trials, trials.value, 1.0, 1.0)
    paid_late = trial_advantages(trials, trials.value, 1.0, 1.0, explore=1)
    np.testing.assert_allclose(all_paid[:, 0], [14.0, 9.0, 2.0])
    np.testing.assert_allclose(paid_late[:, 0], [2.0, 2.0, 2.0])


def test_a_baseline_by_hand():
    """The mean at each step over the trials that count there, and how far returns are from it."""
    returns = jnp.array([[1.0, 3.0], [5.0, 100.0], [7.0, 7.0]])
    mask = jnp.array([[True, True], [True, False], [False, False]])
    first = Baseline.zero(3).update(returns, mask)
    np.testing.assert_allclose(first.mean, [2.0, 5.0, 0.0])
    np.testing.assert_allclose(first.deviation, np.sqrt((1.0 + 1.0 + 0.0) / 3), rtol=1e-6)
    np.testing.assert_allclose(
        first.values(jnp.ones((3, 1)))[:, 0], first.mean + first.deviation, rtol=1e-6
    )
    second = first.update(returns + 4.0, mask)
    np.testing.assert_allclose(second.mean, [4.0, 7.0, 0.0])  # a plain average of two


def test_luck_is_not_learned_from():
    """The policy sees what a bandit paid; what it learns from is the mean of that."""
    env, _, trials = trials_on("bandit:arms=3,pulls=4", 2)
    assert set(np.unique(trials.reward)) == {0.0, 1.0}
    tasks = jax.vmap(env.sample_task)(jax.random.split(jax.random.key(1), 6))
    means = np.take_along_axis(np.asarray(tasks.probabilities).T, np.asarray(trials.action), 0)
    np.testing.assert_allclose(trials.expected, means, rtol=1e-6)
    _, _, trials = trials_on("krazy_world", 2)
    np.testing.assert_array_equal(trials.reward, trials.expected)


def test_each_episode_leaves_its_last_state():
    env, _, trials = trials_on("krazy_world", 2, number=30)
    played = np.asarray(trials.mask).reshape(2, env.horizon, 30).sum(axis=1)
    np.testing.assert_array_equal(trials.last_state.time, played)
    dead = np.asarray(trials.last_state.dead)
    assert dead[played < env.horizon].all() and not dead.all()
    totals = np.asarray(trials.reward).reshape(2, env.horizon, 30).sum(axis=1)
    np.testing.assert_array_equal(trials.last_state.goals, totals)


def test_explore_rewards_reach_the_forward_pass():
    _, policy, trials = trials_on("bandit:arms=3,pulls=4", 2)
    other = dataclasses.replace(
        trials, seen=trials.seen._replace(reward=trials.seen.reward.at[1].add(1.0))
    )
    before, after = replay(policy, trials)[0], replay(policy, other)[0]
    np.testing.assert_array_equal(before[0], after[0])
    assert (np.abs(before[1:] - after[1:]).max(axis=(1, 2)) > 1e-4).all()


def test_an_associative_policy_writes_and_reads_pairs():
    """Three places and two actions. A unit of the encoding can hold what action 1 paid in place 2,
    and nothing else; what is read from the state can depend on the place."""
    policy = RecurrentPolicy(jnp.zeros(3), 2, hidden=1, associative=True, key=jax.random.key(0))
    single = 3 + 3 + 2 + 1 + 1
    paid = policy.encoder.w.shape[0] - 6 + (2 * 2 + 1)  # the last six: pairs, times the reward
    assert policy.encoder.w.shape[0] == single + 2 * 6
    w = jnp.zeros_like(policy.encoder.w).at[paid].set(1.0)
    policy = eqx.tree_at(lambda p: p.encoder.w, policy, w)
    for place in range(3):
        for action in range(2):
            here = jax.nn.one_hot(place, 3)
            seen = Seen(jnp.ones(3), here, jnp.asarray(action), jnp.asarray(7.0), jnp.asarray(True))
            expected = 7.0 if (place, action) == (2, 1) else 0.0
            np.testing.assert_allclose(policy.inputs(seen), [expected])
    ones = jnp.ones_like(policy.gate.w)
    policy = eqx.tree_at(lambda p: (p.torso.w, p.gate.w), policy, (jnp.ones((2, 1)), ones))
    read = policy.heads(jnp.array([3.0]), jnp.array([2.0]))[0]
    np.testing.assert_allclose(read, (3.0 + 2.0) * 2.0 * policy.pi.w[0], rtol=1e-6)


def test_a_gru_by_hand():
    gru = GRU(1, 1, key=jax.random.key(0))
    w, b, u = np.array([0.3, -0.5, 0.7]), np.array([0.1, -0.2, 0.05]), np.array([0.8, 0.2, 1.5])
    parts = (jnp.asarray(w)[None], jnp.asarray(b), jnp.asarray(u)[None])
    gru = eqx.tree_at(lambda g: (g.inputs.w, g.inputs.b, g.recurrent), gru, parts)
    x, h = 0.6, -0.4
    update, reset = 1 / (1 + np.exp(-(x * w + b + h * u)[:2]))
    new = np.tanh(x * 0.7 + 0.05 + reset * (h * 1.5))
    ours = gru.advance(gru.input_gates(jnp.array([x])), jnp.array([h]))
    np.testing.assert_allclose(ours[0], (1 - update) * h + update * new, rtol=1e-6)


def test_a_policy_learns_to_find_the_arm_that_pays():
    """Two arms, one of which always pays: one pull tells which, so 5.5 of 6 can be had, and without
    memory 3."""
    env = Bandit(arms=2, pulls=6)
    optimiser, ppo = optax.adam(1e-2), PPO(entropy_cost=0.0)
    policy = RecurrentPolicy(jnp.zeros(1), 2, hidden=16, key=jax.random.key(0))

    def iterate(carry, key):
        policy, state = carry
        task_key, play_key, learn_key = jax.random.split(key, 3)
        good = jax.random.bernoulli(task_key, 0.5, (64,)).astype(float)
        tasks = jax.vmap(BanditParams)(jnp.stack([good, 1.0 - good], axis=-1))
        trials = play_trials(env, policy, tasks, play_key, 1)
        policy, state, _ = ppo.update(policy, optimiser, state, trials, learn_key)
        return (policy, state), jnp.mean(trials.returns())

    start = (policy, ppo.start(policy, optimiser, 6))
    earned = jax.jit(lambda keys: jax.lax.scan(iterate, start, keys)[1])(
        jax.random.split(jax.random.key(1), 60)
    )
    assert abs(float(earned[0]) - 3.0) < 0.5
    assert float(jnp.mean(earned[-5:])) > 5.2


def test_minibatches_are_equal():
    _, policy, trials = trials_on("bandit:arms=3,pulls=4", 2)
    optimiser = optax.sgd(0.1)
    with pytest.raises(ValueError, match="6 tasks do not make 4"):
        start = PPO().start(policy, optimiser, 8)
        PPO().update(policy, optimiser, start, trials, jax.random.key(0))
