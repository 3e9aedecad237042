"""Files from others: whatever they hold, one sentence, no import, nothing written elsewhere. The
long version is `make fuzz`."""

import json
import os
import re
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

from etude import envs, plugins, rules
from etude.api import load, resume
from etude.cli import terminal
from etude.cli.commands import fail
from etude.cli.film import check_index
from etude.comparing import run as comparing
from etude.comparing.results import Result
from etude.comparing.suites import find_entries
from etude.errors import UserError
from etude.kinds import open_folder
from etude.rules.actor_critic import ActorCritic
from etude.rules.disco import weights
from etude.runs.arrays import read_arrays, write_arrays, write_atomically
from etude.runs.figures import figure_file
from etude.runs.folder import RunFolder
from etude.training.planning import read_plan
from etude.tuning import run as tuning
from etude.tuning.search import Search
from tests import damage, fuzz, sound


@pytest.fixture
def folder(tmp_path) -> RunFolder:
    return sound.write_sound(tmp_path / "run", "train")


def change(folder: RunFolder, **fields: object) -> None:
    folder.write_config(folder.config() | fields)


FROM_THE_DRIVER = "meta/discovery/cluster/held.py"
"""There a worker unpickles what its own driver has sent, which no file has a part in."""


def test_files_are_parsed_in_one_place():
    """Whoever adds a file to read has to go through the reader."""
    source, parsing = Path(plugins.__file__).parent, re.compile(
        r"json\.loads?\(|np\.load\(|pickle\.loads?\(|allow_pickle=True|marshal|shelve|\beval\("
    )  # fmt: skip
    found = {
        str(x.relative_to(source)) for x in source.rglob("*.py") if parsing.search(x.read_text())
    }
    assert found == {"runs/reading.py", FROM_THE_DRIVER}


def test_damaged_files_are_read_or_refused_in_a_sentence(tmp_path, capsys):
    outcome = fuzz.fuzz(200, 0, tmp_path, drawn=0.0)  # pages have tests of their own
    assert outcome.failures == [] and 100 < outcome.refused < 200


@pytest.mark.parametrize("spec", damage.CODE)
@pytest.mark.parametrize("field", ["env", "rule", "outer"])
def test_nothing_that_a_folder_names_is_imported(spec, field, folder, monkeypatch):
    change(folder, **{field: spec})
    monkeypatch.setattr(plugins, "_look_first_in", lambda folder: pytest.fail("looks elsewhere"))
    for use in (load, resume):
        with pytest.raises(UserError, match="names code that is not Etude's") as error:
            use(str(folder.path))
        assert "trust=True" in str(error.value)
    assert str(folder.path) not in sys.path and sound.EVIL not in sys.modules


def test_the_message_names_module_and_path(folder):
    change(folder, env=f"{sound.EVIL}:Env")
    with pytest.raises(UserError, match=str(folder.path / f"{sound.EVIL}.py")):
        read_plan(folder)
    with plugins.trusting(True):
        assert read_plan(folder).env == f"{sound.EVIL}:Env"
    sys.path.remove(str(folder.path))


@pytest.mark.parametrize("name", ["os:system:command=touch x", "builtins:dict", "pathlib:Path"])
def test_only_environments_are_called(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=r"is not a class|is not an environment"):
        envs.make(name)
    assert not (tmp_path / "x").exists()


def test_names_of_settings_and_lists_of_environments_name_no_code(tmp_path):
    """In the folder of a comparison, environments are names that scores are given for; a search
    may name a file that lists them."""
    folder = sound.write_sound(tmp_path / "it", "compare")
    change(folder, references={f"{sound.EVIL}:Env": [None, None]})
    listed = tmp_path / "envs.txt"
    listed.write_text(f"catch -1 1\n{sound.EVIL}:Env 0 1\n")
    search = sound.write_sound(tmp_path / "search", "tune")
    change(search, env=str(listed))
    for use in (
        lambda: comparing.reopen(str(folder.path)),
        lambda: find_entries(str(listed)),
        lambda: tuning.reopen(str(search.path))[0].goals,
    ):
        with pytest.raises(UserError, match="names code that is not Etude's"):
            use()
    with plugins.trusting(True):
        assert len(find_entries(str(listed))) == 2


