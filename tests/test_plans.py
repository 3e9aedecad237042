"""From what is asked to what will be done: no gaps, and every value knows where it comes from."""

import dataclasses

import pytest

from etude import rules
from etude.api import train
from etude.errors import UserError
from etude.rules.actor_critic import ActorCritic
from etude.runs.folder import RunFolder
from etude.training.config import LATER, ONLINE_SETTINGS, TrainPlan, TrainRequest
from etude.training.planning import plan_named, read_plan
from etude.training.presets import BASE, ONLINE, default_of, explain, resolve

ENV = "catch:rows=4,columns=3"


def test_what_is_asked_for_and_what_is_planned_are_the_same_settings():
    asked = [field.name for field in dataclasses.fields(TrainRequest)]
    plan, origins = plan_named(TrainRequest(rule="frodo"))
    assert set(plan.settings()) == set(asked) == set(origins)
    assert all(default_of(name) for name in asked)
    assert all(value is None for value in dataclasses.asdict(TrainRequest()).values())


def test_every_value_knows_where_it_comes_from():
    plan, origins = plan_named(TrainRequest(env="catch", rule="actor_critic", batch=8))
    expected = {
        "env": ("catch", "flag"),
        "batch": (8, "flag"),
        "rule": (
            "actor_critic:bins=601,scale_values=False,entropy_cost=0.1",
            "flag, with settings of the preset",
        ),
        "torso": ((256,), "preset actor_critic on catch"),
        "seed": (0, "default"),
        "learn_rule": (False, "default"),
    }
    found = {name: (plan.settings()[name], origins[name]) for name in expected}
    assert found == expected
    assert not origins.keys() & {*ONLINE_SETTINGS}


def test_a_rule_that_learns_and_a_rule_in_a_file_are_origins_too(tmp_path):
    plan, origins = plan_named(TrainRequest(env=ENV, rule="metagrad", rollout=3))
    assert plan.online is not None and origins["learn_rule"] == "rule metagrad"
    assert (plan.online.outer_rollout, origins["outer_rollout"]) == (3, "as rollout")
    rules.save(tmp_path / "mine.npz", ActorCritic(), training=dict(batch=4, torso=[8]))
    plan, origins = plan_named(TrainRequest(env=ENV, rule=str(tmp_path / "mine.npz"), batch=6))
    assert (plan.batch, origins["batch"]) == (6, "flag")
    assert (plan.torso, origins["torso"]) == ((8,), "rule file")
    assert origins["learning_rate"].startswith("preset actor_critic")


def test_a_rule_that_is_made_keeps_its_settings():
    spec = "actor_critic:discount=0.5"
    plan, origins = explain(TrainRequest(env="catch", rule=spec), "actor_critic", rule_is_made=True)
    assert (plan.rule, origins["rule"]) == (spec, "flag")


def test_defaults_fill_all_that_is_not_computed():
    names = {field.name for field in dataclasses.fields(TrainRequest)}
    assert names - BASE.keys() - ONLINE.keys() == {"outer_rollout", "log_every"}


def test_memory_reaches_the_network():
    plan = resolve(TrainRequest(memory="gru", memory_size=7), "disco")
    assert (plan.network.memory, plan.network.memory_size) == ("gru", 7)
    assert resolve(TrainRequest(), "disco").network.memory == "none"


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (dict(epochs=0), "epochs must be at least 1"),
        (dict(minibatches=0), "minibatches must be at least 1"),
        (dict(batch=8, minibatches=3), "--batch 8 does not make 3 equal --minibatches"),
        (dict(memory_size=0), "memory_size must be at least 1"),
        (dict(outer="actor_critic"), "--outer is for a rule that learns"),
        (dict(memory_size=64), "--memory-size is for agents with memory"),
        (dict(memory_gate=True), "--memory-gate is for agents with memory"),
        (dict(steps=900, warmup=1000), "--warmup 1000 goes beyond the end of the run, 900 steps"),
    ],
)
def test_a_request_that_makes_no_sense_gets_a_sentence(settings, words):
    with pytest.raises(UserError, match=words):
        resolve(TrainRequest(**settings), "disco")


def test_a_plan_is_saved_flat_and_read_again():
    for rule in ("frodo", "actor_critic"):
        plan, _ = plan_named(TrainRequest(env=ENV, rule=rule))
        saved = plan.settings()
        assert not any(isinstance(value, dict) for value in saved.values())
        assert TrainPlan.from_saved(saved) == plan


def test_a_folder_of_an_earlier_version_is_read(tmp_path):
    path = str(tmp_path / "run")
    settings = dict(batch=4, rollout=4, torso=(8,), steps=64)
    plan = train(ENV, "actor_critic", out=path, **settings).config
    folder = RunFolder.open(path)
    folder.write_config({k: v for k, v in folder.config().items() if k not in LATER})
    assert read_plan(folder) == plan
    assert read_plan(folder, steps=128).steps == 128
    folder.write_config({k: v for k, v in folder.config().items() if k != "torso"})
    with pytest.raises(UserError, match="makes no sense: it lacks torso"):
        read_plan(folder)


def test_the_papers_settings_are_laid_over_those_for_a_laptop():
    plan, origins = plan_named(TrainRequest(env="atari/Pong", rule="disco103", preset="paper"))
    assert (plan.conv, plan.torso, plan.model) == ((256, 384, 384, 256), (768,), 1024)
    assert (plan.batch, plan.num_envs, plan.rollout, plan.frame_stack) == (96, 5, 28, 4)
    assert (plan.warmup, plan.weight_decay, plan.schedule) == (5_000_000, 0.1, "cosine")
    assert origins["batch"] == "preset paper"
    laptop = plan_named(TrainRequest(env="atari/Pong", rule="disco103")).plan
    assert laptop.conv_kind == "classic" and laptop.preset == "laptop"
    crafter = plan_named(TrainRequest(env="crafter", rule="disco103", preset="paper")).plan
    assert crafter.frame_stack == 32 and crafter.schedule == "constant"
    with pytest.raises(UserError, match="of catch it says nothing"):
        plan_named(TrainRequest(env="catch", preset="paper"))
