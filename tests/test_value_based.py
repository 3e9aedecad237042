"""Q(λ), Sarsa(λ) and ε-greedy acting, against numbers worked out by hand and plain loops."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from etude.api import train
from etude.core.agent import Agent
from etude.core.distributions import epsilon_greedy, log_prob
from etude.core.types import Rollout
from etude.errors import UserError
from etude.rules.frodo_q import FrodoQ
from etude.rules.value_based import QLearning, QLearningConfig, Sarsa, SarsaConfig, ValueState


class Values(Agent):
    """An agent whose action values are written down, by time and environment."""

    values: jax.Array

    def __init__(self, values):
        self.torso = self.frames = self.memory = self.head = self.model = None
        self.num_actions, self.acts_by, self.values = 2, "q", jnp.asarray(values, float)

    def unroll(self, rollout):
        return jnp.zeros(())

    def predict(self, embedding):
        return {"q": self.values}


def rollout_of(reward, action, terminal=(), seam=(), behaviour=None) -> Rollout:
    """One environment."""
    steps = len(reward)

    def marked(times):
        return jnp.zeros((steps, 1), bool).at[jnp.array(times, int)].set(True)

    logits = jnp.zeros((steps + 1, 1, 2)) if behaviour is None else jnp.asarray(behaviour)[:, None]
    return Rollout(
        observation=jnp.zeros((steps + 1, 1, 1)),
        action=jnp.asarray(action)[:, None],
        reward=jnp.asarray(reward, float)[:, None],
        terminal=marked(terminal),
        seam=marked(seam),
        behaviour_logits=logits,
        mask=~marked(seam),
    )


def targets_of(rule, values, rollout, target=None):
    agent, state = Values(np.asarray(values)[:, None]), ValueState(jnp.zeros((), jnp.int32), None)
    if target is not None:
        state = ValueState(state.updates, Values(np.asarray(target)[:, None]))
    return rule.targets(agent, state, rollout)[0][:, 0]


VALUES = [[1.0, 3.0], [2.0, 0.0], [5.0, 4.0], [1.0, 2.0]]
ACTIONS = [1, 0, 1]  # greedy, greedy, not greedy
REWARDS = [10.0, 20.0, 30.0]


@pytest.mark.parametrize(
    "settings, expected",
    [
        # G₂ = 30 + ½·2; after it an action that was not greedy: G₁ = 20 + ½·5; G₀ goes on.
        (dict(td_lambda=1.0), [10 + 0.5 * 22.5, 22.5, 31.0]),
        # Through it, G₁ = 20 + ½·(5 + (31 − 4)).
        (dict(td_lambda=1.0, cut=False), [10 + 0.5 * 36.0, 36.0, 31.0]),
        (dict(td_lambda=0.0), [10 + 0.5 * 2, 20 + 0.5 * 5, 31.0]),
        # G₀ = 10 + ½·(2 + ½·(22.5 − 2))
        (dict(td_lambda=0.5), [10 + 0.5 * (2 + 0.5 * 20.5), 22.5, 31.0]),
    ],
)
def test_q_learning_by_hand(settings, expected, x64):
    rule = QLearning(QLearningConfig(discount=0.5, target_decay=0.0, **settings))
    np.testing.assert_allclose(
        targets_of(rule, VALUES, rollout_of(REWARDS, ACTIONS)), expected, rtol=1e-12
    )


def test_double_q_learning_judges_by_the_target_network(x64):
    """The agent would go left, right, left; the target network says what that is worth."""
    target = [[0.0, 0.0], [7.0, 9.0], [1.0, 3.0], [4.0, 6.0]]
    rollout = rollout_of(REWARDS, ACTIONS)
    settings = dict(discount=0.5, td_lambda=0.0)
    double = targets_of(QLearning(QLearningConfig(**settings)), VALUES, rollout, target)
    np.testing.assert_allclose(double, [10 + 3.5, 20 + 0.5, 30 + 3.0], rtol=1e-12)
    plain = QLearning(QLearningConfig(double=False, **settings))
    greatest = targets_of(plain, VALUES, rollout, target)
    np.testing.assert_allclose(greatest, [10 + 4.5, 20 + 1.5, 30 + 3.0], rtol=1e-12)


def test_sarsa_by_hand(x64):
    """After the last transition no action is known: the mean under the policy that acted."""
    rollout = rollout_of(REWARDS, ACTIONS)
    one_step = targets_of(Sarsa(SarsaConfig(discount=0.5, td_lambda=0.0)), VALUES, rollout)
    np.testing.assert_allclose(one_step, [10 + 1.0, 20 + 2.0, 30 + 0.75], rtol=1e-12)
    all_rewards = targets_of(Sarsa(SarsaConfig(discount=0.5, td_lambda=1.0)), VALUES, rollout)
    np.testing.assert_allclose(all_rewards, [10 + 0.5 * 35.375, 35.375, 30.75], rtol=1e-12)
    mean = Sarsa(SarsaConfig(discount=0.5, td_lambda=0.0, expected=True))
    expected = [10 + 0.5, 20 + 0.5 * 4.5, 30.75]
    np.testing.assert_allclose(targets_of(mean, VALUES, rollout), expected, rtol=1e-12)


@pytest.mark.parametrize("rule", [QLearning(), Sarsa()])
def test_nothing_is_known_across_an_end_or_a_time_limit(rule, x64):
    """What follows an end, or a time limit's seam, changes no target before it."""
    ended = rollout_of(REWARDS, [1, 0, 0], terminal=[0], seam=[])
    cut = rollout_of(REWARDS, [1, 0, 0], seam=[1])
    other = np.array(VALUES)
    other[2:] += 100.0
    for rollout in (ended, cut):
        first = [targets_of(rule, values, rollout)[0] for values in (VALUES, other)]
        assert first[0] == first[1]
    assert targets_of(rule, VALUES, ended)[0] == REWARDS[0]
    bootstrapped = (targets_of(rule, VALUES, cut)[0] - REWARDS[0]) / 0.99
    np.testing.assert_allclose(bootstrapped, 2.0 if isinstance(rule, QLearning) else 1.0)


