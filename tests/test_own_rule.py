"""Rules of the user's own: the example in the docs is trained, kept, resumed and discovered."""

import json
import sys

import jax.numpy as jnp
import pytest

import etude
from etude import rules
from etude.errors import UserError
from etude.runs.arrays import read_arrays
from tests.test_docs import python_blocks

ENV, RULE = "catch:rows=4,columns=3", "my_rules:LearnedDiscount"
QUICK = dict(torso=(8,), batch=4, rollout=4, log_every=5, learning_rate=1e-2)
TINY = dict(agents=2, inner_updates=2, rollout=4, batch=2, validation_rollout=4, validation_batch=2)
TINY |= dict(torso=(6,), value_torso=(6,), meta_steps=2, check_every=0, log_every=1)


@pytest.fixture
def forget(tmp_path, monkeypatch):
    """Makes this process one that has not imported the module, nor knows where it is."""

    def forget() -> None:
        sys.modules.pop("my_rules", None)
        monkeypatch.setattr(sys, "path", [x for x in sys.path if x != str(tmp_path)])

    forget()
    yield forget
    forget()


@pytest.fixture
def here(tmp_path, monkeypatch, forget):
    (block,) = python_blocks("docs/guide/your-own-rule.md")
    (tmp_path / "my_rules.py").write_text(block)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_rule_of_the_docs_is_trained_kept_and_resumed(here, monkeypatch, forget):
    spec = f"{RULE}:entropy_cost=0.1"
    first = etude.train(ENV, spec, out="run", steps=320, **QUICK)
    assert first.config.rule == spec and first.rule.config.entropy_cost == 0.1
    assert json.loads((here / "run" / "config.json").read_text())["kind"] == "train"
    _, header = read_arrays(here / "run" / "rule.npz")
    assert header["kind"] == RULE and header["config"] == {"entropy_cost": 0.1}

    monkeypatch.chdir("/")
    forget()
    with pytest.raises(UserError, match=f"names code that is not Etude's: '{RULE}"):
        etude.resume(str(here / "run"), 640)
    longer = etude.resume(str(here / "run"), 640, trust=True)
    whole = etude.train(ENV, longer.rule, steps=640, **QUICK)
    assert longer.summary["params_sha256"] == whole.summary["params_sha256"]
    assert whole.config.rule == spec
    forget()
    again = etude.train(ENV, str(here / "run" / "rule.npz"), steps=640, trust=True, **QUICK)
    assert again.summary["params_sha256"] == whole.summary["params_sha256"]


def test_the_rule_of_the_docs_is_discovered(here, monkeypatch, forget):
    found = etude.discover(ENV, RULE, out="found", **TINY)
    assert found.done == 2 and found.rule.gamma != 2.0
    names = {"config.json", "metrics.jsonl", "checkpoint", "summary.json", "discovery.png"}
    assert names | {"rule.npz", "start.npz"} <= {x.name for x in (here / "found").iterdir()}
    monkeypatch.chdir("/")
    forget()
    kept = etude.load(str(here / "found"), trust=True)
    assert rules.digest(kept.rule) == found.summary["rule_sha256"]
    with pytest.raises(UserError, match="has a rule, but no agent"):
        _ = kept.agent


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("no_such_module:Rule", "there is no module 'no_such_module'"),
        ("my_rules:Missing", "has no class 'Missing'"),
        ("my_rules:Settings", "must be a subclass of etude.Rule"),
        ("my_rules:entropy", "is not a class"),
        (f"{RULE}:colour=3", "no setting 'colour'; its settings are: entropy_cost"),
        (f"{RULE}:entropy_cost=much", "entropy_cost"),
    ],
)
def test_a_mistake_in_the_name_gets_a_sentence(spec, words, here):
    with pytest.raises(UserError, match=words):
        etude.train(ENV, spec, steps=100, out="run")
    assert not (here / "run").exists()


def test_a_rule_that_cannot_be_made_gets_a_sentence(here):
    text = (here / "my_rules.py").read_text()
    (here / "my_rules.py").write_text(text.replace("jnp.array(2.0)", "jnp.arry(2.0)"))
    with pytest.raises(UserError, match=f"Rule {RULE} cannot be made: .*arry"):
        rules.load(RULE)


def test_a_rule_without_settings_needs_no_config(here):
    code = (
        "from my_rules import LearnedDiscount as Base\n\nclass Plain(Base.__base__):\n"
        "    heads, init, targets, loss = Base.heads, Base.init, Base.targets, Base.loss\n"
    )
    (here / "my_plain.py").write_text(code)
    rule = rules.load("my_plain:Plain")
    assert rules.spec_of(rule) == "my_plain:Plain"
    rules.save("plain.npz", rule)
    assert type(rules.load("plain.npz", trust=True)) is type(rule)
    with pytest.raises(UserError, match="its settings are: none"):
        rules.load("my_plain:Plain:size=3")
    sys.modules.pop("my_plain", None)
    assert jnp.size(rules.load(RULE).gamma) == 1
