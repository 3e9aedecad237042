"""MAML and E-MAML against the exact gradient, by enumerating all that can happen in a small MDP."""

import dataclasses
import itertools

import equinox as eqx
import jax
import jax.flatten_util
import jax.numpy as jnp
import numpy as np
import pytest

from etude.adaptation.config import AdaptConfig
from etude.adaptation.maml import Adaptation, Lesson, Start
from etude.adaptation.run import AdaptRun
from etude.core.agent import Agent, Heads, NetworkConfig
from etude.core.distributions import log_prob
from etude.core.learner import mean_loss
from etude.core.returns import gae
from etude.core.types import Rollout
from etude.meta.gradient import meta_gradient, record
from etude.rules.linear_baseline import linear_values
from etude.rules.policy_gradient import (
    PolicyGradient,
    PolicyGradientConfig,
    PolicyGradientTargets,
)
from tests.conftest import random_like

TRANSITIONS = np.array([[[0.7, 0.3], [0.2, 0.8]], [[0.5, 0.5], [0.9, 0.1]]])
REWARDS = np.array([[1.0, -0.5], [0.3, 2.0]])
STEPS, RATE = 2, 0.4

pytestmark = pytest.mark.usefixtures("x64")


def make_agent():
    def agent():
        heads, network = Heads(state={"pi": 2}), NetworkConfig(torso=(4, 3))
        return Agent(jnp.zeros(2), 2, heads, network, key=jax.random.key(0))

    return random_like(agent)


def make_rollout(observation, action, reward, seam=None):
    """Whole episodes, one per trajectory; `observation` lacks the last, which nobody looks at."""
    steps, batch = action.shape
    seam = jnp.zeros(action.shape, bool) if seam is None else seam
    after = jnp.concatenate([seam[1:], jnp.ones_like(seam[:1])])
    return Rollout(
        observation=jnp.concatenate([observation, observation[-1:]]),
        action=action,
        reward=reward,
        terminal=after & ~seam,
        seam=seam,
        behaviour_logits=jnp.zeros((steps + 1, batch, 2)),
        mask=~seam,
    )


def trajectories():
    """All of them, of two steps from state 0: each an axis of its own before time, and how likely
    the environment makes them."""
    actions, places, chances = [], [], []
    for first, place, second in itertools.product(range(2), repeat=3):
        actions.append([first, second])
        places.append([0, place])
        chances.append(TRANSITIONS[0, first, place])
    places, actions = np.array(places), np.array(actions)

    def episode(places, actions, rewards):
        observation = jax.nn.one_hot(places, 2, dtype=float)[:, None]
        return make_rollout(observation, actions[:, None], rewards[:, None])

    return jax.vmap(episode)(places, actions, REWARDS[places, actions]), jnp.asarray(chances)


def batches(number):
    """All that `number` episodes, side by side, can be, and how likely the environment makes it."""
    rollouts, chances = trajectories()
    chosen = np.array(list(itertools.product(range(len(chances)), repeat=number)))

    def together(x):
        return jnp.concatenate([x[chosen[:, i]] for i in range(number)], axis=2)

    return jax.tree.map(together, rollouts), jnp.prod(chances[chosen], axis=1)


def likelihoods(agent, number=1):
    """Of every batch of trajectories, under the agent's policy."""
    rollouts, chances = batches(number)
    each = jax.vmap(lambda r: log_prob(agent.logits(r)[:-1], r.action))(rollouts)
    return chances * jnp.exp(jnp.sum(each, axis=(1, 2)))


def to_go(rollout):
    """The sum of later rewards, at each step."""
    nothing = jnp.zeros((STEPS + 1, rollout.reward.shape[1]))
    return gae(nothing, rollout.reward, rollout.discount(1.0), jnp.ones(rollout.reward.shape))


def returns_of_each():
    return jnp.sum(trajectories()[0].reward, axis=(1, 2))


def exact(agent):
    """The expected return."""
    return jnp.sum(likelihoods(agent) * returns_of_each())


def problem(kind="plain", **settings):
    rule = PolicyGradient(PolicyGradientConfig(surrogate=kind, entropy_cost=0.0))
    return Adaptation(rule, entropy_cost=0.0, **settings)


def start(agent, rate=RATE):
    """A step on the mean of a loss over steps goes as far as RATE on its sum would."""
    return Start(agent, jax.tree.map(lambda _: jnp.log(jnp.asarray(rate * STEPS)), agent))


