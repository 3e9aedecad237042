"""MAML and E-MAML against the exact gradient, by enumerating all that can happen in a small MDP."""

import dataclasses
import itertools

import jax
import jax.flatten_util
import jax.numpy as jnp
import numpy as np
import pytest

from etude.adaptation.episodes import Episodes, advantages, linear_values, play, policy_of
from etude.adaptation.maml import adapt, clipped_loss, exploration_loss, surrogate_loss
from etude.core.agent import Agent, Heads, NetworkConfig
from etude.envs import make
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
        return Episodes(
            observation=jax.nn.one_hot(places, 2, dtype=float)[:, None],
            action=actions[:, None],
            reward=rewards[:, None],
            log_prob=jnp.zeros((STEPS, 1)),
            mask=jnp.ones((STEPS, 1), bool),
            last_state=None,
        )

    return jax.vmap(episode)(places, actions, REWARDS[places, actions]), jnp.asarray(chances)


def batches(number):
    """All that `number` episodes, side by side, can be, and how likely the environment makes it."""
    episodes, chances = trajectories()
    chosen = np.array(list(itertools.product(range(len(chances)), repeat=number)))

    def together(x):
        return jnp.concatenate([x[chosen[:, i]] for i in range(number)], axis=2)

    return jax.tree.map(together, episodes), jnp.prod(chances[chosen], axis=1)


def likelihoods(agent, number=1):
    """Of every batch of trajectories, under the agent's policy."""
    episodes, chances = batches(number)
    log_likelihood = jax.vmap(lambda e: e.log_likelihood(policy_of(agent)))(episodes)
    return chances * jnp.exp(jnp.sum(log_likelihood, axis=(1, 2)))


def to_go(episodes):
    """The sum of later rewards, at each step."""
    return advantages(episodes, jnp.zeros(episodes.reward.shape), 1.0, 1.0)


def returns_of_each():
    return jnp.sum(trajectories()[0].reward, axis=(1, 2))


def exact(agent):
    """The expected return."""
    return jnp.sum(likelihoods(agent) * returns_of_each())


def same_rates(agent):
    return jax.tree.map(lambda _: jnp.asarray(RATE), agent)


def adapted(agent, kind="plain", number=1):
    """The agent after a step on each of the batches."""
    episodes, _ = batches(number)
    return jax.vmap(lambda e: adapt(agent, same_rates(agent), e, to_go(e), kind))(episodes)


def assert_same_trees(a, b):
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-9, atol=1e-12)


def on_policy(agent, episodes):
    """The episodes as if the agent had played them."""
    old = jax.lax.stop_gradient(episodes.log_likelihood(policy_of(agent)))
    return dataclasses.replace(episodes, log_prob=old)


def estimated(agent, exploration, kind="plain", number=1):
    """The mean of the sampled meta-gradient over all batches before and trajectories after."""
    before = likelihoods(agent, number)
    after = jax.vmap(likelihoods)(adapted(agent, kind, number))  # before × after

    def sampled(first, second, total):
        """What one pair says: the policy gradient through the step, and E-MAML's term."""

        def loss(agent):
            new = adapt(agent, same_rates(agent), first, to_go(first), kind)
            played = on_policy(new, second)
            advantage = jnp.full((STEPS, 1), total)
            return STEPS * clipped_loss(new, played, advantage, 0.2) + exploration * (
                exploration_loss(agent, on_policy(agent, first), total, 0.2)
            )

        return jax.grad(loss)(agent)

    over_second = jax.vmap(sampled, in_axes=(None, 0, 0))
    gradients = jax.vmap(over_second, in_axes=(0, None, None))(
        batches(number)[0], trajectories()[0], returns_of_each()
    )
    weight = before[:, None] * after
    return jax.tree.map(lambda g: -jnp.tensordot(weight, g, axes=2), gradients)


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
    episodes, _ = trajectories()
    weight = likelihoods(agent)

    def loss(x):
        losses = jax.vmap(lambda e: surrogate_loss(unravel(x), e, to_go(e), kind))(episodes)
        return -jnp.sum(weight * losses)

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
    agent, episodes = make_agent(), jax.tree.map(lambda x: x[3], trajectories()[0])

    def after(agent, first_order):
        return exact(
            adapt(agent, same_rates(agent), episodes, to_go(episodes), first_order=first_order)
        )

    simple = jax.grad(lambda a: after(a, True))(agent)
    assert_same_trees(
        simple, jax.grad(exact)(adapt(agent, same_rates(agent), episodes, to_go(episodes)))
    )
    full = jax.grad(lambda a: after(a, False))(agent)
    assert any((x != y).any() for x, y in zip(*map(jax.tree.leaves, (simple, full)), strict=True))


