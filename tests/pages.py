"""Folders to report on, as runs leave them; no run takes place."""

import json
from pathlib import Path

import numpy as np

from etude.experiments import Options, Reproduction, Verdict, write
from etude.experiments.base import Panel
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
    write(result, "frodo-catch", options, RunFolder(path), "etude reproduce frodo-catch")
    return path
