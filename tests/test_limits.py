"""Before hours are spent: what a run would need is estimated, and what ends one is named."""

import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from etude import envs, plugins
from etude.adaptation.config import AdaptConfig
from etude.adaptation.run import AdaptRun, judged
from etude.api import train
from etude.errors import UserError
from etude.meta.discovery.check import Outcome
from etude.meta.discovery.config import DiscoverConfig
from etude.meta.discovery.run import DiscoveryRun
from etude.runs import estimates, failing
from etude.stats import t_interval
from etude.text import size
from etude.training.config import TrainRequest
from etude.training.planning import plan_named
from etude.training.run import TrainRun

SMALL = dict(rule="actor_critic", torso=(8,), batch=8, rollout=4, steps=320)


def untraced(**settings: object) -> TrainRun:
    return TrainRun.untraced(plan_named(TrainRequest(**SMALL | settings)).plan)


def test_memory_is_what_a_program_is_given_and_the_largest_that_it_holds():
    def scanned(x):  # carries 100 numbers, and stacks 1000 times as many
        return jax.lax.scan(lambda carry, _: (carry * 2.0, carry), x, length=1000)

    needs = estimates.needs_of(jax.jit(scanned).lower(jax.ShapeDtypeStruct((100,), jnp.float32)))
    assert needs.memory == 4 * (100 + 100 + 100_000 + 1)  # one of them counts
    doubled = jax.jit(lambda x: jax.jit(jnp.sin)(jax.jit(jnp.sin)(x))).lower(1.0)
    once = jax.jit(lambda x: jax.jit(jnp.sin)(x)).lower(1.0)
    assert estimates.needs_of(doubled).operations > estimates.needs_of(once).operations


def test_the_estimate_is_a_lower_bound_near_what_is_compiled():
    run = untraced(env="catch", seeds=64, torso=(64, 64))
    found = run._compiled[0].memory_analysis()
    needed = found.argument_size_in_bytes + found.temp_size_in_bytes
    estimate = estimates.needs_of_all(run.traced(), run.shapes()).memory
    assert 0.4 * needed < estimate < 1.1 * needed


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        (dict(seeds=10**6), "--seeds 1000000"),
        (dict(torso=(10**7, 10**6)), "--torso 10000000 1000000"),
        (dict(replay_share=0.5, replay_capacity=10**9), "--replay-capacity 1000000000"),
        (dict(log_every=10**9, steps=10**14), "--log-every 1000000000"),
        (dict(env="catch:rows=100000000", batch=2), "--env catch:rows=100000000"),
    ],
)
def test_what_memory_cannot_hold_is_refused_and_the_setting_named(settings, named, monkeypatch):
    monkeypatch.setattr(estimates, "free_memory", lambda: 1 << 30)
    run = untraced(**settings)
    with pytest.raises(UserError, match=r"at least .* of memory, where 1.07 GB is free") as error:
        estimates.require_possible(run)
    assert f"What costs most is {named}. To run it anyway: --force" in str(error.value)
    with estimates.forcing(True):
        estimates.require_possible(run)


def test_other_kinds_of_run_are_estimated_before_anything_is_drawn():
    bandit: dict = dict(tasks="bandit:arms=2,pulls=4", hidden=8, batch=8)
    with pytest.raises(UserError, match="costs most is --test-tasks 1000000000"):
        AdaptRun.create(AdaptConfig(test_tasks=10**9, **bandit))
    run = AdaptRun.untraced(AdaptConfig(**bandit))
    with pytest.raises(UserError, match="costs most is --test-tasks 1000000000"):
        judged(run, run.init().policy, 10**9)


def test_a_task_that_memory_cannot_hold_is_not_drawn(monkeypatch):
    monkeypatch.setattr(estimates, "free_memory", lambda: 1 << 20)
    assert envs.make("tabular_mdp:states=50").num_actions == 5  # 50 kB
    with pytest.raises(UserError, match=r"at least 7.22 MB of .* most is a task of TabularMDP\."):
        envs.make("tabular_mdp:states=300")


def test_agents_of_a_population_count():
    config = DiscoverConfig(envs="catch:rows=3,columns=3", agents=10**9, check_every=0, torso=(8,))
    run = DiscoveryRun.untraced(config)
    assert estimates.bytes_of(run.shapes()) > 10**9


def test_a_program_of_too_many_operations_is_refused(monkeypatch):
    monkeypatch.setattr(estimates, "MOST_OPERATIONS", 3000)
    with pytest.raises(UserError, match=r"costs most is --torso 8 8 8 .* --force"):
        estimates.require_possible(untraced(env="catch", torso=(8,) * 8))


def test_sizes_in_words():
    assert [size(x) for x in (800, 1500, 2.5e9, 3e15)] == ["800 B", "1.5 kB", "2.5 GB", "3,000 TB"]


# --- What ends a run ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("how", "words"),
    [
        (
            "raise",
            r"failed in update 1 \(environment steps 1 to 32\): RuntimeError: the gl",
        ),
        ("inf", r"stopped at update 1 \(environment step 32, .*\): the observation is inf"),
    ],
)
def test_an_environment_in_jax_that_goes_wrong_is_named(how, words, capfd):
    with pytest.raises(UserError, match=words):
        train(f"tests.probes:Broken:how={how}", **SMALL)
    assert "Traceback" not in capfd.readouterr().err


@pytest.mark.parametrize(
    ("what", "kind"),
    [("reward", "complex64"), ("observation", "complex64"), ("terminated", "float32")],
)
def test_numbers_of_the_wrong_kind_are_refused(what, kind):
    with pytest.raises(UserError, match=f"must give its {what} as .*, not {kind}"):
        envs.make(f"tests.probes:OfKind:what={what},kind={kind}")


def test_a_module_that_exits_ends_with_a_sentence(tmp_path, monkeypatch):
    (tmp_path / "exits_at_once.py").write_text("import sys; sys.exit(0)")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    for make in (envs.make, plugins.import_class):
        with pytest.raises(UserError, match=r"cannot be imported: it calls sys.exit\(0\)"):
            make("exits_at_once:Env")


def test_when_memory_runs_out_the_setting_that_costs_it_is_named():
    run = untraced(env="catch", seeds=64)
    ended = jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 9 bytes.")
    with (
        pytest.raises(UserError, match=r"Memory has run out: .*costs most of it is --seeds 64\."),
        failing.explained(run, 3, 2),
    ):
        raise ended


# --- Tables that compare --------------------------------------------------------------------------


def test_the_same_rule_on_the_same_seeds_gains_exactly_nothing():
    returns = np.array([0.1, 0.7, np.nan, -0.3])
    assert Outcome(returns).minus(Outcome(returns)).describe() == {"mean": 0, "low": 0, "high": 0}
    better = Outcome(np.array([1.0, 2.0])).minus(Outcome(np.array([0.5, 1.5]))).describe()
    assert better == {"mean": 0.5, "low": 0.5, "high": 0.5}


def test_an_interval_of_values_too_large_for_their_squares_is_infinite():
    """A file may hold such; found by `make fuzz`."""
    mean, low, high = t_interval(np.array([1e308, -1e308]))
    assert (mean, low, high) == (0.0, -np.inf, np.inf)