def test_each_leaf_may_have_its_own_rate():
    agent, episodes = make_agent(), jax.tree.map(lambda x: x[3], trajectories()[0])
    number = len(jax.tree.leaves(agent))
    rates = jax.tree.unflatten(jax.tree.structure(agent), [RATE * (i == 1) for i in range(number)])
    moved = jax.tree.leaves(adapt(agent, same_rates(agent), episodes, to_go(episodes)))
    expected = jax.tree.leaves(agent)
    assert (moved[1] != expected[1]).any() and (moved[0] != expected[0]).any()
    expected[1] = moved[1]
    ours = adapt(agent, jax.tree.map(jnp.asarray, rates), episodes, to_go(episodes))
    assert_same_trees(jax.tree.leaves(ours), expected)


# --- Episodes ------------------------------------------------------------------------------------


def test_advantages_by_hand():
    mask = jnp.array([[True, True], [True, False], [True, False]])
    episodes = Episodes(
        observation=jnp.zeros((3, 2, 1)),
        action=jnp.zeros((3, 2), jnp.int32),
        reward=jnp.array([[1.0, 3.0], [0.0, 0.0], [2.0, 0.0]]),
        log_prob=jnp.zeros((3, 2)),
        mask=mask,
        last_state=None,
    )
    values = jnp.array([[0.5, 1.0], [1.0, 9.0], [1.5, 9.0]])
    ours = advantages(episodes, values, 0.5, 0.5)
    delta = [1.0 + 0.5 * 1.0 - 0.5, 0.0 + 0.5 * 1.5 - 1.0, 2.0 - 1.5]
    first = [delta[0] + 0.25 * (delta[1] + 0.25 * delta[2]), delta[1] + 0.25 * delta[2], delta[2]]
    np.testing.assert_allclose(ours[:, 0], first)
    np.testing.assert_allclose(ours[:, 1], [2.0, 0.0, 0.0])
    np.testing.assert_allclose(episodes.returns, [3.0, 3.0])


def test_a_linear_baseline_finds_values_that_are_linear():
    random = np.random.default_rng(0)
    features = jnp.asarray(random.normal(size=(1, 400, 3)))
    reward = features @ jnp.array([1.0, -2.0, 0.5]) + 3.0
    mask = jnp.ones((1, 400), bool).at[0, 300:].set(False)
    episodes = Episodes(features, jnp.zeros((1, 400), jnp.int32), reward, reward, mask, None)
    values = linear_values(episodes, features, 0.9, ridge=1e-6)
    np.testing.assert_allclose(values[:, :300], reward[:, :300], atol=2e-3)
    np.testing.assert_array_equal(values[:, 300:], 0.0)


def test_a_linear_baseline_does_not_explain_away_what_is_rare():
    """Rewards without any rule, and as many features as steps: fitted to themselves, advantages
    would vanish."""
    random = np.random.default_rng(0)
    features = jnp.asarray(random.normal(size=(5, 20, 90)))
    reward = jnp.asarray(random.normal(size=(5, 20)))
    mask = jnp.ones((5, 20), bool)
    episodes = Episodes(features, jnp.zeros((5, 20), jnp.int32), reward, reward, mask, None)
    left = advantages(episodes, linear_values(episodes, features, 0.0), 0.0, 1.0)
    assert float(jnp.std(left)) > 0.9 * float(jnp.std(reward))
    single = jax.tree.map(lambda x: x[:, :1], episodes)
    np.testing.assert_array_equal(linear_values(single, features[:, :1], 0.9), 0.0)


def test_a_linear_baseline_bears_features_that_repeat_each_other():
    """As one-hot features do, whose squares are themselves, in single precision."""
    with jax.enable_x64(False):
        places = np.random.default_rng(0).integers(30, size=(25, 20))
        features = jax.nn.one_hot(places, 30)
        reward = jnp.asarray(places / 30.0, jnp.float32)
        mask = jnp.ones((25, 20), bool)
        episodes = Episodes(features, jnp.asarray(places), reward, reward, mask, None)
        values = linear_values(episodes, jnp.concatenate([features] * 3, axis=-1), 0.0)
    np.testing.assert_allclose(values, reward, atol=0.05)


def test_episodes_end_with_death_and_count_no_further():
    with jax.enable_x64(False):
        env = make("krazy_world").env
        task = jax.jit(env.sample_task)(jax.random.key(0))
        uniform = lambda observation: jnp.zeros((*observation.shape[:-1], 4))  # noqa: E731
        episodes = jax.jit(lambda key: play(env, uniform, task, key, 64))(jax.random.key(1))
    lengths = np.asarray(episodes.mask).sum(axis=0)
    dead = np.asarray(episodes.last_state.dead)
    assert 5 < dead.sum() < 64 and (lengths[~dead] == env.horizon).all()
    np.testing.assert_array_equal(np.asarray(episodes.last_state.time), lengths)
    assert (np.diff(np.asarray(episodes.mask).astype(int), axis=0) <= 0).all()
    goals = np.asarray(episodes.last_state.taken).sum(axis=1)  # easy: nothing else can be taken
    np.testing.assert_allclose(episodes.returns, goals)
    np.testing.assert_allclose(episodes.log_prob[episodes.mask], np.log(0.25), rtol=1e-6)
