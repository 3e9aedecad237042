"""The residual rule: at the start the actor-critic, and what it may add to it."""

import dataclasses
import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import etude
from etude import envs, rules
from etude.core.agent import Agent, NetworkConfig
from etude.core.learner import Learner, update
from etude.core.optim import adam, apply_gradient
from etude.rules.residual.network import FARTHEST, shifted_trace
from etude.rules.residual.reading import ACTION_INPUTS, LIFE_INPUTS, STATE_INPUTS
from etude.rules.residual.rule import Residual, ResidualConfig
from etude.runs.storage import sha256_of
from etude.settings import Settings
from etude.training.config import BASE, TrainPlan
from etude.training.iteration import Training
from tests.conftest import random_like
from tests.test_learner import ACTIONS, OBSERVATION, dead_leaves, make_rollout

CONFIG = ResidualConfig(channels=3, hidden=4, mixed=3, life_units=3)
OPTIMISER = adam(1e-2)


@pytest.fixture
def rule() -> Residual:
    return random_like(lambda: Residual(CONFIG, key=jax.random.key(0)))


def make_learner(rule: Residual, actions: int = ACTIONS) -> Learner:
    network = NetworkConfig(torso=(6, 5))
    make = lambda: Agent(  # noqa: E731
        jnp.zeros(OBSERVATION), actions, rule.heads(actions), network, key=jax.random.key(0)
    )
    return Learner.create(random_like(make), rule, OPTIMISER, updates=20)


@functools.cache
def compiled(of: str):
    """Of a learner some way into its life: `targets`, or all of an update."""

    def targets(rule, learner, rollout):
        return rule.targets(learner.agent, learner.rule_state, rollout)[0]

    def updated(rule, learner, rollout):
        return update(rule, OPTIMISER, learner, rollout)

    return jax.jit({"targets": targets, "update": updated}[of])


# --- The start -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "settings",
    ["bins=0,normalise=false", "bins=0,relative_entropy=true,scale_values=true,entropy_cost=0.02"],
)
def test_a_new_one_is_the_actor_critic_to_the_bit(settings):
    """A hundred updates of one agent. (Where several are one program, the compiler may add up in
    another order whatever else there is to be computed.)"""
    env = "catch:rows=4,columns=3"
    how = dict(env=env, batch=4, rollout=5, torso=(8,), learning_rate=1e-2, log_every=100)
    training = Training.create(envs.make_jax(env), TrainPlan.of(BASE | how))

    @jax.jit
    def trained(rule):
        state = training.init(rule, jax.random.key(0))
        return training.run(rule, state, 100, 100)[0].learner.agent

    kinds = ("actor_critic", "residual")
    digests = {sha256_of(trained(rules.load(f"{kind}:{settings}"))) for kind in kinds}
    assert len(digests) == 1


def test_a_trace_shifted_by_nothing_is_as_it_was_and_any_other_is_a_share():
    by = jnp.linspace(-FARTHEST, FARTHEST, 9)
    for trace in (0.0, 0.3, 0.95, 1.0):
        assert shifted_trace(trace, jnp.zeros(())) == 0.0
        shifted = trace + shifted_trace(trace, by)
        assert np.all((shifted >= 0.0) & (shifted <= 1.0))
        if 0.0 < trace < 1.0:
            odds = np.log(shifted / (1.0 - shifted)) - np.log(trace / (1.0 - trace))
            np.testing.assert_allclose(odds, by, rtol=1e-3, atol=1e-4)


# --- What it adds --------------------------------------------------------------------------------


