"""The gradient through agent updates: against the released implementation, against itself computed
in other ways, and against finite differences."""

import dataclasses
import functools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from etude.core.agent import Agent, NetworkConfig
from etude.core.learner import Learner, loss_gradient
from etude.core.moments import Moments
from etude.core.nn import LSTMState
from etude.core.rule import Rule
from etude.core.types import Rollout
from etude.meta import gradient as estimator
from etude.meta.discovery.meta_value import MetaValue, MetaValueConfig
from etude.meta.discovery.problem import Discovery, Lifetime
from etude.meta.gradient import (
    meta_gradient,
    mixed_mode_gradient,
    nearest_divisor,
    record,
    train,
)
from etude.meta.problem import Problem
from etude.rules.disco.rule import Disco
from etude.rules.residual.rule import Residual, ResidualConfig
from etude.runs.storage import named_leaves
from tests import parity
from tests.conftest import random_like
from tests.probes import LearnedDiscount
from tests.test_learner import (
    ACTIONS,
    CONFIG,
    OBSERVATION,
    OPTIMISER,
    B,
    dead_leaves,
    make_learner,
    make_rollout,
    stack,
)

pytestmark = pytest.mark.usefixtures("x64")

LOGS = {
    "adv": "advantage",
    "entropy": "entropy",
    "meta_loss": "meta_loss",
    "normalized_adv": "normalised_advantage",
    "pg_loss": "pg_loss",
    "reg_loss": "reg_loss",
    "val_importance_weight": "importance_weight",
    "value": "value",
}


# --- The released implementation -----------------------------------------------------------------


@pytest.mark.parametrize("path", parity.files("meta_gradient_*.npz"))
def test_the_released_meta_gradient(path):
    golden = parity.Golden(path)
    rule = parity.published_rule()
    rollouts = stack([golden.rollout(f"train{i}") for i in range(golden.config["inner_steps"])])
    result = compiled("each", True, Discovery(golden.optimiser))(
        rule, golden.lifetime(rule), rollouts, golden.rollout("valid")
    )
    state = result.state

    for theirs, expected in golden.under("meta_log").items():
        parity.assert_close(result.metrics[LOGS[theirs]], expected, 1e-9, theirs)
    assert_gradients_close(named_leaves(result.gradient), golden.meta_gradient, 1e-9)
    ours = {"params": state.learner.agent, "value_params": state.value.network}
    for name, tree in ours.items():
        parity.assert_trees_close(tree, golden.under(f"final.{name}"), 1e-9, name)


def assert_gradients_close(actual: dict, expected: dict, tolerance: float) -> None:
    """Each leaf up to `tolerance` relative to its norm; where it is zero, so must ours be."""
    assert actual.keys() == expected.keys()
    for name, value in expected.items():
        assert actual[name].shape == value.shape, name
        error, scale = np.linalg.norm(actual[name] - value), np.linalg.norm(value)
        assert error <= tolerance * scale, f"{name}: off by {error / (scale or 1.0):.2e}"


# --- A small case --------------------------------------------------------------------------------

PROBLEM = Discovery(OPTIMISER)
WAYS = [("each", True), ("nested", False), ("nested", True)]


def make_lifetime(learner: Learner) -> Lifetime:
    """Some way into a life: the optimisers' averages are not zero."""
    config = MetaValueConfig(torso=(6, 5))
    network = random_like(
        lambda: MetaValue.create(jnp.zeros(OBSERVATION), config, key=jax.random.key(0)).network
    )
    moments = Moments(jnp.array(0.1), jnp.array(0.6), jnp.array(0.5))
    warm = functools.partial(jax.tree.map, lambda x: x + (5 if x.dtype == int else 0.1))
    value_state = config.optimiser.init(network)
    value = MetaValue(network, warm(value_state), moments, moments, config)
    learner = Learner(learner.agent, warm(learner.optimiser_state), learner.rule_state)
    return Lifetime(learner, value)


