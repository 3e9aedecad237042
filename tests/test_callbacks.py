"""What a run tells others while it goes: callbacks from Python, Weights & Biases."""

import time
from pathlib import Path

import pytest

from etude import api
from etude.cli.loggers import flat, loggers
from etude.cli.options import RunOptions
from etude.errors import UserError
from etude.kinds import open_folder
from etude.runs.lifecycle import start

QUICK = dict(torso=(8,), batch=8, rollout=4, log_every=5, steps=640, learning_rate=1e-3)
ENV, RULE = "catch:rows=4,columns=3", "actor_critic"


def test_callbacks_see_every_record_and_every_checkpoint(tmp_path):
    records, folders, out = [], [], str(tmp_path / "run")
    seen = dict(on_record=records.append, on_checkpoint=folders.append)
    result = api.train(ENV, RULE, out=out, **QUICK, **seen)
    assert records == result.curve and [x["updates"] for x in records] == [5, 10, 15, 20]
    assert folders == [Path(out)] and open_folder(out).has_checkpoint
    api.resume(out, 800, **seen)
    assert records[-1]["updates"] == 25 and len(folders) == 2


def test_an_exception_in_a_callback_ends_the_run_with_a_good_checkpoint(tmp_path):
    def refuse_the_second(record):
        if record["updates"] == 10:
            raise ZeroDivisionError("mine")

    out = str(tmp_path / "run")
    with pytest.raises(ZeroDivisionError, match="mine"):
        api.train(ENV, RULE, out=out, on_record=refuse_the_second, **QUICK)
    assert [x["updates"] for x in open_folder(out).metrics()] == [5, 10]
    whole = api.train(ENV, RULE, **QUICK).summary
    resumed = api.resume(out)
    assert [x["updates"] for x in resumed.curve] == [5, 10, 15, 20]
    assert resumed.summary["params_sha256"] == whole["params_sha256"]


def test_without_a_folder_there_are_no_checkpoints_to_hear_of():
    with pytest.raises(UserError, match="on_checkpoint needs out"):
        api.train(ENV, RULE, on_checkpoint=print, **QUICK)
    with pytest.raises(UserError, match="on_checkpoint needs out"):
        api.adapt(on_checkpoint=print)
    with pytest.raises(UserError, match="on_checkpoint needs out"):
        api.discover(on_checkpoint=print)


def test_records_are_flattened():
    record = {"steps": 3, "checks": {"catch": {"mean": 0.5}}, "returns": [1.0], "name": "x"}
    assert dict(flat(record)) == {"steps": 3, "checks/catch/mean": 0.5}


def test_wandb_keeps_records_offline_and_knows_a_run_again(tmp_path, monkeypatch):
    pytest.importorskip("wandb", reason="wandb is not installed")
    monkeypatch.setenv("WANDB_MODE", "offline")
    run = api.setup(ENV, RULE, **QUICK)
    folder = start(run, str(tmp_path / "run"))
    ids = []
    for steps in (32, 64):
        with loggers(run, folder, RunOptions(wandb=True)) as log:
            log({"steps": steps, "updates": 1, "return": 0.625})
        (kept,) = (folder.path / "wandb" / "latest-run").glob("*.wandb")
        deadline = time.monotonic() + 20  # a process of wandb's own writes it
        while b"0.625" not in kept.read_bytes() and time.monotonic() < deadline:
            time.sleep(0.05)
        assert b"0.625" in kept.read_bytes()
        ids.append(kept.stem.removeprefix("run-"))
    assert ids == [(folder.path / "wandb-id").read_text()] * 2