def lesson(rollout, advantage, credit=0.0):
    return Lesson(rollout, PolicyGradientTargets(advantage), jnp.asarray(credit))


def adapt(agent, rollout, kind="plain", **settings):
    return problem(kind, **settings).inner(start(agent), agent, lesson(rollout, to_go(rollout)))[0]


def adapted(agent, kind="plain", number=1):
    """The agent after a step on each of the batches."""
    return jax.vmap(lambda r: adapt(agent, r, kind))(batches(number)[0])


def assert_same_trees(a, b):
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-9, atol=1e-12)


def on_policy(agent, rollout):
    """The rollout as if the agent had played it."""
    logits = jax.lax.stop_gradient(agent.logits(rollout))
    return dataclasses.replace(rollout, behaviour_logits=logits)


def estimated(agent, exploration, kind="plain", number=1):
    """The mean of the sampled meta-gradient over all batches before and trajectories after."""
    before = likelihoods(agent, number)
    after = jax.vmap(likelihoods)(adapted(agent, kind, number))  # before × after
    # The losses are means over steps and episodes, the exact gradient is of sums.
    maml = problem(kind, exploration=exploration * number)

    def sampled(first, second, total):
        """What one pair says: the policy gradient through the step, and E-MAML's term."""
        first = lesson(on_policy(agent, first), to_go(first), total)
        new, _ = maml.inner(start(agent), agent, first)
        outer = lesson(on_policy(new, second), jnp.full((STEPS, 1), total))
        window = record(maml, start(agent), agent, jax.tree.map(lambda x: x[None], first))
        return meta_gradient(maml, start(agent), window, outer).gradient.agent

    over_second = jax.vmap(sampled, in_axes=(None, 0, 0))
    gradients = jax.vmap(over_second, in_axes=(0, None, None))(
        batches(number)[0], trajectories()[0], returns_of_each()
    )
    weight = before[:, None] * after
    return jax.tree.map(lambda g: -STEPS * jnp.tensordot(weight, g, axes=2), gradients)


@pytest.mark.parametrize("kind, number", [("plain", 1), ("lvc", 1), ("dice", 1), ("lvc", 2)])
def test_emaml_is_the_gradient_of_the_expected_outcome(kind, number):
    agent = make_agent()

    def objective(agent):
        outcomes = jax.vmap(exact)(adapted(agent, kind, number))
        return jnp.sum(likelihoods(agent, number) * outcomes)

    ours = jax.jit(lambda a: estimated(a, 1.0, kind, number))(agent)
    assert_same_trees(ours, jax.grad(objective)(agent))


def test_maml_leaves_out_where_it_sampled():
    agent = make_agent()

    def objective(agent):
        fixed = jax.lax.stop_gradient(likelihoods(agent))
        return jnp.sum(fixed * jax.vmap(exact)(adapted(agent)))

    maml = jax.jit(lambda a: estimated(a, 0.0))(agent)
    assert_same_trees(maml, jax.grad(objective)(agent))
    whole = jax.jit(lambda a: estimated(a, 1.0))(agent)
    difference = [
        np.abs(x - y).max() for x, y in zip(*map(jax.tree.leaves, (maml, whole)), strict=True)
    ]
    assert max(difference) > 0.01  # so the term is worth something here


def expected_derivatives(agent, kind):
    """Gradient and Hessian, in the space of all parameters, of the expected surrogate."""
    flat, unravel = jax.flatten_util.ravel_pytree(agent)
    rollouts, _ = trajectories()
    weight, rule = likelihoods(agent), problem(kind).rule

    def loss(x):
        def surrogate(rollout):
            targets = PolicyGradientTargets(to_go(rollout))
            # The divisor of the mean is a little more than the number of steps.
            return (STEPS + 1e-8) * mean_loss(unravel(x), rule, targets, rollout)[0]

        return -jnp.sum(weight * jax.vmap(surrogate)(rollouts))

    def truth(x):
        return exact(unravel(x))

    return [(jax.grad(f)(flat), jax.hessian(f)(flat)) for f in (loss, truth)]


@pytest.mark.parametrize("kind", ["plain", "lvc", "dice"])
def test_every_surrogate_has_the_policy_gradient(kind):
    (ours, _), (truth, _) = expected_derivatives(make_agent(), kind)
    np.testing.assert_allclose(ours, truth, rtol=1e-9, atol=1e-12)