@pytest.fixture(scope="module")
def disco():
    """A rule, and the other arguments of its meta-gradient through 2 × 2 updates."""
    with jax.enable_x64(True):
        rule = random_like(lambda: Disco(CONFIG, key=jax.random.key(0)))
        lifetime = make_lifetime(make_learner(rule))
        yield rule, lifetime, stack([make_rollout(i) for i in range(4)]), make_rollout(4, steps=7)


def compiled(recording="each", mixed_mode=False, problem=PROBLEM):
    """Plain reverse-over-reverse unless told otherwise."""
    return jax.jit(functools.partial(recorded_gradient, problem, recording, mixed_mode))


def recorded_gradient(problem, recording, mixed_mode, params, state, experience, validation):
    """The gradient through updates on experience that is there already."""
    window = record(problem, params, state, experience, recording)
    return meta_gradient(problem, params, window, validation, mixed_mode=mixed_mode)


@pytest.fixture(scope="module")
def plain(disco):
    with jax.enable_x64(True):
        return compiled()(*disco)


def test_every_way_to_compute_it_gives_the_same(disco, plain):
    """That is, of the ways that differ most; all of them are compared under a rule that is smaller
    (`test_a_rule_without_the_heads_of_disco`)."""
    assert_same(compiled("nested", True)(*disco), plain)


def assert_same(result, expected) -> None:
    ours, theirs = named_leaves(result), named_leaves(expected)
    assert_gradients_close(ours, theirs, 1e-8)


def test_no_leaf_of_the_rule_is_dead(plain):
    assert dead_leaves(plain.gradient) == []


def test_finite_differences(disco, monkeypatch):
    check_finite_differences(disco, monkeypatch)


def check_finite_differences(arguments, monkeypatch, problem=PROBLEM, step: float = 1e-5) -> None:
    """Along one random direction in each leaf of the rule.

    What is a constant by definition (returns, Adam's denominator) does depend on the rule, which
    finite differences see. So here nothing is a constant.
    """
    monkeypatch.setattr(jax.lax, "stop_gradient", lambda x: x)
    rule, *others = arguments
    function = compiled("each", True, problem)
    random = np.random.default_rng(0)
    leaves, tree = jax.tree.flatten(rule)
    gradient = function(rule, *others).gradient
    for i, (name, slope) in enumerate(named_leaves(gradient).items()):
        direction = random.normal(size=slope.shape)

        def moved(distance, i=i, direction=direction):
            changed = [*leaves[:i], leaves[i] + distance * direction, *leaves[i + 1 :]]
            return function(jax.tree.unflatten(tree, changed), *others).metrics["meta_loss"]

        difference = (moved(step) - moved(-step)) / (2.0 * step)
        scale = np.linalg.norm(slope) * np.linalg.norm(direction)
        error = abs(difference - np.vdot(slope, direction))
        assert error <= 1e-5 * scale + 1e-8, f"{name}: off by {error / scale:.2e}"  # rounding


def test_vmap_over_agents_is_the_same_as_one_by_one(learned_discount):
    rule, lifetime, rollouts, validation = learned_discount
    other = jax.tree.map(lambda x: 0.9 * x if eqx.is_inexact_array(x) else x, lifetime)
    both = jax.jit(
        jax.vmap(
            functools.partial(recorded_gradient, PROBLEM, "nested", True),
            in_axes=(None, 0, None, None),
        )
    )
    together = both(rule, stack([lifetime, other]), rollouts, validation)
    alone = compiled("nested", True)
    for i, one in enumerate((lifetime, other)):
        expected = alone(rule, one, rollouts, validation)
        assert_same(jax.tree.map(lambda x, i=i: x[i], together), expected)


@pytest.mark.parametrize(
    "n, divisor", [(0, 1), (1, 1), (2, 1), (7, 1), (12, 3), (20, 4), (40, 5), (36, 6)]
)
def test_nearest_divisor(n, divisor):
    assert nearest_divisor(n) == divisor


# --- Another rule --------------------------------------------------------------------------------


def under_a_learned_discount(network: NetworkConfig, make_rollout=make_rollout):
    return under(LearnedDiscount(jnp.array(0.3), jnp.array(-0.5)), network, make_rollout)


