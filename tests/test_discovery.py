"""Discovery: the population's lifetimes, what each agent adds to the rule, stop and go on."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from etude import rules
from etude.api import train
from etude.core.optim import AdamState
from etude.core.types import Rollout
from etude.envs import make
from etude.errors import UserError
from etude.meta.discovery.check import Check, Outcome, area, score
from etude.meta.discovery.config import DiscoverConfig
from etude.meta.discovery.population import Group, rewards_of
from etude.meta.discovery.report import describe
from etude.meta.discovery.rule_optimiser import all_finite
from etude.meta.discovery.run import DiscoveryRun, kept_rule
from etude.meta.discovery.saved import read_config
from etude.rules import Rule
from etude.rules.actor_critic import ActorCritic
from etude.rules.disco.rule import Disco
from etude.rules.metagrad import MetaGrad, MetaGradConfig
from etude.runs import loop
from etude.runs.folder import RunFolder
from etude.runs.formats import DiscoverRecord
from etude.runs.lifecycle import execute
from etude.runs.lifecycle import start as start_run
from etude.settings import split_specs
from etude.training.config import TrainRequest
from etude.training.planning import plan_named
from tests.conftest import random_like
from tests.probes import LearnedDiscount
from tests.test_cli import logged
from tests.test_learner import CONFIG

TINY = dict(
    envs="catch:rows=4,columns=3",
    inner_updates=2,
    rollout=3,
    batch=4,
    validation_rollout=4,
    validation_batch=4,
    torso=(6,),
    model=4,
    head=4,
    value_torso=(5,),
    meta_steps=6,
    log_every=2,
    check_every=0,
    budgets=(200, 100),
    record="each",
)
RECURRENT = TINY | dict(memory="gru", memory_size=3)


@pytest.fixture(scope="module")
def rule() -> Rule:
    """The population knows no rule by name, and this one compiles fast."""
    return LearnedDiscount(jnp.array(0.3), jnp.array(-0.5))


@pytest.fixture(scope="module")
def group() -> Group:
    return Group.create(make("catch:rows=4,columns=3"), DiscoverConfig(**TINY))


@pytest.fixture(scope="module")
def seats(group, rule):
    """Three agents. Adam's moments are such that its steps are a tenth of the gradients."""
    keys = jax.random.split(jax.random.key(1), 3)
    seats = jax.jit(jax.vmap(group.new_seat, in_axes=(None, 0)))(rule, keys)
    state = seats.optimiser_state[1]
    late = AdamState(state.steps + 10**6, state.mu, jax.tree.map(jnp.ones_like, state.nu))
    return eqx.tree_at(lambda s: s.optimiser_state[1], seats, late)


@pytest.fixture(scope="module")
def advance(group):
    """A meta-step with the resets that follow from it."""
    programs = jax.jit(group.advance), jax.jit(group.replace)

    def both(rule, seats):
        update, seats, metrics = programs[0](rule, seats)
        return update, programs[1](rule, seats, metrics["over"])

    return both


def pick(seats, *indices):
    return jax.tree.map(lambda x: x[jnp.array(indices)], seats)


def assert_same_sum(actual: Rule, parts: list[Rule]) -> None:
    """Equal to the sum of the parts, relative to the largest of the entries."""
    for total, *each in zip(*map(jax.tree.leaves, (actual, *parts)), strict=True):
        np.testing.assert_allclose(total, sum(each), rtol=1e-2, atol=1e-4 * np.abs(total).max())


def test_the_sum_of_updates_is_that_of_each_agent_alone(rule, seats, advance):
    together, _ = advance(rule, seats)
    thrice = [advance(rule, pick(seats, i, i, i))[0].total for i in range(3)]
    assert together.agents == 3
    assert all(np.any(x) for x in jax.tree.leaves(together.total)), "no part of the rule is dead"
    assert_same_sum(jax.tree.map(lambda x: 3 * x, together.total), thrice)