def test_epsilon_greedy_probabilities(x64):
    values = jnp.array([[1.0, 3.0, 2.0], [5.0, 5.0, 0.0]])
    got = jnp.exp(epsilon_greedy(values, 0.3))
    np.testing.assert_allclose(got, [[0.1, 0.8, 0.1], [0.45, 0.45, 0.1]], rtol=1e-12)
    # They are logits as well: their own softmax, so that importance ratios are right.
    chosen = log_prob(epsilon_greedy(values, 0.3), jnp.array([1, 2]))
    np.testing.assert_allclose(jnp.exp(chosen), [0.8, 0.1], rtol=1e-12)


def test_importance_ratios_of_epsilon_greedy_policies(x64):
    """Acted with ε = 0.5, judged with ε = 0.1."""
    values = jnp.array([[1.0, 3.0], [2.0, 0.0], [0.0, 0.0]])
    behaviour = epsilon_greedy(values, 0.5)
    rollout = rollout_of([0.0, 0.0], [1, 1], behaviour=behaviour)
    ratio = rollout.importance_ratio(epsilon_greedy(values, 0.1)[:-1, None])
    np.testing.assert_allclose(ratio[:, 0], [0.95 / 0.75, 0.05 / 0.25], rtol=1e-12)


def test_epsilon_falls_in_equal_steps_and_stays(x64):
    rule = QLearning(QLearningConfig(epsilon_start=0.9, epsilon_end=0.1, epsilon_updates=4))
    after = [rule.epsilon(ValueState(jnp.array(n), None)) for n in (0, 1, 4, 9)]
    np.testing.assert_allclose(after, [0.9, 0.7, 0.1, 0.1])
    np.testing.assert_allclose(rule.epsilon(None), 0.1)


@pytest.mark.parametrize("rule", ["q_learning", "sarsa", "frodo_q"])
def test_the_better_action_is_found(rule):
    settings = dict(batch=8, rollout=4, learning_rate=1e-2, torso=(16,), seed=3)
    settings |= dict(meta_learning_rate=1e-2, inner_updates=4) if rule == "frodo_q" else {}
    result = train(
        "tests.probes:MatchSign",
        f"{rule}:epsilon_updates=60,epsilon_end=0.02",
        steps=6400,
        **settings,
    )
    assert result.summary["final_return"]["mean"] > 0.9


def test_outer_losses_need_the_heads_that_they_look_at():
    with pytest.raises(UserError, match="needs agents with the head pi and value"):
        train("tests.probes:MatchSign", "frodo_q", outer="actor_critic", steps=100)
    assert FrodoQ(key=jax.random.key(0)).heads(3).acts_by == "q"
