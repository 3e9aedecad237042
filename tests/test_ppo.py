"""PPO: its losses against hand-computed numbers and plain NumPy loops, and what it learns."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from etude.api import train
from etude.core.agent import Agent, NetworkConfig
from etude.core.learner import Learner, Passes, descend, mean_loss, take_trajectories
from etude.core.moments import Moments
from etude.core.optim import make_optimiser
from etude.core.types import Rollout
from etude.rules.ppo import PPO, PPOConfig, PPOTargets


class Table(Agent):
    """An agent whose outputs are written down: logits and values by time and environment."""

    said: dict

    def __init__(self, logits, value):
        self.torso = self.frames = self.memory = self.head = self.model = None
        self.num_actions, self.acts_by = 2, "pi"
        self.said = {"pi": logits, "value": value[..., None]}

    def unroll(self, rollout):
        return jnp.zeros(())

    def predict(self, embedding):
        return self.said


def rollout_of(reward, terminal=None, seam=None, action=None, behaviour=None):
    reward = jnp.asarray(reward, float)
    none = jnp.zeros(reward.shape, bool)
    steps, batch = reward.shape
    seam = none if seam is None else jnp.asarray(seam)
    return Rollout(
        observation=jnp.zeros((steps + 1, batch, 1)),
        action=jnp.zeros((steps, batch), int) if action is None else jnp.asarray(action),
        reward=reward,
        terminal=none if terminal is None else jnp.asarray(terminal),
        seam=seam,
        behaviour_logits=jnp.zeros((steps + 1, batch, 2)) if behaviour is None else behaviour,
        mask=~seam,
    )


def test_the_loss_of_a_minibatch_by_hand(x64):
    """Two transitions: one whose ratio is clipped, one whose is not."""
    ratios = np.array([1.5, 0.9])
    probability = ratios * 0.5  # the policy that acted was uniform over two actions
    logits = np.log(np.stack([probability, 1 - probability], axis=-1))
    outputs = jnp.asarray(logits)[jnp.array([0, 1, 1]), None].repeat(2, 1)
    agent = Table(outputs, jnp.array([[0.5, 0.5], [1.0, 1.0], [0.0, 0.0]]))
    rollout = rollout_of(np.zeros((2, 2)))
    targets = PPOTargets(jnp.array([[2.0, 2.0], [-1.0, -1.0]]), jnp.ones((2, 2)), jnp.zeros((2, 2)))
    rule = PPO(PPOConfig(clip=0.2, entropy_cost=0.1, value_cost=0.5, normalise=False))
    loss, metrics = mean_loss(agent, rule, targets, rollout)
    gain = np.array([1.2 * 2.0, 0.9 * -1.0])  # min(1.5·2, 1.2·2) and min(0.9·−1, 0.9·−1)
    value = 0.5 * np.array([0.25, 0.0])
    entropy = -np.sum(np.exp(logits) * logits, axis=-1)
    np.testing.assert_allclose(loss, np.mean(-gain + 0.5 * value - 0.1 * entropy), rtol=1e-7)
    np.testing.assert_allclose(metrics["clipped"], 0.5)


def test_a_negative_advantage_is_not_clipped_from_below(x64):
    """Where the ratio has grown and the advantage is negative, all of the loss counts."""
    logits = jnp.log(jnp.array([0.75, 0.25]))
    agent = Table(jnp.broadcast_to(logits, (2, 1, 2)), jnp.zeros((2, 1)))
    targets = PPOTargets(jnp.array([[-2.0]]), jnp.zeros((1, 1)), jnp.zeros((1, 1)))
    rule = PPO(PPOConfig(entropy_cost=0.0, value_cost=0.0, normalise=False))
    loss, _ = mean_loss(agent, rule, targets, rollout_of([[0.0]]))
    np.testing.assert_allclose(loss, 1.5 * 2.0, rtol=1e-7)


def test_values_are_clipped_around_what_they_were(x64):
    rule = PPO(PPOConfig(value_clip=0.5, value_cost=1.0, entropy_cost=0.0, normalise=False))
    said, was, goal = 2.0, 1.0, 3.0
    agent = Table(jnp.zeros((2, 1, 2)), jnp.array([[said], [0.0]]))
    targets = PPOTargets(jnp.zeros((1, 1)), jnp.array([[goal]]), jnp.array([[was]]))
    loss, _ = mean_loss(agent, rule, targets, rollout_of([[0.0]]))
    np.testing.assert_allclose(loss, 0.5 * max((said - goal) ** 2, (was + 0.5 - goal) ** 2))


def test_advantages_are_standardised_within_the_minibatch(x64):
    """The policy's gradient does not change when advantages are shifted and scaled."""
    rule = PPO(PPOConfig(entropy_cost=0.0, value_cost=0.0))
    random = np.random.default_rng(0)
    agent = Table(jnp.asarray(random.normal(size=(4, 3, 2))), jnp.zeros((4, 3)))
    rollout = rollout_of(np.zeros((3, 3)), action=random.integers(2, size=(3, 3)))
    advantage, zeros = jnp.asarray(random.normal(size=(3, 3))), jnp.zeros((3, 3))

    def loss(x):
        return mean_loss(agent, rule, PPOTargets(x, zeros, zeros), rollout)[0]

    np.testing.assert_allclose(loss(advantage), loss(7.0 + 3.0 * advantage), rtol=1e-6)
    assert abs(loss(advantage) - loss(-advantage)) > 1e-3