def test_an_agent_is_reset_when_its_budget_is_spent(group, rule, seats, advance):
    budget = jnp.array([10**6, 1, 10**6], jnp.int32)
    short = eqx.tree_at(lambda s: s.member.budget, seats, budget)
    _, after = advance(rule, short)
    steps = group.steps_per_meta_step
    np.testing.assert_array_equal(after.resets, [0, 1, 0])
    np.testing.assert_array_equal(
        after.member.age, [*(seats.member.age[:1] + steps), 0, *(seats.member.age[2:] + steps)]
    )
    adam = after.member.lifetime.learner.optimiser_state[0]
    np.testing.assert_array_equal(adam.steps, [2, 0, 2])
    assert after.member.budget[1] in (100, 200)
    meta_adam = after.optimiser_state[1]
    np.testing.assert_array_equal(meta_adam.steps, 10**6 + 1)  # outlives the agent


def test_a_bad_meta_gradient_is_dropped_and_counted_and_its_agent_reset(rule, seats, advance):
    bias = seats.member.lifetime.learner.agent.head["pi"].b
    bad = eqx.tree_at(
        lambda s: s.member.lifetime.learner.agent.head["pi"].b, seats, bias.at[1, 0].set(jnp.nan)
    )
    update, after = advance(rule, bad)
    thrice = [advance(rule, pick(seats, i, i, i))[0].total for i in (0, 2)]
    assert update.agents == 2
    assert_same_sum(jax.tree.map(lambda x: 3 * x, update.total), thrice)
    np.testing.assert_array_equal(after.skipped, [0, 1, 0])
    np.testing.assert_array_equal(after.resets, [0, 1, 0])
    np.testing.assert_array_equal(after.optimiser_state[1].steps - 10**6, [1, 0, 1])
    assert all_finite((after.member.lifetime, after.optimiser_state))