def test_a_rule_file_names_no_code_and_no_environment(tmp_path):
    path = tmp_path / "rule.npz"
    write_arrays(path, {}, {"kind": f"{sound.EVIL}:Rule", "config": {}})
    with pytest.raises(UserError, match="names code that is not Etude's"):
        rules.load(str(path))
    header = {"kind": "actor_critic", "config": {}, "training": {"env": "os:system:command=ls"}}
    write_arrays(path, {}, header)
    with pytest.raises(UserError, match="no rule chooses env"):
        rules.suggested(str(path))


@pytest.mark.parametrize("name", [".lock", "metrics.jsonl"])
def test_no_link_is_written_to(name, folder, tmp_path):
    other = tmp_path / "other"
    other.write_text("precious")
    (folder.path / name).unlink(missing_ok=True)
    (folder.path / name).symlink_to(other)
    with pytest.raises(UserError, match="is a link to"), folder.locked():
        folder.log({"updates": 1})
    assert other.read_text() == "precious"


@pytest.mark.parametrize(
    ("kind", "room"), [("compare", "cells"), ("compare", "cells/catch--ppo"), ("tune", "trials")]
)
def test_nothing_is_written_through_a_linked_folder(kind, room, tmp_path):
    folder, other = sound.write_sound(tmp_path / "it", kind), tmp_path / "other"
    if (folder.path / room).exists():
        os.replace(folder.path / room, other)
    else:
        other.mkdir()
    (folder.path / room).symlink_to(other)
    home = {"compare": comparing, "tune": tuning}[kind]
    asked, again = home.reopen(str(folder.path))
    before = sorted(other.rglob("*"))
    with pytest.raises(UserError, match=f"{room} is a link to"):
        home.execute(asked, again, fuzz.Nowhere())
    assert sorted(other.rglob("*")) == before


@pytest.mark.parametrize("name", ["curve.png", ".curve.png.partial"])
def test_a_link_in_place_of_a_figure_is_replaced(name, folder, tmp_path):
    other = tmp_path / "other"
    other.write_text("precious")
    (folder.path / name).symlink_to(other)
    write_atomically(folder.path / "curve.png", lambda file: file.write(b"new"))
    assert other.read_text() == "precious"
    assert (folder.path / "curve.png").read_bytes() == b"new"
    assert not (folder.path / "curve.png").is_symlink()


def test_a_checkpoint_or_a_rule_of_another_run_is_refused(folder, tmp_path):
    other = sound.write_sound(tmp_path / "other", "train")
    assert folder.restore(sound.LIKE) is not None
    os.replace(other.path / "checkpoint", folder.path / "checkpoint")
    with pytest.raises(UserError, match=r"checkpoint in .* is of another run"):
        folder.restore(sound.LIKE)
    os.replace(other.path / "rule.npz", folder.path / "rule.npz")
    with pytest.raises(UserError, match=r"rule rule.npz in .* is of another run"):
        rules.load_kept(folder, "rule.npz")


def test_a_checkpoint_under_another_rule_is_refused(folder):
    folder.save(sound.STATE, 4, 2.5, rule=rules.digest(ActorCritic()))
    assert folder.restore(sound.LIKE, rules.digest(ActorCritic())) is not None
    with pytest.raises(UserError, match="under another rule"):
        folder.restore(sound.LIKE, "0" * 64)


@pytest.mark.parametrize(
    ("file", "field", "value"),
    [
        ("metrics.jsonl", "returns", None),
        ("metrics.jsonl", "returns", 3),
        ("metrics.jsonl", "steps", 10**400),
        ("metrics.jsonl", "returns", [[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]]),
        ("summary.json", "seconds", "long"),
        ("summary.json", "final_return", None),
        ("config.json", "steps", None),
        ("config.json", "steps", 10**30),
        ("config.json", "id", ""),
    ],
)
def test_a_value_of_the_wrong_kind_gets_a_sentence(file, field, value, folder):
    path = folder.path / file
    lines = path.read_text().splitlines() if file.endswith("l") else [path.read_text()]
    path.write_text("\n".join(json.dumps(json.loads(x) | {field: value}) for x in lines) + "\n")
    with pytest.raises(UserError, match=r"is damaged|makes no sense"):
        fuzz.READERS[file](folder)


def test_text_that_is_not_unicode_is_neither_read_nor_written(folder):
    (folder.path / "config.json").write_text('{"env": "half \\ud800"}')
    with pytest.raises(UserError, match="holds text that is not Unicode"):
        folder.config()
    folder.write_config(
        {"import_from": os.fsdecode(b"caf\xe9"), "of": "γ"}
    )  # as folders may be called
    assert folder.config() == {"import_from": "caf?", "of": "γ"}


