"""Folders to report on, as runs leave them; no run takes place."""

import dataclasses
import json
from pathlib import Path

import numpy as np

from etude.comparing.cells import plan_cells
from etude.comparing.config import CompareConfig
from etude.comparing.results import Result, summarise
from etude.comparing.suites import Entry
from etude.experiments import Options, Reproduction, Verdict
from etude.experiments.base import Panel
from etude.experiments.fingerprint import Fingerprint
from etude.experiments.results import Begun
from etude.experiments.written import write
from etude.runs.folder import RunFolder

GIF = bytes.fromhex("47494638396101000100800000000000ffffff2c00000000010001000002024401003b")
"""One pixel."""
MADE = {
    "command": "etude train --env catch --rule ppo",
    "at": "2026-11-18T17:00:00+00:00",
    "versions": {"python": "3.11.7", "etude": "0.1.0"},
    "machine": {"system": "Linux", "cores": 2, "device": "cpu"},
}


def training(
    path: Path, env: str = "catch", rule: str = "ppo", records: int = 40, seeds: int = 3, seed=0
) -> Path:
    """A finished run whose returns rise from -1 towards 1."""
    path.mkdir(parents=True)
    config = {"kind": "train", "format": 1, "env": env, "rule": rule, "seeds": seeds, "steps": 4000}
    (path / "config.json").write_text(json.dumps(config | {"torso": [8, 8], "made": MADE}))
    random = np.random.default_rng(seed)
    returns = np.tanh(np.linspace(-1, 2, records))[:, None] + 0.05 * random.normal(
        size=(records, seeds)
    )
    lines = [
        {
            "updates": i + 1,
            "steps": 100 * (i + 1),
            "seconds": 0.1 * (i + 1),
            "return": float(x.mean()),
            "returns": x.tolist(),
            "last_returns": x.tolist(),
            **{name: float(random.uniform(1, 2)) for name in ("loss", "pi_loss", "entropy")},
            "episode_length": 4.0,
        }
        for i, x in enumerate(returns)
    ]
    (path / "metrics.jsonl").write_text("".join(json.dumps(x) + "\n" for x in lines))
    last = returns[-1]
    final = {"mean": last.mean(), "low": last.min(), "high": last.max(), "per_seed": last.tolist()}
    work = {"seconds": 4.0, "steps_per_second": 1000.0, "environment_steps": 100 * records}
    summary = work | {"seeds": seeds, "updates": records, "params_sha256": "0" * 64}
    (path / "summary.json").write_text(json.dumps(summary | {"final_return": final}))
    return path


def comparison(path: Path, fails: str | None = None) -> Path:
    """Two rules in two environments, as `etude compare` sums them up; one of them may fail in the
    second."""
    config = CompareConfig(envs="catch,bandit", rules="ppo,actor_critic", steps=4000, seeds=3)
    entries = [Entry("catch", -1.0, 1.0, "the maximum"), Entry("bandit", 0.0, 1.0, "a paper")]
    cells = plan_cells(config, entries)
    results = []
    for i, cell in enumerate(cells):
        failed = cell.rule == fails and cell.env == "bandit"
        if not failed:
            training(path / "cells" / cell.folder, cell.env, cell.rule, seed=i)
        results.append(Result.read(cell, path, "it was killed" if failed else None))
    about = {"kind": "compare", "format": 1, "made": MADE}
    (path / "config.json").write_text(json.dumps(about | dataclasses.asdict(config)))
    RunFolder(path).write_summary(summarise(config, results, 12.0))
    return path


def search(path: Path) -> Path:
    """As `etude tune` sums it up."""
    path.mkdir(parents=True)
    config = {"kind": "tune", "format": 1, "env": "catch", "rule": "ppo", "trials": 2, "made": MADE}
    (path / "config.json").write_text(json.dumps(config))
    layer = {"training": {"learning_rate": 0.01}, "rule": {"entropy_cost": 0.1}}
    contenders = [
        {"name": "defaults", "score": 0.2, "again": 0.1, "layer": {}},
        {"name": "trial 1", "score": 0.9, "again": 0.8, "layer": layer},
    ]
    trials = [
        {
            "trial": 0,
            "state": "pruned",
            "score": None,
            "why": None,
            "settings": {"learning_rate": 0.1},
        },
        {
            "trial": 1,
            "state": "complete",
            "score": 0.9,
            "why": None,
            "settings": {"learning_rate": 0.01},
        },
    ]
    summary = {
        "chosen": "trial 1", "score": 0.8, "defaults": 0.1, "contenders": contenders,
        "importances": {"learning_rate": 0.9, "entropy_cost": 0.1},
        "trials": {"complete": 1, "pruned": 1, "fail": 0}, "each_trial": trials,
        "seconds": 20.0, "environment_steps": 8000,
    }  # fmt: skip
    (path / "summary.json").write_text(json.dumps(summary))
    return path


def reproduction(path: Path, quick: bool = False) -> Path:
    """Two verdicts, lines with a level, and bars."""
    path.mkdir(parents=True)
    x, by_seed = np.arange(1.0, 6.0), np.linspace(0.0, 1.0, 10).reshape(5, 2)
    panels = [
        Panel("Values", "switches", "value error", {"FRODO": (x, by_seed)}, {"best fixed": 0.5}),
        Panel("Ends", "", "return", {}, bars={"MAML": np.array([0.2, 0.4]), "RL²": by_seed[-1]}),
    ]
    verdicts = [
        Verdict.about("It is above 0.", np.array([0.9, 1.0, 1.1]), at_least=0.0),
        Verdict.about("It is below 0.", np.array([0.9, 1.0, 1.1]), at_most=0.0),
    ]
    result = Reproduction(verdicts, panels, ("It is small.",))
    options = Options(quick=quick, seeds=2, seed=0)
    begun = Begun(Fingerprint("1" * 12, "2" * 12), None, 0.0, 0.0)
    command = "etude reproduce frodo-catch"
    write(result, "frodo-catch", options, RunFolder(path), begun, command)
    return path
