"""Two estimators of one problem: evolution strategies against gradients, and against what they are
known to estimate."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from etude import rules
from etude.core.types import Rollout
from etude.errors import UserError
from etude.meta.discovery.config import DiscoverConfig
from etude.meta.discovery.estimating import estimator_of, rewards_per_episode
from etude.meta.discovery.rule_optimiser import RuleOptimiser, RuleUpdate
from etude.meta.discovery.run import DiscoveryRun
from etude.meta.estimators import ByEvolution, ByGradient, Estimator, Mixed
from etude.meta.evolution import Evolution
from etude.meta.gradient import record
from etude.meta.problem import Problem
from etude.rules.metagrad import MetaGrad
from etude.runs.lifecycle import execute
from etude.runs.lifecycle import start as start_run
from tests.probes import LearnedDiscount
from tests.test_discovery import TINY

# --- What is estimated ---------------------------------------------------------------------------


def estimate(fitness, params, pairs=40_000, deviation=0.5, shaping="raw", seed=0, **chosen):
    evolution = Evolution(pairs, deviation, shaping)
    key = jax.random.key(seed)
    return jax.jit(lambda p: evolution.gradient(fitness, p, key, **chosen))(params)


def test_the_gradient_of_the_smoothed_loss_is_what_is_expected():
    """Of x³ under noise of variance σ²: 3x² + 3σ². Of a linear and a quadratic loss: the same as
    without noise."""

    def fitness(params, key):
        a, b = params
        return -(a**3 + jnp.sum(b * jnp.array([1.0, -2.0])) + jnp.sum(b**2))

    params = jnp.array(0.3), jnp.array([0.5, -1.0])
    (a, b), told = estimate(fitness, params)
    np.testing.assert_allclose(a, 3 * 0.3**2 + 3 * 0.5**2, atol=0.06)
    np.testing.assert_allclose(b, [1.0 + 1.0, -2.0 - 2.0], atol=0.06)
    noisy = 0.3**3 + 3 * 0.3 * 0.5**2 + 2.5 + 1.25 + 2 * 0.5**2
    np.testing.assert_allclose(told["fitness"], -noisy, atol=0.05)


def test_luck_is_shared_within_a_pair():
    """Noise that both have does not matter, however large."""
    luck = lambda params, key: 100.0 * jax.random.normal(key) - 2.0 * params  # noqa: E731
    gradient, told = estimate(luck, jnp.array(1.0), pairs=4000)
    np.testing.assert_allclose(gradient, 2.0, atol=0.2)
    np.testing.assert_allclose(told["fitness_difference"], 2 * np.sqrt(2 / np.pi), rtol=0.1)


def test_only_what_is_chosen_is_perturbed():
    chosen = {"a": True, "b": False, "number": None}
    params = {"a": jnp.array([1.0, 2.0]), "b": jnp.array(3.0), "number": jnp.array(3)}
    fitness = lambda p, key: -jnp.sum(p["a"] ** 2) * p["b"] * p["number"]  # noqa: E731
    gradient, _ = estimate(fitness, params, pairs=5000, perturbed=chosen)
    assert gradient["b"] == 0.0 and gradient["number"] is None
    np.testing.assert_allclose(gradient["a"], 2 * 3 * 3 * np.array([1.0, 2.0]), rtol=0.1)


@pytest.mark.parametrize("shaping", ["rank", "standard"])
def test_in_what_unit_fitness_is_measured_does_not_matter(shaping):
    fitness = lambda p, key: -jnp.sum((p - 1.0) ** 2)  # noqa: E731
    params, sizes = jnp.array([2.0, 3.0]), dict(pairs=500, deviation=0.1, shaping=shaping)
    gradient, _ = estimate(fitness, params, **sizes)
    same, _ = estimate(lambda p, key: 50.0 * fitness(p, key) + 7.0, params, **sizes)
    np.testing.assert_allclose(same, gradient, rtol=1e-3)
    np.testing.assert_allclose(gradient[1] / gradient[0], 2.0, rtol=0.2)
    flat, _ = estimate(lambda p, key: jnp.zeros(()), params, **sizes)
    np.testing.assert_array_equal(flat, 0.0)


def test_ranks_are_shared_by_what_is_equal():
    rising = lambda p, key: jnp.sign(p)  # noqa: E731
    gradient, _ = estimate(rising, jnp.array(0.0), pairs=4, shaping="rank")
    noise = np.abs([
        jax.random.normal(jax.random.split(jax.random.split(k)[0], 1)[0])
        for k in jax.random.split(jax.random.key(0), 4)
    ])  # fmt: skip
    # Of eight, four are best and four worst, all alike: ± 4/14.
    np.testing.assert_allclose(gradient, -np.sum(noise) * (8 / 14) / (2 * 0.5 * 4), rtol=1e-5)


# --- A problem with a known optimum --------------------------------------------------------------


class Pull(LearnedDiscount):
    """Where an agent is pulled to by each update, and how strongly. A rule, for rules are what the
    optimiser moves."""

    @property
    def aim(self):
        return self.gamma

    @property
    def strength(self):
        return self.value_cost


@dataclasses.dataclass(frozen=True)
class Quadratic(Problem[Pull, Any, dict]):
    """x ← x + strength (aim − x), three times; the loss is the squared distance to a target."""

    def inner(self, params, state, experience, gradient=None):
        return state + params.strength * (params.aim - state) + experience, {}

    def outer(self, params, state, aux, experience):
        loss = jnp.sum((state - experience) ** 2)
        return loss, (state, {"meta_loss": loss})


START, TARGET = jnp.array([3.0, -1.0]), jnp.array([0.5, 1.0])
PARAMS = Pull(jnp.zeros(2), jnp.array(0.2))
EVOLUTION = Evolution(pairs=16, deviation=0.05, shaping="standard")
ESTIMATORS: dict[str, Estimator] = {
    "gradient": ByGradient(),
    "es": ByEvolution(EVOLUTION),
    "mixed": Mixed(EVOLUTION, ("value_cost",)),
}


def estimated(estimator: Estimator, params: Pull, key):
    """On noise that is drawn anew with each key, and shared by all who have the same."""
    problem = Quadratic()

    def window(params, key):
        return record(problem, params, START, 0.1 * jax.random.normal(key, (3, 2)))

    def fitness(params, key):
        own = window(params, key)
        return -problem.outer(params, own.final, own.updates.aux, TARGET)[0]

    return estimator(problem, params, window(params, key), TARGET, fitness, key)


def test_both_estimators_say_the_same_direction():
    many = ByEvolution(Evolution(pairs=4000, deviation=0.02, shaping="raw"))
    exact, found = (
        np.concatenate([np.ravel(x) for x in jax.tree.leaves(mean)])
        for mean in (mean_gradient(ByGradient()), mean_gradient(many))
    )
    assert exact @ found / np.linalg.norm(exact) / np.linalg.norm(found) > 0.99
    np.testing.assert_allclose(found, exact, rtol=0.1, atol=0.1)


def mean_gradient(estimator):
    keys = jax.random.split(jax.random.key(1), 50)
    gradients = jax.jit(
        lambda keys: jax.lax.map(lambda key: estimated(estimator, PARAMS, key).gradient, keys)
    )(keys)
    return jax.tree.map(lambda x: x.mean(axis=0), gradients)


@pytest.mark.parametrize("name", ["gradient", "es", "mixed"])
def test_every_estimator_finds_the_optimum(name):
    """With the optimiser of discovery. Three updates leave (1 − strength)³ of the distance."""
    optimiser = RuleOptimiser.create(DiscoverConfig(meta_average="gradients", meta_clip=0.0))

    def step(carry, key):
        params, state = carry
        result = estimated(ESTIMATORS[name], params, key)
        update = RuleUpdate(result.gradient, jnp.ones((), jnp.int32))
        params, state, _ = optimiser.step(params, update, state, 0.03)
        return (params, state), result.metrics["meta_loss"]

    keys = jax.random.split(jax.random.key(0), 300)
    start = PARAMS, optimiser.shared(PARAMS)
    (params, _), losses = jax.jit(lambda: jax.lax.scan(step, start, keys))()
    reached = params.aim + (1 - params.strength) ** 3 * (START - params.aim)
    np.testing.assert_allclose(reached, TARGET, atol=0.1)
    assert losses[0] > 2.0 and losses[-30:].mean() < 0.1


def test_mixed_takes_each_part_from_its_estimator():
    key = jax.random.key(3)
    found = {
        name: jax.jit(estimated, static_argnums=0)(x, PARAMS, key) for name, x in ESTIMATORS.items()
    }
    mixed, exact = found["mixed"].gradient, found["gradient"].gradient
    np.testing.assert_allclose(mixed.aim, exact.aim, rtol=1e-5)
    # By evolution, but as large as what comes by gradient.
    np.testing.assert_allclose(abs(mixed.strength), np.linalg.norm(exact.aim), rtol=1e-5)
    assert np.sign(mixed.strength) == np.sign(exact.strength)
    assert {"fitness", "fitness_difference"} <= found["mixed"].metrics.keys()
    assert "fitness" not in found["gradient"].metrics


# --- Discovery -----------------------------------------------------------------------------------


def test_rewards_are_counted_per_episode():
    """Two trajectories: one episode ends in the first, a time limit cuts the second."""
    terminal = jnp.zeros((1, 3, 2), bool).at[0, 1, 0].set(True)
    seam = jnp.zeros((1, 3, 2), bool).at[0, 2, 1].set(True)
    reward = jnp.array([[[1.0, 2.0], [3.0, 4.0], [5.0, 100.0]]])
    nothing = jnp.zeros((1, 4, 2, 2))
    rollout = Rollout(nothing, terminal.astype(int), reward, terminal, seam, nothing, ~seam)
    assert rewards_per_episode(rollout) == 15.0 / 4
    assert rewards_per_episode(rollout, rollout) == 15.0 / 4


SMALL = TINY | dict(
    envs="bandit:arms=2,pulls=3",
    agents=2,
    from_="metagrad:tell=false",
    learning_rate=0.5,  # so much, and so much noise, that it shows within two updates
    es_deviation=3.0,
    es_pairs=2,
    meta_steps=2,
    log_every=1,
)


def test_a_run_by_evolution_goes_on_to_the_same_bits(tmp_path):
    settings = SMALL | dict(estimator="mixed")  # which has all that either has
    run = DiscoveryRun.create(DiscoverConfig(**settings))
    whole = execute(run)
    assert all(np.isfinite(r["fitness"]) for r in whole.curve)
    assert any(r["fitness_difference"] > 0 for r in whole.curve)
    folder = start_run(run, str(tmp_path / "run"))
    execute(run, folder, should_stop=lambda: len(folder.metrics()) == 1)
    assert execute(run, folder).summary["rule_sha256"] == rules.digest(whole.rule)
    assert rules.digest(whole.rule) != rules.digest(run.start)


def test_the_estimator_is_chosen_by_the_settings():
    rule = MetaGrad()
    settings = dict(es_pairs=3, es_deviation=0.1, es_fitness="standard")
    of = {k: estimator_of(DiscoverConfig(estimator=k, **settings), rule) for k in ESTIMATORS}
    evolution = Evolution(3, 0.1, "standard")
    expected = Mixed(evolution, ("coefficients",))
    assert of == {"gradient": ByGradient(), "es": ByEvolution(evolution), "mixed": expected}


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (dict(estimator="mixed"), "disco has no schedule"),
        (dict(estimator="es", collect="ahead"), "needs --collect fresh"),
        (dict(estimator="es", envs="gym/CartPole-v1"), "where JAX plays; gym/CartPole-v1 runs"),
        (dict(es_pairs=0), "es_pairs must be"),
        (dict(es_deviation=0.0), "es_deviation must be"),
    ],
)
def test_settings_of_evolution_that_make_no_sense_get_a_sentence(settings, words):
    with pytest.raises(UserError, match=words):
        DiscoveryRun.untraced(DiscoverConfig(**TINY | settings))