def advantages_by_hand(values, reward, terminal, seam, gamma, lambda_):
    """GAE, one environment at a time, with ends, time limits and their seams."""
    steps, batch = reward.shape
    found = np.zeros((steps, batch))
    for b in range(batch):
        after = 0.0
        for t in reversed(range(steps)):
            if seam[t, b]:
                after = 0.0
                continue
            if t + 1 < steps and seam[t + 1, b]:
                after = 0.0
            follows = 0.0 if terminal[t, b] else gamma
            delta = reward[t, b] + follows * values[t + 1, b] - values[t, b]
            after = delta + follows * lambda_ * after
            found[t, b] = after
    return found


def test_targets_against_a_plain_loop(x64):
    random = np.random.default_rng(1)
    steps, batch = 9, 4
    reward = random.normal(size=(steps, batch))
    terminal = random.random((steps, batch)) < 0.2
    seam = np.zeros_like(terminal)
    seam[[3, 6], [0, 2]] = True
    terminal[[2, 3, 5, 6], [0, 0, 2, 2]] = False
    reward[seam] = 0.0
    values = random.normal(size=(steps + 1, batch))
    agent = Table(jnp.zeros((steps + 1, batch, 2)), jnp.asarray(values))
    rollout = rollout_of(reward, terminal, seam)
    rule = PPO(PPOConfig(discount=0.9, td_lambda=0.8, scale_values=False))
    targets, _ = rule.targets(agent, Moments.zero(), rollout)
    expected = advantages_by_hand(values, reward, terminal, seam, 0.9, 0.8)
    real = ~seam
    np.testing.assert_allclose(targets.advantage[real], expected[real], rtol=1e-10)
    np.testing.assert_allclose(targets.value[real], (expected + values[:-1])[real], rtol=1e-10)


def test_values_are_learned_in_units_of_the_returns(x64):
    """Whatever the scale of the rewards, the value head is asked for numbers of size one."""
    random = np.random.default_rng(2)
    rollout = rollout_of(1e4 * random.normal(size=(5, 8)))
    agent, rule = Table(jnp.zeros((6, 8, 2)), jnp.zeros((6, 8))), PPO()
    targets, state = rule.targets(agent, rule.init(agent), rollout)
    np.testing.assert_allclose(jnp.mean(targets.value), 0.0, atol=1e-6)
    np.testing.assert_allclose(jnp.std(targets.value), 1.0, rtol=1e-6)
    # A head that says what it was asked for then stands for the returns themselves.
    head = jnp.concatenate([targets.value, targets.value[-1:]])
    again, _ = rule.targets(Table(agent.said["pi"], head), state, rollout)
    assert jnp.max(jnp.abs(again.old_value - targets.value)) < 1e-12


def test_minibatches_are_descended_one_after_another(x64):
    """Two epochs of two minibatches, against the same four steps taken by hand."""
    random = np.random.default_rng(3)
    rule, optimiser = PPO(), make_optimiser("sgd", 0.1)
    agent = Agent(jnp.zeros(1), 2, rule.heads(2), NetworkConfig(torso=(3,)), key=jax.random.key(0))
    rollout = rollout_of(random.normal(size=(5, 4)), action=random.integers(2, size=(5, 4)))
    rollout = eqx.tree_at(
        lambda r: r.observation, rollout, jnp.asarray(random.normal(size=(6, 4, 1)))
    )
    learner = Learner.create(agent, rule, optimiser)
    key = jax.random.key(7)
    after, _ = Passes(epochs=2, minibatches=2).update(rule, optimiser, learner, rollout, key)
    targets, _ = rule.targets(agent, learner.rule_state, rollout)
    for epoch_key in jax.random.split(key, 2):
        for part in jax.random.permutation(epoch_key, 4).reshape(2, 2):
            aims, batch = (take_trajectories(x, part, 4) for x in (targets, rollout))
            assert batch.reward.shape == (5, 2)
            stepped, state, _ = descend(rule, optimiser, learner, aims, batch)
            learner = Learner(stepped, state, learner.rule_state)
    for a, b in zip(jax.tree.leaves(after.agent), jax.tree.leaves(learner.agent), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-14)


CATCH = dict(batch=16, rollout=16, learning_rate=3e-3, torso=(64,), log_every=10)


def test_ppo_learns_catch():
    result = train("catch:rows=5,columns=5", "ppo", steps=40_000, **CATCH)
    assert result.summary["final_return"]["mean"] > 0.9


@pytest.mark.parametrize("rule", ["actor_critic", "policy_gradient"])
def test_any_rule_may_go_over_a_batch_several_times(rule):
    settings = dict(steps=3000, batch=8, rollout=8, torso=(8,), log_every=5)
    result = train("catch:rows=4,columns=3", rule, epochs=2, minibatches=4, **settings)
    assert np.isfinite(result.summary["final_return"]["mean"])
