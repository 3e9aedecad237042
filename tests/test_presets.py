"""Files of settings: what they hold reaches the run, and what is wrong with one is a sentence."""

import dataclasses
import json
from pathlib import Path

import pytest

from etude import api, plugins, rules
from etude.errors import UserError
from etude.rules.actor_critic import ActorCritic, ActorCriticConfig
from etude.training.config import TrainRequest
from etude.training.planning import plan_named
from etude.training.presets.files import HOME, laptop, read

LAYER = dict(envs=["catch", "gymnax/*MinAtar"], training=dict(batch=6, torso=[8, 4]))
RULE = dict(entropy_cost=0.25, bins=0, normalise=False)


def preset(path: Path, *layers: dict, rule: str = "actor_critic", **others) -> str:
    held = dict(format=1, rule=rule, layers=layers or [LAYER | dict(rule=RULE)])
    path.write_text(json.dumps(held | others))
    return str(path)


def planned(file: str, env: str = "catch", rule: str = "actor_critic", **settings):
    return plan_named(TrainRequest(env=env, rule=rule, preset=file, **settings))


def test_settings_of_a_file_reach_the_plan_and_the_rule(tmp_path):
    file = preset(tmp_path / "mine.json")
    plan, origins = planned(file, "catch:rows=5", learning_rate=0.5)
    assert (plan.batch, plan.torso, plan.rollout, plan.learning_rate) == (6, (8, 4), 8, 0.5)
    assert origins["batch"] == f"preset {file}" and origins["learning_rate"] == "flag"
    assert origins["rollout"] == "preset actor_critic on catch"
    assert rules.load(plan.rule).config == ActorCriticConfig(**RULE)
    assert planned(file, rule="actor_critic:bins=3").plan.rule.endswith("bins=3")
    assert planned(file, "gymnax/Freeway-MinAtar").plan.batch == 6


def test_later_layers_go_over_earlier_ones(tmp_path):
    others = dict(envs=["*"], training=dict(batch=4)), LAYER, dict(envs=["catch"], about="why")
    file = preset(tmp_path / "mine.json", *others, dict(envs=["bandit"], training=dict(batch=2)))
    found = [planned(file, env).plan.batch for env in ("catch", "bandit", "maze")]
    assert found == [6, 2, 4]


def test_a_file_goes_before_what_a_rules_file_suggests(tmp_path):
    rules.save(tmp_path / "rule.npz", ActorCritic(), training=dict(batch=4, rollout=3))
    file = preset(tmp_path / "mine.json")
    plan, origins = planned(file, rule=str(tmp_path / "rule.npz"))
    assert (plan.batch, plan.rollout, origins["rollout"]) == (6, 3, "rule file")
    assert plan.rule.endswith("rule.npz:entropy_cost=0.25,bins=0,normalise=False")


def test_training_from_python_uses_a_file(tmp_path):
    file = preset(tmp_path / "mine.json", LAYER | dict(rule=dict(entropy_cost=0.25)))
    run = api.setup("catch:rows=4,columns=3", "actor_critic", preset=file)
    assert run.config.batch == 6 and run.config.preset == file
    assert run.rule.config == ActorCriticConfig(entropy_cost=0.25)  # the rest is that of Catch
    with pytest.raises(UserError, match="sets entropy_cost of the rule, but the rule is made"):
        api.setup("catch", ActorCritic(), preset=file)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            dict(training=dict(bach=6)),
            r"mine.json holds .* no setting 'bach'; did you mean 'batch'",
        ),
        (dict(training=dict(batch=0)), "batch must be at least 1, not 0"),
        (dict(training=dict(learning_rate=-1.0)), "learning_rate must be a positive number"),
        (dict(training=dict(seed=3)), "sets seed, which is not for a preset to choose"),
        (dict(training=dict(env="bandit")), "sets env, which is not"),
        (dict(training=[1]), r"layers\[0\].training should be values by name"),
        (dict(trainig={}), "has no setting 'trainig'; did you mean 'training'"),
        (dict(envs="catch"), r"layers\[0\].envs should be a list"),
        (dict(envs=["bandit"]), "knows bandit; of catch it says nothing"),
        (dict(rule=dict(entropy="0.1,bins=3")), "entropy of the rule should be a number, a name"),
        (dict(rule=dict(entropy=dict(a=1))), r"layers\[0\].rule.entropy should be"),
        (dict(made_by=dict(trials="many")), "made_by.trials should be a whole number"),
    ],
)
def test_a_layer_that_makes_no_sense_gets_a_sentence(tmp_path, change, words):
    with pytest.raises(UserError, match=words) as error:
        planned(preset(tmp_path / "mine.json", LAYER | change))
    assert "\n" not in str(error.value)


def test_a_setting_that_the_rule_lacks_gets_a_sentence(tmp_path):
    file = preset(tmp_path / "mine.json", LAYER | dict(rule=dict(entropy=0.1)))
    with pytest.raises(UserError, match="Rule actor_critic has no setting 'entropy'; did you mean"):
        api.setup("catch", "actor_critic", preset=file)


def test_a_file_that_is_no_preset_gets_a_sentence(tmp_path):
    file = tmp_path / "mine.json"
    with pytest.raises(UserError, match=r"There is no preset .* and no file of that name"):
        planned(str(file))
    with pytest.raises(UserError, match="did you mean 'paper'"):
        planned("papr")
    with pytest.raises(UserError, match="is for the rule ppo, not for actor_critic"):
        planned(preset(file, rule="ppo"))
    with pytest.raises(UserError, match="has format 2 of settings files"):
        planned(preset(file, format=2))
    with pytest.raises(UserError, match="has no setting 'rules'"):
        planned(preset(file, rules="ppo"))
    for text in ("", "[]", "{", '{"format": 1, "rule": "ppo"}', '{"format": NaN}', "[" * 10**5):
        file.write_text(text)
        with pytest.raises(UserError, match=r"mine\.json is damaged"):
            planned(str(file))


def test_code_that_a_file_names_is_not_imported_unless_it_is_trusted(tmp_path, monkeypatch):
    (tmp_path / "theirs.py").write_text("raise SystemExit('imported')")
    monkeypatch.chdir(tmp_path)
    outer = dict(envs=["*"], training=dict(outer="theirs:Rule"))
    file = preset(tmp_path / "mine.json", outer, rule="metagrad")
    with pytest.raises(plugins.UntrustedError, match="names code that is not Etude's: 'theirs"):
        planned(file, rule="metagrad")
    with plugins.trusting(True):
        assert planned(file, rule="metagrad").plan.online.outer == "theirs:Rule"


def test_those_that_come_along_are_files_like_any_other():
    files = [*(HOME / "laptop").glob("*.json"), HOME / "paper.json"]
    assert len(files) == len(laptop()) + 1 == 10
    assert all(read(path).layers for path in files)
    for name in ("ppo", "actor_critic"):
        named = planned(str(HOME / "laptop" / f"{name}.json"), rule=name).plan
        default = plan_named(TrainRequest(env="catch", rule=name)).plan
        assert dataclasses.replace(named, preset="laptop") == default