def test_the_order_of_actions_does_not_matter(rule, x64):
    """Renamed actions: the same residuals, under their new names."""
    learner, rollout = make_learner(rule), make_rollout()
    order = jnp.array([2, 0, 1])  # the new name of each action
    back = jnp.argsort(order)
    other = eqx.tree_at(
        lambda x: (x.agent.head["pi"].w, x.agent.head["pi"].b),
        learner,
        replace_fn=lambda x: x[..., back],
    )
    logits = rollout.behaviour_logits[..., back]
    as_renamed = dataclasses.replace(rollout, action=order[rollout.action], behaviour_logits=logits)
    expected = compiled("targets")(rule, learner, rollout).residual[..., back]
    residual = compiled("targets")(rule, other, as_renamed).residual
    np.testing.assert_allclose(residual, expected, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(np.sum(residual, axis=-1), 0.0, atol=1e-12)
    assert np.std(residual) > 1e-3


def test_it_looks_ahead_to_the_end_of_an_episode_and_no_further(x64):
    """In a trajectory whose first episode has two steps."""
    wide = dataclasses.replace(CONFIG, mixed=32)  # of so many units, some are open everywhere
    network = random_like(lambda: Residual(wide, key=jax.random.key(0))).network
    assert network is not None
    rollout = make_rollout(steps=6)
    reading, states, life = (
        jnp.asarray(np.random.default_rng(0).normal(size=(6, 3, *shape)))
        for shape in ((ACTIONS, len(ACTION_INPUTS)), (len(STATE_INPUTS),), ())
    )
    life = life.ravel()[: len(LIFE_INPUTS)]

    def added(states):
        ends = rollout.segment_ends
        return network(reading, states, life, rollout.action, ends)[:, 0]

    influence = jax.jit(jax.jacobian(added))(states)[..., 0, :]  # step, action, of which step
    matters = np.any(influence, axis=(1, 3))
    episode = np.array([0, 0, 1, 1, 1, 1])
    ahead = np.triu(np.ones((6, 6), bool)) & (episode[:, None] == episode)
    np.testing.assert_array_equal(matters, ahead)


def test_every_part_of_it_learns_and_none_of_the_agent_is_dead(rule, x64):
    learner, _ = compiled("update")(rule, make_learner(rule), make_rollout(0))
    learner, metrics = compiled("update")(rule, learner, make_rollout(1))  # there are statistics
    assert learner.rule_state.updates == 2 and learner.rule_state.expected == 20
    assert np.all(np.isfinite(learner.rule_state.statistics))
    assert {"step_scale", "entropy_scale", "trace", "residual"} <= metrics.keys()

    def distance(rule):
        after, _ = update(rule, OPTIMISER, learner, make_rollout(2))
        return sum(jnp.sum(jnp.sin(x)) for x in jax.tree.leaves(after.agent))

    assert dead_leaves(jax.jit(jax.grad(distance))(rule)) == []


def test_without_either_part_there_is_the_other():
    def targets(**parts: bool):
        config = dataclasses.replace(CONFIG, **parts)
        rule = random_like(lambda: Residual(config, key=jax.random.key(0)))
        learner = make_learner(rule)
        return rule.targets(learner.agent, learner.rule_state, make_rollout())[0]

    schedule = targets(residual=False)
    assert schedule.residual is None and schedule.step_scale != 1.0
    network = targets(schedule=False)
    assert np.any(network.residual)
    assert (network.step_scale, network.entropy_scale) == (1.0, 1.0)


def test_a_step_is_scaled_by_our_optimisers_and_by_those_of_others():
    params, gradient = jnp.array([1.0, -2.0]), jnp.array([0.5, 0.25])
    for optimiser in (OPTIMISER, optax.flatten(OPTIMISER), optax.sgd(0.1)):
        state = optimiser.init(params)
        whole, _ = apply_gradient(optimiser, gradient, state, params)
        half, _ = apply_gradient(optimiser, gradient, state, params, jnp.array(0.5))
        np.testing.assert_allclose(half - params, 0.5 * (whole - params), rtol=1e-3)
        assert np.all(whole != params)


# --- From end to end -----------------------------------------------------------------------------


def test_it_is_discovered_kept_and_used(tmp_path):
    small: Settings = dict(agents=1, meta_steps=2, inner_updates=2, rollout=3, batch=4, torso=(6,))
    small |= dict(validation_rollout=4, validation_batch=4, value_torso=(5,), log_every=1)
    small |= dict(check_every=0, budgets=(200,), relative_entropy=True)
    start = "residual:channels=2,hidden=2,mixed=2,life_units=2,relative_entropy=true"
    found = etude.discover("catch:rows=4,columns=3", start, out=str(tmp_path / "found"), **small)
    again = rules.load(str(tmp_path / "found"))
    assert rules.digest(again) == found.summary["rule_sha256"]
    assert rules.spec_of(again) == rules.spec_of(rules.load(start))
    assert not {"network.out.w", "life.out.w"} & {*dead_leaves(again)}, "they start at zero"
    how: Settings = dict(steps=200, batch=4, rollout=5, torso=(8,), log_every=100)
    trained = etude.train("catch:rows=4,columns=3", str(tmp_path / "found"), **how)
    assert rules.spec_of(trained.rule) == rules.spec_of(again)