def test_dice_has_the_hessian_and_plain_has_not():
    agent = make_agent()
    errors = {}
    for kind in ("plain", "lvc", "dice"):
        (_, ours), (_, truth) = expected_derivatives(agent, kind)
        errors[kind] = float(jnp.linalg.norm(ours - truth) / jnp.linalg.norm(truth))
    assert errors["dice"] < 1e-9
    assert errors["plain"] > 0.3  # the terms it leaves out
    assert errors["lvc"] < errors["plain"]


def test_first_order_takes_the_step_as_a_constant():
    agent, rollout = make_agent(), jax.tree.map(lambda x: x[3], trajectories()[0])
    simple = jax.grad(lambda a: exact(adapt(a, rollout, first_order=True)))(agent)
    assert_same_trees(simple, jax.grad(exact)(adapt(agent, rollout)))
    full = jax.grad(lambda a: exact(adapt(a, rollout)))(agent)
    assert any((x != y).any() for x, y in zip(*map(jax.tree.leaves, (simple, full)), strict=True))


def test_each_leaf_may_have_its_own_rate():
    agent, rollout = make_agent(), jax.tree.map(lambda x: x[3], trajectories()[0])
    leaves, tree = jax.tree.flatten(start(agent).log_rates)
    alone = [x if i == 1 else jnp.asarray(-jnp.inf) for i, x in enumerate(leaves)]
    one = Start(agent, jax.tree.unflatten(tree, alone))
    moved = jax.tree.leaves(adapt(agent, rollout))
    expected = jax.tree.leaves(agent)
    assert (moved[1] != expected[1]).any() and (moved[0] != expected[0]).any()
    expected[1] = moved[1]
    ours, _ = problem().inner(one, agent, lesson(rollout, to_go(rollout)))
    assert_same_trees(jax.tree.leaves(ours), expected)


def test_rates_are_learned_if_one_says_so():
    """The gradient with respect to the step sizes, against finite differences."""
    agent, rollouts = make_agent(), trajectories()[0]
    first, second = (jax.tree.map(lambda x, i=i: x[i], rollouts) for i in (3, 6))
    maml = problem("lvc", learn_rates=True)
    lessons = jax.tree.map(lambda x: x[None], lesson(first, to_go(first)))

    @jax.jit
    def found(rate):
        window = record(maml, start(agent, rate), agent, lessons)
        outer = lesson(on_policy(agent, second), to_go(second))
        return meta_gradient(maml, start(agent, rate), window, outer)

    slope = sum(jnp.sum(x) for x in jax.tree.leaves(found(RATE).gradient.log_rates))
    up, down = (found(RATE * np.exp(x)).metrics["loss"] for x in (1e-5, -1e-5))
    np.testing.assert_allclose(slope, (up - down) / 2e-5, rtol=1e-6)


def test_dice_counts_the_actions_of_each_episode_apart():
    """Two episodes one after the other have the meta-gradient that they have side by side."""
    agent, rollouts = make_agent(), trajectories()[0]
    both = [jax.tree.map(lambda x, i=i: x[i], rollouts) for i in (3, 6)]

    def joined(axis):
        ends = lambda r: (r.observation, r.behaviour_logits)  # noqa: E731
        parts = [eqx.tree_at(ends, r, [x[:-1] for x in ends(r)]) for r in both]
        whole = jax.tree.map(lambda *x: jnp.concatenate(x, axis=axis), *parts)
        return eqx.tree_at(ends, whole, [jnp.concatenate([x, x[-1:]]) for x in ends(whole)])

    def hessian(rollout):
        flat, unravel = jax.flatten_util.ravel_pytree(agent)
        rule = problem("dice").rule
        after = jnp.zeros((rollout.reward.shape[0] + 1, rollout.reward.shape[1]))
        ones = jnp.ones(rollout.reward.shape)
        advantage = gae(after, rollout.reward, rollout.discount(1.0), ones)
        loss = lambda x: mean_loss(unravel(x), rule, PolicyGradientTargets(advantage), rollout)[0]  # noqa: E731
        return jax.hessian(loss)(flat)

    np.testing.assert_allclose(hessian(joined(0)), hessian(joined(1)), rtol=1e-9, atol=1e-12)


# --- Episodes ------------------------------------------------------------------------------------