def behaviour_is_that_of(agent, rollout) -> bool:
    logits = agent.logits(rollout)
    return np.allclose(logits, rollout.behaviour_logits, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("memory", ["none", "gru"])
@pytest.mark.parametrize("collect", ["fresh", "ahead"])
def test_each_batch_is_played_by_the_agent_as_it_then_is_or_by_the_first(rule, collect, memory):
    settings = dict(inner_updates=4, learning_rate=0.1, collect=collect)
    config = DiscoverConfig(**(TINY if memory == "none" else RECURRENT) | settings)
    group = Group.create(make("catch:rows=4,columns=3"), config)
    keys = jax.random.split(jax.random.key(2), 3)
    member = jax.jit(group.new_member)(rule, keys[0])
    after, window, validation, _ = jax.jit(group.live)(rule, member, *keys[1:])
    lifetime = member.lifetime
    first, inner = lifetime.learner.agent, jax.jit(group.problem.inner)
    for i in range(4):
        rollout = jax.tree.map(lambda x, i=i: x[i], window.experience)
        fresh = behaviour_is_that_of(lifetime.learner.agent, rollout)
        assert fresh == (collect == "fresh" or i == 0)
        assert behaviour_is_that_of(first, rollout) == (collect == "ahead" or i == 0)
        lifetime, _ = inner(rule, lifetime, rollout)
    last = lifetime.learner.agent
    assert behaviour_is_that_of(last, validation) == (collect == "fresh")
    assert behaviour_is_that_of(first, validation) == (collect == "ahead")
    assert after.age == group.steps_per_meta_step


@pytest.mark.parametrize("cell, gate", [("gru", False), ("lstm", True)])
def test_what_agents_remember_enters_the_window_and_validation(rule, cell, gate):
    settings = RECURRENT | dict(memory=cell, memory_gate=gate, rollout=2)  # cuts episodes of 3
    config = DiscoverConfig(**settings)
    group = Group.create(make("catch:rows=4,columns=3"), config)
    keys = jax.random.split(jax.random.key(2), 5)
    seat = jax.jit(group.new_seat)(rule, keys[0])
    live = jax.jit(group.live)
    member = live(rule, seat.member, *keys[1:3])[0]  # from now on there is something to remember
    _, window, validation, _ = live(rule, member, *keys[3:])
    first = jax.tree.map(lambda x: x[0], window.experience)
    for agent, rollout in (
        (window.start.learner.agent, first),
        (window.final.learner.agent, validation),
    ):
        assert all((x != 0).any() for x in jax.tree.leaves(rollout.memory))
        blank = jax.tree.map(jnp.zeros_like, rollout.memory)
        forgetful = dataclasses.replace(rollout, memory=blank)
        assert behaviour_is_that_of(agent, rollout) and not behaviour_is_that_of(agent, forgetful)
    seats = jax.tree.map(lambda x: x[None], seat)
    update, _, _ = jax.jit(group.advance)(rule, seats)
    for x in jax.tree.leaves(update.total):
        assert jnp.isfinite(x).all() and (x != 0).all(), "no part of the rule is dead"


def test_rewards_are_counted_and_averaged_over_real_transitions():
    reward = jnp.array([[[1.0, -1.0], [0.5, 0.0]], [[2.0, -3.0], [9.0, 0.0]]])
    seam = jnp.zeros(reward.shape, bool).at[1, 1, 0].set(True)
    blank = jnp.zeros(reward.shape, bool)
    logits = jnp.zeros((2, 3, 2, 2))
    batches = Rollout(logits, blank.astype(int), reward, blank, seam, logits, ~seam)
    found = rewards_of(batches)
    assert (found["positive_rewards"], found["negative_rewards"]) == (3, 2)
    np.testing.assert_allclose(found["reward"], -0.5 / 7)


def test_short_lifetimes_are_drawn_more_often(group, rule):
    keys = jax.random.split(jax.random.key(0), 3000)
    budgets = jax.jit(jax.vmap(lambda key: group.new_member(rule, key).budget))(keys)
    share = np.mean(np.asarray(budgets) == 100)
    assert abs(share - 2 / 3) < 0.04  # odds of 1/100 against 1/200


def test_first_ages_are_spread_over_the_lifetimes(group, rule):
    keys = jax.random.split(jax.random.key(0), 3000)
    member = jax.jit(jax.vmap(lambda key: group.new_seat(rule, key).member))(keys)
    share = np.asarray(member.age) / np.asarray(member.budget)
    assert abs(share.mean() - 0.5) < 0.03 and share.max() < 1.0


def test_a_list_of_environments():
    text = "catch:rows=5,columns=6, gymnax/CartPole-v1,my:Env:size=4,catch"
    expected = ["catch:rows=5,columns=6", "gymnax/CartPole-v1", "my:Env:size=4", "catch"]
    assert split_specs(text) == expected


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (dict(envs=""), "at least one environment"),
        (dict(envs="catch,katch"), "did you mean 'catch'"),
        (dict(envs="catch,catch:rows=5", agents=1), "agents must be at least 2"),
        (dict(envs="catch,catch:rows=5,catch"), "names catch twice"),
        (dict(from_="actor_critic"), "has no parameters"),
        (dict(from_="metagrad:per_state=true", envs="catch,bandit"), "observations of one form"),
        (dict(conv=(4,), held_out="bandit", check_every=1, from_="metagrad"), "torso needs"),
        (dict(from_="nowhere"), "There is no rule"),
        (dict(select_on="catch"), "--select-on needs checks"),
        (dict(patience=2), "--patience needs checks"),
        (dict(select_on="bandit", held_out="bandit", check_every=1), "which --held-out names too"),
        (dict(select_on="gym/CartPole-v1", check_every=1), "is for environments in JAX"),
        (dict(from_="disco103", size="paper"), "--size is for a random rule"),
        (dict(memory_gate=True), "--memory-gate is for agents with memory"),
        (dict(inner_updates=0), "inner_updates must be"),
        (dict(budgets=(100, 0)), "budgets must be"),
        (dict(batch=1, replay=0.5), "no room for a replay share"),
        (dict(conv=(4,), envs="gymnax/CartPole-v1"), "convolutional torso needs"),
    ],
)
def test_settings_that_make_no_sense_get_a_sentence(settings, words):
    with pytest.raises(UserError, match=words):
        DiscoveryRun.create(DiscoverConfig(**TINY | settings))


def outcomes(**returns) -> dict[str, Outcome]:
    return {name: Outcome(np.array(values, float)) for name, values in returns.items()}


def test_the_score_is_0_for_an_untrained_agent_and_1_for_the_baseline():
    baseline, floor = outcomes(a=[3, 5], b=[-1]), outcomes(a=[2], b=[-2])
    assert score(baseline, baseline, floor, ["a", "b"]) == pytest.approx(1.0)
    assert score(floor, baseline, floor, ["a", "b"]) == pytest.approx(0.0)


def test_no_environment_outweighs_the_others_because_its_baseline_does_not_learn():
    baseline, floor = outcomes(a=[4], b=[0]), outcomes(a=[2], b=[0])
    assert score(outcomes(a=[2], b=[0.01]), baseline, floor, ["a", "b"]) == pytest.approx(0.05)


