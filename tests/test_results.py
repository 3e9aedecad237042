"""Results that are kept, what makes them stale, and the page that is made of them."""

import dataclasses
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

from etude.cli import commands, reproducing
from etude.errors import UserError
from etude.experiments import EXPERIMENTS, Options, Reproduction, Verdict, fingerprint
from etude.experiments.fingerprint import Fingerprint
from etude.experiments.page import STALE_CODE, STALE_EXPERIMENT, Entry, entries, page
from etude.experiments.results import (
    Begun,
    Result,
    read_results,
    result_of,
    write_result,
)

ROOT = Path(__file__).resolve().parent.parent
PAGE, STORE = ROOT / "docs/results/README.md", ROOT / "docs/results/data"
NAME = "frodo-catch"
NOW = Fingerprint("1" * 12, "2" * 12)


def result(fingerprint: Fingerprint = NOW, seed: int = 100) -> Result:
    seeds = np.array([0.9, 1.0, 1.1])
    verdicts = [
        Verdict.about("It is above | 0", seeds, at_least=0.0),
        Verdict.about("It is below 0", seeds, at_most=0.0),
        Verdict.about("It was never seen", seeds * np.nan, at_least=0.0),
    ]
    begun = Begun(fingerprint, "abc1234", 0.0, 0.0)
    made = Reproduction(verdicts, [], ("It is small.",))
    return result_of(made, NAME, Options(False, 3, seed), begun)


# --- Files and page -------------------------------------------------------------------------------


def test_the_page_is_what_the_stored_results_say():
    """Marks of code that has changed are as of when the page was made; those of experiments that
    have are up to date."""
    made = page(entries(EXPERIMENTS, read_results(STORE)))
    without = lambda text: text.replace(STALE_CODE, "").replace(STALE_CODE.strip(), "")  # noqa: E731
    assert without(PAGE.read_text()) == without(made), "run: etude reproduce --all --summary"


def test_a_result_is_read_as_it_was_written(tmp_path):
    before = result()
    write_result(before, tmp_path / "data" / f"{NAME}.json")
    assert read_results(tmp_path / "data") == {NAME: before}
    assert before["verdicts"][2]["figure"] is None
    assert before["spent"]["cpu_seconds"] > 0 and before["made"]["commit"] == "abc1234"


def test_a_damaged_result_gets_a_sentence(tmp_path):
    write_result(result(), tmp_path / "mazes.json")
    with pytest.raises(UserError, match="it is the result of frodo-catch"):
        read_results(tmp_path)
    (tmp_path / "mazes.json").write_text('{"format": 1}')
    with pytest.raises(UserError, match="is damaged: it lacks experiment"):
        read_results(tmp_path)


def test_the_page_shows_every_claim_and_what_made_it():
    text = page([Entry(NAME, EXPERIMENTS[NAME], result(), NOW)])
    for line in (
        "| It is above \\| 0 | 1 | 0.752 to 1.25 | holds |",
        "| It is below 0 | 1 | 0.752 to 1.25 | **does not hold** |",
        "| It was never seen | – | – | cannot be told |",
        "`etude reproduce frodo-catch --seeds 3 --seed 100` · commit abc1234",
        "- It is small.",
    ):
        assert line in text
    assert "chosen on seeds that are shown" not in text
    assert "`etude reproduce frodo-catch`" not in text.split("## Still to be run")[1]


def test_seeds_that_settings_were_chosen_on_are_told():
    text = page([Entry(NAME, EXPERIMENTS[NAME], result(seed=0), NOW)])
    assert "chosen on seeds that are shown here: 0." in text
    apart = dataclasses.replace(EXPERIMENTS[NAME], apart=True, chosen_on=(2,))
    assert "shown here: 2." in page([Entry(NAME, apart, result(seed=0), NOW)])


def test_what_changed_is_told():
    experiment = EXPERIMENTS[NAME]
    for now, mark in (
        (NOW, ""),
        (NOW._replace(code="3" * 12), STALE_CODE),
        (NOW._replace(experiment="3" * 12), STALE_EXPERIMENT),
        (Fingerprint("3" * 12, "3" * 12), STALE_EXPERIMENT),
    ):
        entry = Entry(NAME, experiment, result(), now)
        assert entry.stale == mark
        assert (mark.strip() in page([entry])) or not mark
    assert "not run" in page([Entry(NAME, experiment, None, NOW)])


def test_experiments_do_not_show_seeds_that_their_settings_were_chosen_on():
    for name, x in EXPERIMENTS.items():
        assert not {*x.shown(x.seed, x.seeds)} & {*x.chosen_on}, name


# --- Fingerprints ---------------------------------------------------------------------------------


