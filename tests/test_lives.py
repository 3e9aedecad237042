"""Lives that differ: each has its task and its habits, drawn from what is stated, for as long as it
lasts."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from etude import rules
from etude.core.learner import Learner
from etude.envs import make
from etude.errors import UserError
from etude.meta.discovery.check import Check
from etude.meta.discovery.config import DiscoverConfig
from etude.meta.discovery.habits import Habits
from etude.meta.discovery.life_ranges import Lives
from etude.meta.discovery.lives import shapes_of
from etude.meta.discovery.meta_value import MetaValue, MetaValueConfig
from etude.meta.discovery.population import Group
from etude.meta.discovery.problem import Discovery, Lifetime
from etude.meta.discovery.run import DiscoveryRun
from etude.meta.discovery.saved import read_config
from etude.rules.actor_critic import ActorCritic, ActorCriticConfig
from etude.rules.disco.rule import Disco
from etude.rules.metagrad import MetaGrad, MetaGradConfig
from etude.runs.folder import RunFolder
from etude.runs.lifecycle import execute
from etude.runs.lifecycle import start as start_run
from tests.probes import LearnedDiscount
from tests.test_discovery import TINY
from tests.test_learner import OBSERVATION, OPTIMISER, make_agent, make_rollout

WAGES = "tests.probes:Wages"
RULE = LearnedDiscount(jnp.array(0.3), jnp.array(-0.5))


def at(tree, i):
    return jax.tree.map(lambda x: x[i], tree)


# --- Tasks ---------------------------------------------------------------------------------------


def test_a_life_has_one_task_in_training_and_validation_until_it_is_over():
    """In this environment, each step pays what the task says."""
    group = Group.create(make(WAGES), DiscoverConfig(**TINY))
    keys = jax.random.split(jax.random.key(0), 3)
    seats = jax.jit(jax.vmap(group.new_seat, in_axes=(None, 0)))(RULE, keys)
    tasks = np.asarray(seats.member.task)
    assert len(set(tasks)) == 3 and ((tasks >= 1) & (tasks < 2)).all()

    @jax.jit
    def lived(seats):
        play = jax.vmap(lambda seat: group.live(RULE, seat.member, seat.key, seat.key))
        _, window, validation, _ = play(seats)
        return window.experience.reward, validation.reward

    for rewards in lived(seats):
        expected = np.broadcast_to(tasks.reshape(3, *[1] * (rewards.ndim - 1)), rewards.shape)
        np.testing.assert_array_equal(rewards, expected)
    over = jnp.array([False, True, False])
    replaced = np.asarray(jax.jit(group.replace)(RULE, seats, over).member.task)
    np.testing.assert_array_equal(replaced == tasks, ~over)


def test_without_drawing_all_have_the_task_of_the_environment():
    config = DiscoverConfig(**TINY | dict(draw_tasks=False))
    group = Group.create(make(WAGES), config)
    member = jax.eval_shape(group.new_member, RULE, jax.random.key(0))
    assert member.task is None and group.task.params == 7.0  # type: ignore[attr-defined]


def test_each_agent_of_a_check_has_a_task_of_its_own_always_the_same():
    config = DiscoverConfig(**TINY | dict(check_updates=2, check_seeds=3))
    check = Check([make(WAGES)], config)
    first, again, fresh = (check(RULE, fresh)[WAGES].returns for fresh in (False, False, True))
    assert len(set(first)) == 3 and ((first >= 3) & (first < 6)).all()  # of three steps
    np.testing.assert_array_equal(first, again)
    np.testing.assert_array_equal(first, check.untrained()[WAGES].returns)
    assert not set(first) & set(fresh)


def test_tasks_that_look_unlike_get_a_sentence():
    with pytest.raises(UserError, match="has other observations or actions than its default"):
        Group.create(make("tests.probes:ShiftingWages"), DiscoverConfig(**TINY))


# --- Habits --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def updated():
    """The agent after an update under a rule, by habits, and the agent before."""
    problem = Discovery(OPTIMISER)
    value = MetaValue.create(
        jnp.zeros(OBSERVATION), MetaValueConfig(torso=(4,)), key=jax.random.key(0)
    )
    inner = jax.jit(problem.inner)

    def update(rule, habits):
        agent = make_agent(rule)
        lifetime = Lifetime(Learner.create(agent, rule, OPTIMISER), value, habits)
        after, _ = inner(rule, lifetime, make_rollout())
        assert jax.tree.structure(after) == jax.tree.structure(lifetime)
        return agent, after.learner.agent

    return update


def test_an_agents_own_step_size_scales_its_step(updated):
    rule = MetaGrad(MetaGradConfig(tell=False))
    before, after = updated(rule, None)
    _, half = updated(rule, Habits(pace=jnp.array(0.5)))
    for x, y, z in zip(*map(jax.tree.leaves, (before, after, half)), strict=True):
        np.testing.assert_allclose(2 * (z - x), y - x, rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize(
    "kind, config", [(ActorCritic, ActorCriticConfig), (MetaGrad, MetaGradConfig)]
)
def test_an_agents_own_entropy_weight_takes_the_place_of_the_rules(updated, kind, config):
    plain = {} if kind is ActorCritic else dict(tell=False)
    _, by_habit = updated(kind(config(**plain)), Habits(entropy_cost=jnp.array(0.7)))
    _, by_rule = updated(kind(config(entropy_cost=0.7, **plain)), None)
    _, other = updated(kind(config(**plain)), None)
    same = jax.tree.map(lambda x, y: np.allclose(x, y, rtol=1e-5, atol=1e-6), by_habit, by_rule)
    assert all(jax.tree.leaves(same))
    assert not all(
        np.allclose(x, y) for x, y in zip(*map(jax.tree.leaves, (by_habit, other)), strict=True)
    )


def test_habits_are_drawn_from_their_ranges_by_ratio():
    lives = Lives.parse("learning_rate=1e-3..1e-1,entropy=0.1..0.1")
    keys = jax.random.split(jax.random.key(0), 2000)
    habits = jax.jit(jax.vmap(lambda key: Habits.draw(lives, 1e-2, key)))(keys)
    assert 0.1 <= habits.pace.min() < 0.11 and 9 < habits.pace.max() <= 10.01
    assert np.mean(habits.pace < 1) == pytest.approx(0.5, abs=0.04)
    np.testing.assert_allclose(habits.entropy_cost, 0.1, rtol=1e-5)
    assert Habits.draw(Lives.parse("batch=4..8"), 1e-2, keys[0]) is None


# --- Shapes --------------------------------------------------------------------------------------


def test_what_changes_shapes_is_drawn_for_each_environment_named():
    names, lives = ["catch"] * 40 + ["bandit"], "batch=8..16,width=32..33"
    config = DiscoverConfig(envs=",".join(names), agents=41, lives=lives, torso=(64, 64))
    tasks = {name: make(name) for name in set(names)}
    found = shapes_of([tasks[name] for name in names], config)
    assert [task.name for task, _ in found][:2] == ["catch #1", "catch #2"]
    assert found[-1][0].name == "bandit"
    batches = [own.batch for _, own in found]
    assert set(batches) <= set(range(8, 17)) and len(set(batches)) > 5
    assert {own.torso for _, own in found} == {(32, 32), (33, 33)}
    assert shapes_of([tasks[name] for name in names], config) == found
    other = dataclasses.replace(config, seed=1)
    assert [own.batch for _, own in shapes_of([tasks["catch"]] * 40, other)] != batches[:40]


@pytest.mark.parametrize(
    ("lives", "words"),
    [
        ("learningrate=1e-3..1e-2", "did you mean 'learning_rate'"),
        ("rollout=3..4", "they may in learning_rate, entropy, batch, width"),
        ("learning_rate=1e-2..1e-3", "should be a range of positive numbers"),
        ("entropy=0..1", "should be a range"),
        ("batch=4.5..6", "should be a range"),
        ("width", "should be a range"),
        ("batch=4..8,batch=8..16", "says twice what batch is"),
    ],
)
def test_ranges_that_make_no_sense_get_a_sentence(lives, words):
    with pytest.raises(UserError, match=words):
        DiscoverConfig(lives=lives)


def test_an_environment_is_there_several_times_only_where_that_makes_a_difference():
    with pytest.raises(UserError, match="names catch twice"):
        DiscoverConfig(envs="catch,catch", lives="learning_rate=1e-3..1e-2")
    DiscoverConfig(envs="catch,catch", lives="batch=4..8")


# --- Runs ----------------------------------------------------------------------------------------


ENV = "bandit:arms=2,pulls=3"
ALL = TINY | dict(
    envs=f"{ENV},{ENV}",
    agents=2,
    from_="metagrad:tell=false",
    lives="learning_rate=1e-3..1e-1,entropy=1e-3..1,batch=2..5,width=3..9",
    meta_steps=2,
    log_every=1,
    budgets=(30,),  # lives end in between
)


def test_a_run_of_lives_that_differ_goes_on_to_the_same_bits(tmp_path):
    run = DiscoveryRun.create(DiscoverConfig(**ALL))
    whole = execute(run)
    record = whole.curve[-1]
    assert record["returns"].keys() == {f"{ENV} #1", f"{ENV} #2"}
    assert record["resets"] > 0 and rules.digest(whole.rule) != rules.digest(run.start)
    folder = start_run(run, str(tmp_path / "run"))
    half = execute(run, folder, should_stop=lambda: len(folder.metrics()) == 1)
    assert half.done == 1
    assert execute(run, folder).summary["rule_sha256"] == rules.digest(whole.rule)
    assert read_config(folder).lives == ALL["lives"] and not run.notes()


def test_an_environment_that_is_there_several_times_is_checked_once():
    run = DiscoveryRun.untraced(DiscoverConfig(**ALL | dict(check_every=1)))
    assert run.check is not None and run.check.names == [ENV]


def test_a_rule_without_entropy_says_that_lives_do_not_differ_in_it():
    config = DiscoverConfig(**TINY | dict(lives="entropy=1e-3..1e-1"))
    run = DiscoveryRun.untraced(config)
    assert isinstance(run.start, Disco)
    (note,) = run.notes()
    assert "disco has no entropy bonus of its own" in note
    assert Habits(entropy_cost=jnp.array(0.5)).rule(run.start) is run.start


def test_folders_of_before_tasks_were_drawn_go_on_without(tmp_path):
    folder = RunFolder.create(str(tmp_path / "run"), "")
    folder.write_config({"kind": "discover", "format": 1, "envs": "bandit"})
    assert not read_config(folder).draw_tasks and DiscoverConfig(envs="bandit").draw_tasks