def test_areas_are_means_over_updates_and_what_is_not_known_goes_on():
    episodes = np.array([[0, 2, 0, 1], [0, 0, 0, 0], [1, 1, 1, 1]])
    total = np.array([[0.0, 2.0, 0.0, 5.0], [0.0] * 4, [1.0, 2.0, 3.0, 4.0]])
    np.testing.assert_array_equal(area(episodes, total), [2.0, np.nan, 2.5])


def test_whole_lives_are_scored_by_their_areas_and_nobody_knows_that_of_the_untrained():
    flat, steep = Outcome(np.array([1.0]), np.array([0.2])), Outcome(np.ones(1), np.array([0.8]))
    untrained = {"a": Outcome(np.zeros(1))}
    assert score({"a": steep}, {"a": flat}, untrained, ["a"]) == 1.0
    assert score({"a": steep}, {"a": flat}, untrained, ["a"], whole_lives=True) == pytest.approx(
        4.0
    )
    assert steep.minus(flat).describe()["area"] == pytest.approx(0.6)


def test_where_no_episode_ends_there_is_nothing_to_score():
    baseline, floor = outcomes(a=[4], b=[np.nan]), outcomes(a=[2], b=[np.nan])
    found = outcomes(a=[3, np.nan], b=[np.nan])
    assert score(found, baseline, floor, ["a", "b"]) == pytest.approx(0.5)
    assert score(found, baseline, floor, ["b"]) == -np.inf
    assert found["b"].describe()["mean"] is None and found["a"].describe()["mean"] == 3.0


def test_a_check_trains_fresh_agents_as_training_does():
    config = DiscoverConfig(**TINY | dict(check_every=1, check_updates=3, check_seeds=2))
    task = make("tests.probes:SignReward")
    outcome = Check([task], config).baseline()[task.name]
    settings = config.training(task.name).settings() | dict(steps=3 * 4 * 3, seeds=2)
    del settings["env"], settings["rule"]
    expected = train(task, ActorCritic(), **settings).summary["final_return"]
    assert outcome.returns.shape == (2,)  # other random keys, so only alike
    assert abs(outcome.returns.mean() - expected["mean"]) < 0.8


class ScriptedCheck(Check):
    """The start has 0, then 1 after the first check and 0.5 later, and 0.7 on fresh seeds, on which
    the others have a bit more."""

    def __init__(self):
        self.returns = iter([0.0, 1.0] + 10 * [0.5])

    def __call__(self, rule, fresh=False):
        return outcomes(**{"catch:rows=4,columns=3": [0.7 if fresh else next(self.returns)]})

    def baseline(self, fresh=False):
        return outcomes(**{"catch:rows=4,columns=3": [1.1 if fresh else 1.0]})

    def untrained(self, fresh=False):
        return outcomes(**{"catch:rows=4,columns=3": [0.1 if fresh else 0.0]})


@pytest.fixture(scope="module")
def discovery(rule) -> DiscoveryRun:
    return DiscoveryRun.create(DiscoverConfig(**TINY), rule)


PROGRAMS = ("_traced", "programs", "_step_rule")


def same_programs(discovery: DiscoveryRun, **changes) -> DiscoveryRun:
    """A run that differs in nothing that has to be compiled."""
    other = dataclasses.replace(discovery, **changes)
    programs = {name: getattr(discovery, name) for name in PROGRAMS}
    vars(other).update(programs)
    return other


def scripted(discovery: DiscoveryRun, **settings) -> DiscoveryRun:
    config = dataclasses.replace(discovery.config, **settings)
    return same_programs(discovery, config=config, check=ScriptedCheck())


@pytest.mark.parametrize("seconds", [1e-9, 100.0])
def test_the_speed_of_the_machine_does_not_decide_what_is_checked(discovery, monkeypatch, seconds):
    monkeypatch.setattr(loop, "PIECE_SECONDS", seconds)
    records = []
    summary = execute(
        scripted(discovery, check_every=2, log_every=5), on_record=records.append
    ).summary
    assert [r["updates"] for r in records] == [2, 4, 5, 6]
    assert [r["updates"] for r in records if "check" in r] == [2, 4, 6]
    assert (summary["best_meta_step"], summary["best_score"]) == (2, 1.0)
    judged = {
        what: x["catch:rows=4,columns=3"]["mean"] for what, x in summary["final_check"].items()
    }
    agents = {"returns": 0.7, "start": 0.7, "baseline": 1.1, "untrained": 0.1}
    assert judged == agents | {"gain": 0.0}


