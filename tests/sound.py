"""Folders as runs, comparisons, searches and reproductions leave them; no run takes place."""

import dataclasses
import os
from pathlib import Path
from typing import Any

import jax
import numpy as np

from etude import rules
from etude.adaptation.config import AdaptConfig
from etude.comparing.config import CompareConfig
from etude.comparing.results import Result, summarise
from etude.comparing.run import Comparison
from etude.kinds import COMPARE, TUNE
from etude.meta.discovery.config import DiscoverConfig
from etude.rules.actor_critic import ActorCritic
from etude.runs.arrays import as_json
from etude.runs.folder import RunFolder
from etude.training.config import TrainRequest
from etude.training.planning import plan_named
from etude.tuning.candidate import Candidate
from etude.tuning.config import TuneConfig
from etude.tuning.space import space_of
from etude.tuning.study import JOURNAL, Study
from tests import pages

EVIL = "evil_module"
"""Lies in the folder. To import it is to have failed."""
STATE = {"x": np.arange(6.0, dtype=np.float32), "key": np.zeros((2, 2), np.uint32)}
LIKE = {
    "x": jax.ShapeDtypeStruct((6,), np.float32),
    "key": jax.ShapeDtypeStruct((2,), jax.random.key(0).dtype),
}
REPRODUCTION, FILES = "reproduce", "files"
"""What else there is beside kinds of folders with a config: the folder of a reproduction, and files
that users name."""
SETTINGS, LISTED = "settings.json", "envs.txt"


SCORE = {"mean": 0.5, "low": None, "high": 1.0, "per_seed": [0.5, None]}
CHECK = {x: {"catch": SCORE} for x in ("returns", "start", "baseline", "untrained")}
WORK = {"seconds": 2.5, "steps_per_second": 99.5, "environment_steps": 64, "updates": 4}
TRAINED = WORK | {"final_return": SCORE, "seeds": 2, "params_sha256": "0" * 64}
CURVE = {"steps": 32, "seconds": 1.5, "return": 0.5, "returns": [0.5, None]}
DISCOVERED = dict.fromkeys(
    ["meta_loss", "pg_loss", "reg_loss", "meta_gradient_norm", "agent_loss", "age"], 0.5
)


def settings_of(kind: str) -> dict[str, Any]:
    if kind == "discover":
        return vars(DiscoverConfig())
    if kind == "adapt":
        return AdaptConfig().filled().settings()
    return plan_named(TrainRequest(rule="metagrad" if kind == "online" else "ppo")).plan.settings()


RECORDS: dict[str, dict[str, Any]] = {
    "train": CURVE | {"last_returns": [0.5, None]},
    "online": CURVE | {"learned": {"gamma": [0.9, 0.8]}, "outer_loss": 0.1},
    "adapt": CURVE | {"returns_before": [0.1, 0.2], "test_before": 0.1, "test_after": 0.5},
    "discover": DISCOVERED
    | {"steps": 32, "seconds": 1.5, "resets": 0, "skipped": 0, "returns": {"catch": None}}
    | {"check": CHECK | {"score": 0.1, "best": 0.2}},
}
SUMMARIES = {
    "train": TRAINED,
    "online": TRAINED | {"outcomes": {"coins": [0.5, 1.0]}},
    "adapt": WORK | {"fresh_tasks": 9, "before": SCORE, "after": SCORE},
    "discover": WORK | {"best_meta_step": 3, "final_check": CHECK},
}


def write_sound(path: Path, kind: str) -> RunFolder:
    """The folder of a kind."""
    others = {COMPARE: _comparison, TUNE: _search, REPRODUCTION: _reproduction, FILES: _files}
    folder = others[kind](path) if kind in others else write_run(path, kind, settings_of(kind))
    (path / f"{EVIL}.py").write_text("raise SystemError('imported')\n")
    return folder


def _begun(path: Path, kind: str, settings: dict[str, Any]) -> RunFolder:
    folder = RunFolder.create(str(path), "")
    about = {"kind": kind, "format": 1, "id": folder.identity, "import_from": str(path)}
    folder.write_config(about | settings)
    return folder


def write_run(path: Path, kind: str, settings: dict[str, Any]) -> RunFolder:
    """The folder of a finished run."""
    folder = _begun(path, kind, settings)
    rules.save_kept(folder, rules.RULE_FILE, ActorCritic(), {"batch": 8, "torso": (8,)})
    for updates in (2, 4):
        folder.log({"updates": updates} | RECORDS[kind])
    folder.save(STATE, 4, 2.5)
    folder.write_summary(SUMMARIES[kind])
    return RunFolder(path)


def _comparison(path: Path) -> RunFolder:
    config = CompareConfig(envs="catch", rules="ppo,actor_critic", steps=640, seeds=2)
    planned = Comparison.planned(config)
    folder = _begun(path, COMPARE, planned.settings())
    for cell in planned.cells:
        write_run(path / "cells" / cell.folder, cell.kind, cell.plan.settings())
    results = [Result.read(cell, path, None) for cell in planned.cells]
    folder.write_summary(summarise(config, results, 2.5))
    return RunFolder(path)


def _search(path: Path) -> RunFolder:
    """Two trials that are finished, and one that is not."""
    config = TuneConfig(env="catch", rule="actor_critic", trials=4, steps=640)
    folder = _begun(path, TUNE, dataclasses.asdict(config))
    study, space = Study(path / JOURNAL, config.seed), space_of(config)
    for score in (0.1, 0.5, None):
        trial = study.begin()
        layer = space.draw(study.suggester(trial))
        if score is not None:
            study.end(Candidate(config, path, layer, config.seed, trial, [score]))
    told = pages.search(path.parent / "told") / "summary.json"
    os.replace(told, path / "summary.json")
    return RunFolder(folder.path)


def _reproduction(path: Path) -> RunFolder:
    return RunFolder(pages.reproduction(path))


def _files(path: Path) -> RunFolder:
    """Those that are given to commands."""
    path.mkdir()
    (path / LISTED).write_text("# ours\ncatch\nbandit -0.6 1  # small\n")
    layer = {"envs": ["catch*"], "training": {"batch": 8, "torso": [8]}, "rule": {"clip": 0.1}}
    settings = {"format": 1, "rule": "ppo", "layers": [layer, {"envs": ["*"], "about": "any"}]}
    (path / SETTINGS).write_bytes(as_json(settings))
    return RunFolder(path)