def under(rule: Rule, network: NetworkConfig, make_rollout=make_rollout):
    """A rule, an agent under it, and what it learns from."""
    make = lambda: Agent(  # noqa: E731
        jnp.zeros(OBSERVATION), ACTIONS, rule.heads(ACTIONS), network, key=jax.random.key(0)
    )
    learner = Learner.create(random_like(make), rule, OPTIMISER)
    rollouts = stack([make_rollout(i) for i in range(4)])
    return rule, make_lifetime(learner), rollouts, make_rollout(4)


@pytest.fixture(scope="module")
def learned_discount():
    with jax.enable_x64(True):
        yield under_a_learned_discount(NetworkConfig(torso=(6, 5)))


def test_a_rule_without_the_heads_of_disco(learned_discount):
    expected = compiled()(*learned_discount)
    assert dead_leaves(expected.gradient) == []
    for recording, mixed_mode in WAYS:
        assert_same(compiled(recording, mixed_mode)(*learned_discount), expected)


@pytest.mark.parametrize("gradient", [loss_gradient, mixed_mode_gradient])
def test_metrics_carry_no_gradient(learned_discount, gradient):
    rule, lifetime, rollouts, _ = learned_discount
    learner, rollout = lifetime.learner, jax.tree.map(lambda x: x[0], rollouts)
    targets, _ = rule.targets(learner.agent, learner.rule_state, rollout)
    loss = lambda agent: gradient(agent, rule, targets, rollout)[1]["loss"]  # noqa: E731
    found = jax.jit(jax.grad(loss))(learner.agent)
    assert dead_leaves(found) == list(named_leaves(found))


@pytest.mark.parametrize("few", [0, 8])
@pytest.mark.parametrize("recording", ["each", "nested"])
def test_it_is_the_gradient_of_the_plain_program(learned_discount, recording, few, monkeypatch):
    """All updates and the outer loss as one function, differentiated by JAX; whether or not the
    first update is compiled apart."""
    monkeypatch.setattr(estimator, "FEW", few)
    rule, lifetime, rollouts, validation = learned_discount
    expected = jax.jit(jax.grad(composed(PROBLEM, lifetime, rollouts, validation)))(rule)
    result = compiled(recording, True)(*learned_discount)
    assert_gradients_close(named_leaves(result.gradient), named_leaves(expected), 1e-10)


def composed(problem, state, experience, validation):
    """The outer loss as a function of the parameters."""

    def loss(params):
        after, auxes = problem.begin(params, state), []
        for i in range(len(jax.tree.leaves(experience)[0])):
            after, aux = problem.inner(params, after, jax.tree.map(lambda x: x[i], experience))  # noqa: B023
            auxes.append(aux)
        return problem.outer(params, after, stack(auxes), validation)[0]

    return loss


def test_finite_differences_of_a_learned_discount(learned_discount, monkeypatch):
    check_finite_differences(learned_discount, monkeypatch)


def test_finite_differences_through_an_agent_with_memory(monkeypatch):
    """Of the two cells, the one with more to remember; both unroll to what they do step by step
    (test_memory.py)."""
    network = NetworkConfig(torso=(6,), memory="lstm", memory_size=3)

    def remembered(seed: int) -> Rollout:
        random, rollout = np.random.default_rng(seed), make_rollout(seed)
        numbers = [jnp.asarray(random.normal(size=(1, B, 3))) for _ in range(2)]
        return dataclasses.replace(rollout, memory=LSTMState(*numbers))

    arguments = under_a_learned_discount(network, remembered)
    assert dead_leaves(compiled()(*arguments).gradient) == []
    check_finite_differences(arguments, monkeypatch)


def test_finite_differences_of_a_residual(monkeypatch):
    config = ResidualConfig(channels=3, hidden=4, mixed=3, life_units=3)
    rule = random_like(lambda: Residual(config, key=jax.random.key(0)), scale=0.3)
    arguments = under(rule, NetworkConfig(torso=(6,)))
    assert dead_leaves(compiled(mixed_mode=True)(*arguments).gradient) == []
    check_finite_differences(arguments, monkeypatch)