def test_nothing_that_a_terminal_acts_upon_is_printed(capsys):
    with pytest.raises(SystemExit):
        fail("a name: \x1b]0;owned\x07", UserError(""))
    terminal.say("a name: \x1b[2J\r\n\tgoes on")
    terminal.print_table([("\x9b31m", "γ")])
    printed = "".join(capsys.readouterr())
    assert not {"\x1b", "\x07", "\r", "\x9b"} & set(printed) and "\n" in printed and "γ" in printed


def test_names_are_drawn_as_they_are(tmp_path, recwarn):
    for name in ("costs $1, not $2", "$\\frac{", "\x1b[2J", "迷路"):
        with figure_file(tmp_path / "it.png", (2.0, 2.0)) as axes:
            axes.set_title(name)
    assert not recwarn.list


def test_cells_of_another_comparison_are_refused(tmp_path):
    folder = sound.write_sound(tmp_path / "it", "compare")
    comparison, _ = comparing.reopen(str(folder.path))
    cell = RunFolder(folder.path / "cells" / comparison.cells[0].folder)
    cell.log({"updates": 6, **sound.CURVE, "last_returns": [0.5]})
    with pytest.raises(UserError, match=r"returns has other parts|is not of 2 seeds"):
        Result.read(comparison.cells[0], folder.path, None)
    change(cell, seeds=1)
    with pytest.raises(UserError, match="is not of this comparison"):
        comparing.reopen(str(folder.path))


@pytest.mark.parametrize(
    ("what", "value"),
    [
        ("distribution", '{"name": "no"}'),
        ("param_name", "x"),
        ("param_value_internal", True),
        ("values", [None]),
        ("values", [1.0, 2.0]),
    ],
)
def test_trials_of_another_search_are_refused(what, value, tmp_path):
    folder = sound.write_sound(tmp_path / "it", "tune")
    path = folder.path / "study.jsonl"
    lines = [json.loads(x) for x in path.read_text().splitlines()]
    lines = [x | {what: value} if what in x else x for x in lines]
    path.write_text("".join(json.dumps(x) + "\n" for x in lines))
    config, again = tuning.reopen(str(folder.path))
    with pytest.raises(UserError, match=r"study.jsonl is damaged"):
        Search(config, again, fuzz.Nowhere())


def test_a_run_without_agents_cannot_be_played():
    with pytest.raises(UserError, match="has a rule, but no agent"):
        check_index(0, 0)


@pytest.mark.parametrize("field", ["updates", "seconds", "metrics_bytes"])
@pytest.mark.parametrize("value", [float("inf"), float("nan"), "4", None, -1.5])
def test_a_checkpoint_header_of_the_wrong_kind_gets_a_sentence(field, value, folder):
    path = folder.path / "checkpoint"
    arrays, header = read_arrays(path)
    write_arrays(path, arrays, header | {field: value})
    if (field, value) == ("seconds", -1.5):
        pytest.skip("a number like any other")
    with pytest.raises(UserError, match=r"header of .* is damaged"):
        folder.restore(sound.LIKE)


def test_a_key_of_another_type_does_not_fit(folder):
    folder.save(sound.STATE | {"key": np.zeros((2, 2), np.float32)}, 4, 2.5)
    with pytest.raises(UserError, match="key holds float32 where uint32 is needed"):
        folder.restore(sound.LIKE)


@pytest.mark.parametrize("use", [open_folder, rules.load, lambda name: rules.suggested(name)])
def test_a_name_that_no_file_system_has_gets_a_sentence(use):
    with pytest.raises(UserError, match="cannot be read: File name too long"):
        use("x" * 5000)


def test_devices_and_bombs_are_refused_before_they_are_read(tmp_path):
    with pytest.raises(UserError, match="not a plain file"):
        read_arrays(type(tmp_path)("/dev/zero"))
    path = tmp_path / "bomb.npz"
    with (
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open("x.npy", "w", force_zip64=True) as entry,
    ):
        for _ in range(300):
            entry.write(bytes(1 << 20))
    with pytest.raises(UserError, match="is the most that is read"):
        read_arrays(path)


def test_an_axis_of_0_in_published_weights_gets_a_sentence():
    with pytest.raises(UserError, match="does not fit"):
        weights.from_published({"lstm/sequential_1/conv1_d/w": np.zeros((0, 3, 3))})