def test_advantages_by_hand():
    """Of two episodes, of three steps and of one, over values that are 0 for want of others to fit
    them to: standardised, and scaled back here."""
    seam = jnp.array([[False, False], [False, True], [False, True]])
    reward = jnp.array([[1.0, 3.0], [0.0, 0.0], [2.0, 0.0]])
    rollout = make_rollout(jnp.zeros((3, 2, 1)), jnp.zeros((3, 2), jnp.int32), reward, seam)
    rule = PolicyGradient(PolicyGradientConfig(discount=0.5, td_lambda=0.5, baseline="linear"))
    single = jax.tree.map(lambda x: x[:, :1], rollout)
    advantage = rule._linear_advantage(jnp.zeros((4, 1, 1)), single)
    np.testing.assert_allclose(advantage[:, 0], [1.0 + 0.25 * (0.25 * 2.0), 0.25 * 2.0, 2.0])
    ours = rollout.standardised(reward)
    real = np.array([1.0, 3.0, 0.0, 2.0])
    np.testing.assert_allclose(ours[0], (real[:2] - 1.5) / np.sqrt(real.var() + 1e-8))


def rewarded(features, reward, seam=None):
    """Rewards for features, which are what is observed."""
    return make_rollout(features, jnp.zeros(reward.shape, jnp.int32), reward, seam)


def values_of(rollout, features, discount, **settings):
    return linear_values(jnp.concatenate([features, features[-1:]]), rollout, discount, **settings)


def test_a_linear_baseline_finds_values_that_are_linear():
    random = np.random.default_rng(0)
    features = jnp.asarray(random.normal(size=(1, 400, 3)))
    reward = features @ jnp.array([1.0, -2.0, 0.5]) + 3.0
    seam = jnp.zeros((1, 400), bool).at[0, 300:].set(True)
    values = values_of(rewarded(features, reward, seam), features, 0.9, ridge=1e-6)
    np.testing.assert_allclose(values[:1, :300], reward[:, :300], atol=2e-3)


def test_a_linear_baseline_does_not_explain_away_what_is_rare():
    """Rewards without any rule, and as many features as steps: fitted to themselves, advantages
    would vanish."""
    random = np.random.default_rng(0)
    features = jnp.asarray(random.normal(size=(5, 20, 90)))
    reward = jnp.asarray(random.normal(size=(5, 20)))
    rollout = rewarded(features, reward)
    left = reward - values_of(rollout, features, 0.0)[:-1]
    assert float(jnp.std(left)) > 0.9 * float(jnp.std(reward))
    single = jax.tree.map(lambda x: x[:, :1], rollout)
    np.testing.assert_array_equal(values_of(single, features[:, :1], 0.9), 0.0)


def test_a_linear_baseline_bears_features_that_repeat_each_other():
    """As one-hot features do, whose squares are themselves, in single precision."""
    with jax.enable_x64(False):
        places = np.random.default_rng(0).integers(30, size=(25, 20))
        features = jax.nn.one_hot(places, 30)
        reward = jnp.asarray(places / 30.0, jnp.float32)
        features = jnp.concatenate([features] * 3, axis=-1)
        values = values_of(rewarded(features, reward), features, 0.0)
    np.testing.assert_allclose(values[:-1], reward, atol=0.05)


def test_episodes_end_with_death_and_count_no_further():
    with jax.enable_x64(False):
        config = AdaptConfig(algo="maml", episodes=64, torso=(8,))
        method = AdaptRun.untraced(config).method
        task = jax.jit(method.env.sample_task)(jax.random.key(0))
        agent = jax.tree.map(jnp.zeros_like, method.new_policy(jax.random.key(0)).agent)
        rollout, last = jax.jit(method.episodes)(agent, task, jax.random.key(1))
    mask = np.asarray(rollout.mask)
    lengths, dead = mask.sum(axis=0), np.asarray(last.dead)
    assert 5 < dead.sum() < 64 and (lengths[~dead] == method.env.horizon).all()
    np.testing.assert_array_equal(np.asarray(last.time), lengths)
    assert (np.diff(mask.astype(int), axis=0) <= 0).all()
    ends = np.asarray(rollout.terminal)
    np.testing.assert_array_equal(ends.sum(axis=0), 1)
    np.testing.assert_array_equal(np.argmax(ends, axis=0), lengths - 1)
    goals = np.asarray(last.taken).sum(axis=1)  # easy: nothing else can be taken
    np.testing.assert_allclose(np.asarray(rollout.reward).sum(axis=0), goals)
    assert not np.asarray(rollout.behaviour_logits).any()