# --- Other parameters than a rule ----------------------------------------------------------------


class Descent(eqx.Module):
    """A start and step sizes, as MAML learns them; the number of restarts is no real number."""

    start: Any
    rate: Any
    restarts: Any


class Position(eqx.Module):
    point: Any
    velocity: Any
    steps: Any
    key: Any


@dataclasses.dataclass(frozen=True)
class FromLearnedStart(Problem[Descent, Position, dict]):
    """Gradient descent with momentum from a point that is itself meta-learned."""

    def begin(self, params, state):
        return dataclasses.replace(state, point=params.start)

    def inner(self, params, state, experience, gradient=None):
        slope = jax.grad(lambda x: jnp.sum(jnp.cos(experience * x) * x))(state.point)
        velocity = 0.9 * state.velocity - params.rate * slope
        after = Position(state.point + velocity, velocity, state.steps + 1, state.key)
        return after, {"slope": jnp.sum(slope**2), "steps": state.steps}

    def outer(self, params, state, aux, experience):
        loss = jnp.sum((state.point - experience) ** 2) + 0.1 * jnp.mean(aux["slope"])
        return loss * jnp.sum(params.rate), (state, {"meta_loss": loss, "steps": aux["steps"]})


@pytest.mark.parametrize("few", [0, 8])
@pytest.mark.parametrize("recording", ["each", "nested"])
def test_a_start_that_is_learned(recording, few, monkeypatch):
    """Whether or not the first update is compiled apart."""
    monkeypatch.setattr(estimator, "FEW", few)
    problem, random = FromLearnedStart(), np.random.default_rng(0)
    start, target = (jnp.asarray(random.normal(size=3)) for _ in range(2))
    rate = jnp.array([0.1, 0.2, 0.05])
    state = Position(jnp.zeros(3), jnp.full(3, 0.1), jnp.array(7), jax.random.key(0))
    parts = jnp.asarray(random.normal(size=(6, 3)))

    def loss(start, rate):
        params = Descent(start, rate, jnp.array(2))
        return composed(problem, state, parts, target)(params)

    expected = jax.grad(loss, (0, 1))(start, rate)
    params = Descent(start, rate, jnp.array(2))
    result = compiled(recording, True, problem)(params, state, parts, target)
    np.testing.assert_allclose(result.gradient.start, expected[0], rtol=1e-10)
    np.testing.assert_allclose(result.gradient.rate, expected[1], rtol=1e-10)
    assert result.gradient.restarts is None
    np.testing.assert_array_equal(result.metrics["steps"], np.arange(7, 13))
    assert result.state.steps == 13


@pytest.mark.parametrize("recording", ["each", "nested"])
def test_a_window_is_played_as_it_is_learned(recording, monkeypatch):
    """The experience of each update may depend on the state as it then is."""
    monkeypatch.setattr(estimator, "FEW", 0)
    problem = FromLearnedStart()
    state = Position(jnp.zeros(2), jnp.zeros(2), jnp.array(0), jax.random.key(0))
    params = Descent(jnp.ones(2), jnp.full(2, 0.1), jnp.array(0))

    def play(source, state, key):
        return source + 1, state.point + source, state.steps

    window, source, log = train(
        problem, params, state, jnp.array(0.0), jnp.arange(4), play, recording
    )
    assert source == 4 and log.tolist() == [0, 1, 2, 3]
    assert window.chunk == (1 if recording == "each" else 2)
    after = problem.begin(params, state)
    for i in range(4):
        np.testing.assert_allclose(window.experience[i], after.point + i, rtol=1e-12)
        after, _ = problem.inner(params, after, window.experience[i])
    np.testing.assert_allclose(window.final.point, after.point, rtol=1e-12)
    again = record(problem, params, state, window.experience, recording)
    jax.tree.map(np.testing.assert_array_equal, again.updates.aux, window.updates.aux)