def test_a_run_ends_when_patience_does(discovery):
    """The best of the checks at 1, 2, … comes at 2 (after 0.0, 1.0, all others are 0.5)."""
    checked = scripted(discovery, check_every=1, patience=2)
    checked.check.returns = iter([0.0, 0.1, 1.0, 0.5, 0.5])
    outcome = execute(checked)
    assert (outcome.done, outcome.summary["best_meta_step"]) == (4, 2)
    assert outcome.summary["final_check"] is not None


def test_the_start_is_kept_if_nothing_better_is_found(discovery, rule):
    checked = scripted(discovery, check_every=3)
    checked.check.returns = iter([0.9, 0.8, 0.7])
    summary = execute(checked).summary
    assert summary["best_meta_step"] == 0
    assert summary["rule_sha256"] == rules.digest(rule)


def test_before_the_first_check_the_latest_rule_is_the_one_to_show(discovery, rule):
    state = scripted(discovery, check_every=100).init()
    state = eqx.tree_at(lambda s: s.rule.gamma, state, jnp.array(0.7))
    assert kept_rule(state).gamma == jnp.array(0.7)
    checked = eqx.tree_at(lambda s: s.best_score, state, jnp.array(0.1))
    assert kept_rule(checked).gamma == rule.gamma


def test_a_run_in_which_nothing_is_finite_stops(discovery):
    rule = LearnedDiscount(jnp.array(jnp.nan), jnp.array(-0.5))
    config = dataclasses.replace(discovery.config, meta_steps=30)
    with pytest.raises(UserError, match="no agent had a finite meta-gradient"):
        execute(same_programs(discovery, config=config, start=rule))


def test_agents_of_the_population_are_told_what_the_rule_is_now(group):
    before = MetaGrad(MetaGradConfig())
    now = eqx.tree_at(lambda r: r.coefficients.bias, before, jnp.array([0.5, 0.25]))
    seat = jax.jit(group.new_seat)(before, jax.random.key(0))
    keys = jax.random.split(jax.random.key(1))
    _, window, validation, _ = jax.jit(group.live)(now, seat.member, *keys)
    for told in (window.experience.context, validation.context):
        expected = jnp.broadcast_to(jax.nn.sigmoid(now.coefficients.bias), told.shape)
        np.testing.assert_array_equal(told, expected)


@pytest.mark.slow
def test_a_run_keeps_its_best_rule_and_goes_on_to_the_same_bits(tmp_path):
    start_rule = random_like(lambda: Disco(CONFIG, key=jax.random.key(0)))
    rules.save(tmp_path / "start.npz", start_rule)
    settings = TINY | dict(replay=0.5, replay_capacity=8, from_=str(tmp_path / "start.npz"))
    settings |= dict(budgets=(300, 150))
    discovery = DiscoveryRun.create(DiscoverConfig(**settings))
    whole = execute(discovery, start_run(discovery, str(tmp_path / "whole"))).summary
    half = start_run(discovery, str(tmp_path / "half"))
    middle = execute(discovery, half, should_stop=lambda: len(half.metrics()) == 1).summary
    assert middle["meta_steps"] == 2
    (tmp_path / "start.npz").unlink()  # the folder has all it needs
    later = execute(discovery, half, should_stop=lambda: len(half.metrics()) == 2).summary
    assert later["meta_steps"] == 4 and half.summary() is None
    assert execute(discovery, half).summary["rule_sha256"] == whole["rule_sha256"]
    assert logged(half.path) == [2, 4, 6]

    checked = scripted(discovery, check_every=2)
    folder = start_run(checked, str(tmp_path / "checked"))
    summary = execute(checked, folder).summary
    assert (summary["best_meta_step"], summary["best_score"]) == (2, 1.0)
    assert summary["rule_sha256"] == middle["rule_sha256"] != whole["rule_sha256"]
    assert rules.digest(rules.load(str(folder.path))) == middle["rule_sha256"]
    assert (folder.path / "discovery.png").read_bytes()[:4] == b"\x89PNG"
    assert execute(checked, folder).summary == summary  # it is finished
    records = folder.metrics()
    documented = DiscoverRecord.__annotations__.keys() - {"fitness", "fitness_difference"}
    assert documented <= records[-1].keys()  # those two, with evolution
    assert all(0 < r["agent_update_norm"] < np.inf for r in records)
    assert "meta-step 6 of 6" in describe(records[-1], 6)
    assert "check 0.50" in describe(records[-1], 6)
    assert rules.suggested(str(folder.path))["torso"] == (6,)
    plan = plan_named(TrainRequest(env="catch:rows=5,columns=5", rule=str(folder.path))).plan
    assert plan.batch == 4 and plan.learning_rate == 1e-2


