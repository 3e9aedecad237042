"""Windows that overlap: what is carried, what is made again, and what is differentiated."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from etude import rules
from etude.envs import make
from etude.errors import UserError
from etude.meta.discovery.config import DiscoverConfig
from etude.meta.discovery.population import Group, JaxGroup
from etude.meta.discovery.run import DiscoveryRun
from etude.runs.lifecycle import execute
from tests.probes import LearnedDiscount
from tests.test_discovery import TINY, behaviour_is_that_of
from tests.test_metagradient import composed

RULE = LearnedDiscount(jnp.array(0.3), jnp.array(-0.5))
LATER = LearnedDiscount(jnp.array(-0.4), jnp.array(0.1))
ENV = "catch:rows=4,columns=3"
# The sum of the agents' contributions is then that of their gradients.
PLAIN = dict(meta_average="gradients", meta_clip=0.0, budgets=(), learning_rate=0.1)


@pytest.fixture(scope="module")
def group() -> Group:
    config = DiscoverConfig(**TINY | PLAIN | dict(inner_updates=3, stride=1))
    return Group.create(make(ENV), config)


@pytest.fixture(scope="module")
def two_windows(group):
    """The seat before the first window and the second, and each window as it was lived."""
    assert isinstance(group, JaxGroup)
    live, step = jax.jit(group.live), jax.jit(group._step)
    newborn = jax.jit(group.new_seat)(RULE, jax.random.key(1))
    keys = lambda seat: jax.random.split(seat.key, 3)[:2]  # noqa: E731
    first = live(RULE, newborn.member, *keys(newborn))
    _, good, seat, metrics = step(RULE, newborn)
    second = live(LATER, seat.member, *keys(seat))
    assert good
    return newborn, first, seat, second, step(LATER, seat), metrics


def at(tree, i):
    return jax.tree.map(lambda x: x[i], tree)


def assert_equal(actual, expected, tolerance=0.0):
    for a, b in zip(jax.tree.leaves(actual), jax.tree.leaves(expected), strict=True):
        if jnp.issubdtype(a.dtype, jax.dtypes.prng_key):
            a, b = jax.random.key_data(a), jax.random.key_data(b)
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


def test_the_first_window_is_all_new_and_the_next_goes_on_where_it_overlaps(group, two_windows):
    newborn, (_, first, *_), seat, (_, second, *_), _, _ = two_windows
    inner = jax.jit(group.problem.inner)
    after_one, _ = inner(RULE, newborn.member.lifetime, at(first.experience, 0))
    assert_equal(seat.member.lifetime, after_one, 1e-5)
    assert_equal(at(second.experience, slice(0, 2)), at(first.experience, slice(1, 3)))
    assert np.any(at(second.experience, 2).action != at(first.experience, 2).action)


def test_updates_are_made_again_under_the_rule_as_it_is_now(group, two_windows):
    _, _, seat, (_, window, validation, _), _, _ = two_windows
    lifetime, inner = seat.member.lifetime, jax.jit(group.problem.inner)
    for i in range(2):
        lifetime, _ = inner(LATER, lifetime, at(window.experience, i))
    assert behaviour_is_that_of(lifetime.learner.agent, at(window.experience, 2))
    lifetime, _ = inner(LATER, lifetime, at(window.experience, 2))
    assert_equal(window.final.learner.agent, lifetime.learner.agent, 1e-4)
    assert behaviour_is_that_of(lifetime.learner.agent, validation)


def test_all_updates_of_the_window_are_differentiated_and_nothing_before(group, two_windows):
    """Against the gradient of the plain loop over three updates, the first of which starts from a
    constant."""
    _, _, seat, (_, window, validation, _), (contribution, *_), _ = two_windows
    loss = composed(group.problem, seat.member.lifetime, window.experience, validation)
    expected = jax.jit(jax.grad(loss))(LATER)
    for a, b in zip(jax.tree.leaves(contribution), jax.tree.leaves(expected), strict=True):
        assert a != 0
        np.testing.assert_allclose(a, b, rtol=2e-3)


def test_only_what_is_new_is_played_and_makes_an_agent_older(group, two_windows):
    newborn, first, seat, second, (_, _, after, _), metrics = two_windows
    batch = TINY["rollout"] * TINY["batch"]
    validation = TINY["validation_rollout"] * TINY["validation_batch"]
    assert newborn.member.age == 0 and seat.member.age == 3 * batch + validation
    assert after.member.age - seat.member.age == batch + validation
    assert metrics["episodes"] == first[3]["episodes"]  # of 4 × 9 steps, each episode has 3
    assert second[3]["episodes"] == TINY["batch"]


def test_a_stride_of_the_whole_window_is_no_overlap_to_the_bit():
    settings = TINY | dict(meta_steps=3, log_every=1, budgets=(60, 40))
    plain = execute(DiscoveryRun.create(DiscoverConfig(**settings), RULE))
    config = DiscoverConfig(**settings, stride=settings["inner_updates"])
    whole = execute(DiscoveryRun.create(config, RULE))
    assert rules.digest(plain.rule) == rules.digest(whole.rule)
    drop = lambda record: {k: v for k, v in record.items() if k != "seconds"}  # noqa: E731
    assert [*map(drop, plain.curve)] == [*map(drop, whole.curve)]


def test_steps_are_counted_with_those_of_newborn_agents():
    settings = TINY | dict(inner_updates=3, stride=2, meta_steps=2, log_every=1, budgets=(50,))
    run = DiscoveryRun.create(DiscoverConfig(**settings | dict(agents=2)), RULE)
    curve = execute(run).curve
    assert curve[0]["steps"] == 2 * (3 * 12 + 16)
    expected = 2 * (2 * 12 + 16) + 12 * curve[0]["resets"]
    assert curve[1]["steps"] - curve[0]["steps"] == expected


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (dict(stride=5), "--stride 5 would leave out updates: a window has 2"),
        (dict(stride=1, collect="ahead"), "need --record each, --collect fresh"),
        (dict(stride=1, record="nested"), "need --record each, --collect fresh"),
        (dict(stride=1, envs="gym/CartPole-v1"), "gym/CartPole-v1 runs outside JAX"),
    ],
)
def test_strides_that_make_no_sense_get_a_sentence(settings, words):
    with pytest.raises(UserError, match=words):
        DiscoveryRun.create(dataclasses.replace(DiscoverConfig(**TINY), **settings), RULE)