def forget() -> None:
    """What was read of files that have since been changed."""
    for kept in ("_module", "_code", "_imports", "_parsed"):
        getattr(fingerprint, kept).cache_clear()


@pytest.fixture
def copied(tmp_path, monkeypatch):
    """The package in another place, to be changed, and the fingerprint that it then has."""
    package = tmp_path / "etude"
    shutil.copytree(fingerprint.PACKAGE, package, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(fingerprint, "PACKAGE", package)

    def change(name: str, old: str, new: str) -> Fingerprint:
        path = package / name
        assert old in path.read_text()
        path.write_text(path.read_text().replace(old, new))
        forget()
        return fingerprint.fingerprint("frodo:run_walk")

    yield change
    forget()


def test_a_fingerprint_changes_with_what_numbers_depend_on(copied):
    first = copied("experiments/walk.py", "96 steps", "ninety-six steps")  # a docstring
    assert first == fingerprint.fingerprint("frodo:run_walk")
    same = [
        ("experiments/frodo.py", "STEPS = 1_000_000", "STEPS = 2_000_000"),  # of another one
        ("report/render.py", "def ", "def  "),
        ("core/returns.py", "Time is the first axis", "Time is the first of all axes"),
    ]
    for change in same:
        assert copied(*change) == first
    settings = copied("experiments/walk.py", "LAMBDAS = (0.0,", "LAMBDAS = (0.1,")
    assert settings.experiment != first.experiment and settings.code == first.code
    before = settings
    for change in (
        (
            "core/returns.py",
            "def lambda_returns(",
            "def lambda_returns_(",
        ),
        ("training/presets/laptop/frodo.json", "0.001", "0.002"),
        ("rules/frodo.py", "class Frodo(", "class Frodo2("),
    ):
        after = copied(*change)
        assert after.code != before.code and after.experiment == before.experiment
        before = after


def test_all_that_an_experiment_uses_is_covered():
    used = {name for _, name in fingerprint._used("etude.experiments.frodo", "run_walk")}
    assert used >= {"frodo_errors", "LAMBDAS", "FRODO", "followed", "Verdict"}
    assert "STEPS" not in used


# --- The command ----------------------------------------------------------------------------------


def reproduce(monkeypatch, *words: str) -> None:
    monkeypatch.setattr(sys, "argv", ["etude", "reproduce", *words])
    commands.main()


def test_an_experiment_leaves_its_result_and_the_page_is_made(tmp_path, monkeypatch, capsys):
    made = Reproduction([Verdict.about("It is above 0", np.ones(3), at_least=0.0)], [])
    monkeypatch.setattr("etude.experiments.base.Experiment.run", lambda *args: made)
    monkeypatch.setattr("etude.experiments.written.draw", lambda *args: None)
    out, store = tmp_path / "run", tmp_path / "data"
    reproduce(monkeypatch, NAME, "--seeds", "3", "--out", str(out), "--results", str(store))
    stored = read_results(store)[NAME]
    assert stored["verdicts"][0]["verdict"] == "holds" and stored["seed"] == 100
    assert (out / "result.json").read_bytes() == (store / f"{NAME}.json").read_bytes()
    reproduce(monkeypatch, "--all", "--summary", "--results", str(store))
    text = (tmp_path / "README.md").read_text()
    assert "| It is above 0 | 1 | 1 to 1 | holds |" in text and "Stale" not in text
    due = reproducing._due(store)
    assert {*due} == EXPERIMENTS.keys() - {NAME}
    minutes = [EXPERIMENTS[EXPERIMENTS[x].uses or x].minutes for x in due]
    assert minutes == sorted(minutes)
    assert due.index("krazy-world") < due.index("exploration")
    reproduce(monkeypatch, NAME, "--quick", "--out", str(tmp_path / "quick"))
    assert not (tmp_path / "quick" / "result.json").exists()
    assert "`etude reproduce --all --summary`" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--summary"], "it goes with --all"),
        (["--all", "--due"], "--due goes with --all and --results"),
        (["--all", "--due", "--results", "nowhere"], "There is no folder nowhere"),
        (["--all", "--summary", "--results", "nowhere"], "There is no folder nowhere"),
        (["--all", NAME], f"{NAME} does not go with it"),
        (["--all", "--out", "there"], "--out cannot name them"),
        (["frodo-katch"], "did you mean 'frodo-catch'?"),
        ([NAME, "--full"], "Nothing of frodo-catch is cut short"),
        ([NAME, "--seeds", "1"], "--seeds must be at least 2"),
        ([NAME, "--seed", "1000000"], "--seed must be from 0"),
    ],
)
def test_mistakes_are_told(words, told, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as end:
        reproduce(monkeypatch, *words)
    assert end.value.code == 2
    assert told in " ".join(capsys.readouterr().err.split())
    assert not any(tmp_path.iterdir())