def test_a_population_with_memory_goes_on_to_the_same_bits(tmp_path):
    settings = RECURRENT | dict(replay=0.5, replay_capacity=8, meta_steps=2, log_every=1)
    discovery = DiscoveryRun.create(DiscoverConfig(**settings, from_="metagrad"))
    whole = execute(discovery)
    assert rules.digest(whole.rule) != rules.digest(discovery.start)
    assert all(0 < record["meta_gradient_norm"] < np.inf for record in whole.curve)
    folder = start_run(discovery, str(tmp_path / "run"))
    half = execute(discovery, folder, should_stop=lambda: len(folder.metrics()) == 1)
    assert half.done == 1
    assert execute(discovery, folder).summary["rule_sha256"] == rules.digest(whole.rule)
    assert rules.suggested(str(folder.path))["memory"] == "gru"


def test_folders_of_before_agents_had_memory_are_read(tmp_path):
    folder = RunFolder.create(str(tmp_path / "run"), "")
    folder.write_config({"kind": "discover", "format": 1, "envs": "catch", "memory": "nested"})
    config = read_config(folder)
    assert (config.memory, config.record) == ("none", "nested")
    folder.write_config(dataclasses.asdict(dataclasses.replace(config, memory="lstm")))
    assert read_config(folder) == dataclasses.replace(config, memory="lstm")


def test_settings_that_did_nothing_are_no_obstacle(tmp_path):
    folder = RunFolder.create(str(tmp_path / "run"), "")
    config = DiscoverConfig(from_="disco103")
    old = dataclasses.asdict(config) | dict(size="paper", memory_size=64, memory_gate=True)
    folder.write_config(old)
    assert read_config(folder) == config


def test_the_step_size_of_the_rule_falls_to_nothing():
    config = DiscoverConfig(meta_steps=100, meta_learning_rate=2.0)
    rates = [config.meta_learning_rate_at(step) for step in (0, 25, 50, 75, 100)]
    half = np.sqrt(0.5)
    np.testing.assert_allclose(rates, [2.0, 1 + half, 1.0, 1 - half, 0.0], atol=1e-12)
    constant = dataclasses.replace(config, meta_schedule="constant")
    assert {constant.meta_learning_rate_at(step) for step in (0, 50, 100)} == {2.0}


def test_only_a_constant_step_size_lets_a_run_grow_longer(tmp_path):
    folder = RunFolder.create(str(tmp_path / "run"), "")
    config = DiscoverConfig(meta_steps=100, meta_schedule="constant")
    folder.write_config(dataclasses.asdict(config))
    assert read_config(folder, 150).meta_steps == 150
    with pytest.raises(UserError, match="a run of 100 meta-steps; --meta-steps can only add"):
        read_config(folder, 99)
    folder.write_config(dataclasses.asdict(DiscoverConfig(meta_steps=100)))
    with pytest.raises(UserError, match="ends where it ends: --meta-steps"):
        read_config(folder, 150)


@pytest.mark.slow
def test_environments_may_differ_in_observations_and_actions(rule):
    settings = TINY | dict(envs="catch:rows=4,columns=3,tests.probes:MatchSign", agents=3)
    settings |= dict(meta_steps=1)
    discovery = DiscoveryRun.create(DiscoverConfig(**settings), rule)
    records = []
    summary = execute(discovery, report=records.append).summary
    assert summary["environment_steps"] == 3 * (2 * 4 * 3 + 4 * 4)
    assert records[0]["returns"].keys() == {"catch:rows=4,columns=3", "tests.probes:MatchSign"}
