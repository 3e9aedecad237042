"""Meta-learning on simulators outside JAX: the same numbers as inside."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from etude.acting.host_source import HostSource
from etude.core.agent import Agent, Heads
from etude.core.config import NetworkConfig
from etude.envs import make
from etude.envs.host.gym_envs import GymEnvs
from etude.errors import UserError
from etude.meta.discovery.check import Check
from etude.meta.discovery.config import DiscoverConfig
from etude.meta.discovery.run import DiscoveryRun
from etude.meta.online_run import training_run
from etude.rules.metagrad import MetaGrad, MetaGradConfig
from etude.runs import lifecycle
from etude.training.config import TrainRequest
from etude.training.planning import plan_named
from tests.probes import LearnedDiscount
from tests.test_discovery import TINY

INSIDE, OUTSIDE = "tests.probes:CorridorInJax", "tests.host_probes:Corridor"
LIVES = dict(agents=2, meta_steps=2, log_every=1, budgets=(10**6,))


def learned_discount():
    return LearnedDiscount(jnp.array(0.3), jnp.array(-0.5))


def assert_close(inside, outside, rtol=1e-5):
    """But for rounding: the programs are others. Relative to the largest of an array's entries."""
    for a, b in zip(*map(jax.tree.leaves, (inside, outside)), strict=True):
        np.testing.assert_allclose(b, a, rtol, atol=rtol * np.abs(a).max())


def moved(before, after):
    return [np.any(a != b) for a, b in zip(*map(jax.tree.leaves, (before, after)), strict=True)]


def after_a_step(run):
    start = run.init()
    state, metrics = run.advance(run.init(), 0, 1)
    run.close()
    return start, state, metrics


@pytest.mark.parametrize(
    "rule, settings",
    [
        (learned_discount, dict(collect="ahead", inner_updates=9, record="nested")),
        (lambda: MetaGrad(MetaGradConfig()), dict(memory="gru", memory_size=3)),
    ],
    ids=["ahead and nested", "memory and context"],
)
def test_a_meta_step_of_discovery_is_the_same_outside_jax(rule, settings):
    found = []
    for env in (INSIDE, OUTSIDE):
        config = DiscoverConfig(**TINY | LIVES | settings | dict(envs=env))
        start, state, metrics = after_a_step(DiscoveryRun.create(config, rule()))
        (played,), (seats,) = metrics["played"].values(), state.seats
        moments = seats.optimiser_state[1]  # of one step: multiples of the meta-gradient
        assert all(moved(start.rule, state.rule)), "a part of the rule is dead"
        found.append((state.rule, moments, seats.member.lifetime, seats.member.age, played))
        np.testing.assert_array_equal(jax.random.key_data(seats.key), next_keys(start))
    assert_close(*found)


def next_keys(state):
    (seats,) = state.seats
    return jax.random.key_data(jax.vmap(lambda key: jax.random.split(key, 3)[2])(seats.key))


def test_a_window_of_online_learning_is_the_same_outside_jax():
    found = []
    for env in (INSIDE, OUTSIDE):
        settings = dict(batch=4, rollout=6, inner_updates=2, outer_rollout=8, torso=(6,), seeds=2)
        request = TrainRequest(env=env, rule="metagrad", **settings)
        start, state, metrics = after_a_step(training_run(plan_named(request).plan))
        assert any(moved(start.rule, state.rule))
        learned = (state.rule, state.meta_optimiser_state, state.learner, state.reference_state)
        found.append((learned, state.world.episodes, metrics))
    assert_close(*found)


@pytest.fixture(scope="module")
def mixed():
    envs = f"catch:rows=4,columns=3,{OUTSIDE}"
    changes = dict(envs=envs, meta_steps=3, meta_schedule="constant", budgets=(60,), replay=0.5)
    config = DiscoverConfig(**TINY | LIVES | changes)
    return DiscoveryRun.create(config, MetaGrad(MetaGradConfig()))


def test_a_population_inside_and_outside_jax_stops_and_goes_on(mixed, tmp_path):
    folder = lifecycle.start(mixed, str(tmp_path / "run"))
    stop = iter([False, False, True])
    first = lifecycle.execute(mixed, folder, should_stop=lambda: next(stop))
    assert first.done == 2 and not any(part.group.collectors for part in mixed.parts)
    assert set(first.curve[-1]["returns"]) == set(mixed.config.env_names)
    assert first.curve[-1]["resets"] >= 2, "no agent was replaced"
    (note,) = mixed.notes(resumed=True)
    assert OUTSIDE in note and "begin new episodes" in note and not mixed.notes()
    whole = lifecycle.execute(mixed, folder)
    assert whole.done == 3 and len(whole.curve) == 3
    assert any(moved(first.rule, whole.rule))


def test_a_simulator_that_fails_ends_a_run_of_discovery_and_is_closed(mixed, monkeypatch):
    def broken(self, i, action):
        raise RuntimeError("the glass is broken")

    closed = []
    monkeypatch.setattr(GymEnvs, "_step", broken)
    monkeypatch.setattr(GymEnvs, "close", lambda self: closed.append(self))
    with pytest.raises(UserError, match="the glass is broken"):
        lifecycle.execute(mixed)
    assert len(closed) == 2 and not mixed.parts[1].group.collectors


def test_who_takes_another_place_remembers_nothing_of_its_episodes():
    config = NetworkConfig(torso=(4,), memory="gru", memory_size=3)
    task = make(OUTSIDE)
    agent = Agent(task.observation, 2, Heads({"pi": 2}), config, key=jax.random.key(3))
    source = HostSource(task, 2, 3, lambda leaves: (agent, None))
    keys = jax.random.split(jax.random.key(0), 2)
    source.collect([], keys, 2)  # no episode is so short
    source.forget(np.array([False, True]))
    rollout, _ = source.collect([], keys, 2)
    source.close()
    (memory,) = jax.tree.leaves(rollout.memory)
    assert memory[0, 0].any() and not memory[0, 1].any()
    assert (rollout.observation[0, ..., 1] == 2).all(), "the episodes go on"


def test_rules_are_checked_outside_jax_by_ordinary_training():
    changes = dict(envs=OUTSIDE, check_updates=12, check_seeds=2)
    check = Check([make(OUTSIDE)], DiscoverConfig(**TINY | changes))
    check.trace(learned_discount())
    outcomes = [check.baseline(), check.baseline(), check.untrained(), check.baseline(fresh=True)]
    first, again, untrained, fresh = (x[OUTSIDE].returns for x in outcomes)
    np.testing.assert_array_equal(first, again)
    assert np.isfinite([first, untrained, fresh]).all()
    assert (first != untrained).any() and (first != fresh).any()
