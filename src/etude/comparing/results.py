"""What the cells of a comparison have come to, and what that says of the rules."""

import dataclasses
import itertools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from etude.comparing import statistics
from etude.comparing.cells import Cell
from etude.comparing.config import CompareConfig
from etude.comparing.statistics import CANNOT_BE_TOLD, Estimate
from etude.runs.figures import column
from etude.runs.folder import METRICS, Record, RunFolder
from etude.runs.reading import damaged
from etude.text import count

CELLS = "cells"
"""The folder of all cells."""
MEASURES = {
    "training": "return of the training policy over its last 100 episodes",
    "sampled": "return of a separate evaluation, actions sampled",
    "greedy": "return of a separate evaluation, the likeliest actions",
    "area": "return of the training policy over the whole budget (area under the learning curve)",
}
SHOWN, AREA = "training", "area"
"""The measures by which rules are compared over all environments; figures show the first."""
TARGETS = (0.5, 0.9)
"""Normalised scores to which the seconds are told."""
POINTS = 50
LEVELS = np.linspace(0.0, 1.0, 21)
"""Normalised scores at which a performance profile is told."""


@dataclasses.dataclass(frozen=True)
class Result:
    """Of one cell."""

    cell: Cell
    why: str | None
    """Why it failed, if it did."""
    summary: Record | None
    records: list[Record]

    @staticmethod
    def read(cell: Cell, path: Path, why: str | None) -> "Result":
        if why is not None:
            return Result(cell, why, None, [])
        folder = RunFolder.open(str(path / CELLS / cell.folder))
        summary, records = folder.summary(), folder.metrics()
        evaluated = (summary or {}).get("evaluation") or {}
        by_seed = [x.get("last_returns", []) for x in records]
        by_seed += [evaluated[name] for name in ("sampled", "greedy") if evaluated]
        by_seed += [] if summary is None else [summary["final_return"]["per_seed"]]
        if any(len(x) != cell.plan.seeds for x in by_seed):
            raise damaged(folder.path, f"it is not of {count(cell.plan.seeds, 'seed')}")
        return Result(cell, None, summary, records)

    def scores(self, measure: str) -> np.ndarray | None:
        """Of each seed; None if the cell failed or no episode of some seed ended."""
        if self.summary is None:
            return None
        if measure == AREA:
            areas = statistics.mean_height(*self.curve("steps"))
            return areas if np.isfinite(areas).all() else None
        of_training = self.summary["final_return"]["per_seed"]
        evaluation = self.summary.get("evaluation") or {}
        found = of_training if measure == SHOWN else evaluation.get(measure)
        return None if found is None or None in found else np.array(found, float)

    def curve(self, equal: str) -> tuple[np.ndarray, np.ndarray]:
        """The budget used so far (steps, updates or seconds), and the mean return over the last 100
        episodes (points × seeds); windows without an episode carry the last one."""
        x = column(self.records, equal)
        if equal == "updates":
            x = x * self.cell.plan.updates_per_update
        return x, statistics.carried(column(self.records, "last_returns"))

    def normalised(self, scores: np.ndarray) -> np.ndarray:
        entry = self.cell.entry
        assert entry.random is not None and entry.strong is not None
        return (scores - entry.random) / (entry.strong - entry.random)

    def seconds_to(self, target: float) -> list[float]:
        """Those after which each seed first had a normalised score; NaN if it never had."""
        seconds, returns = self.curve("seconds")
        return statistics.first_reached(seconds, self.normalised(returns), target).tolist()

    def told(self) -> Record:
        """For the summary."""
        cell, summary = self.cell, self.summary
        about = {"env": cell.env, "rule": cell.rule, "folder": f"{CELLS}/{cell.folder}"}
        about["status"] = "done" if summary is not None else "failed"
        if summary is None:
            return about | {"why": self.why, "settings": cell.plan.settings()}
        reached = (
            {f"{x:g}": self.seconds_to(x) for x in TARGETS} if cell.entry.is_normalised else {}
        )
        return about | {
            "scores": {measure: self.scores(measure) for measure in MEASURES},
            "curve": f"{CELLS}/{cell.folder}/{METRICS}",
            "environment_steps": summary["environment_steps"],
            "agent_updates": summary["updates"] * cell.plan.updates_per_update,
            "seconds": summary["seconds"],
            "seconds_to_score": reached,
            "unfinished_episodes": (summary.get("evaluation") or {}).get("unfinished", 0),
            "settings": cell.plan.settings(),
        }


def summarise(config: CompareConfig, results: Sequence[Result], seconds: float) -> Record:
    entries = {result.cell.env: result.cell.entry for result in results}
    return {
        "environments": list(entries),
        "rules": config.rule_names,
        "equal": config.equal,
        "seeds": config.seeds,
        "measures": MEASURES,
        "shown": SHOWN,
        "references": {
            name: {"random": x.random, "strong": x.strong, "source": x.source}
            for name, x in entries.items()
        },
        "cells": [result.told() for result in results],
        "failed": {x.cell.label: x.why for x in results if x.why is not None},
        "aggregate": {measure: aggregate(config, results, measure) for measure in MEASURES},
        "efficiency": efficiency(config, results),
        "seconds": round(seconds, 1),
    }


# --- Over environments ----------------------------------------------------------------------------

Rows = dict[str, dict[str, Result]]
"""By environment and rule."""


def rows_of(results: Sequence[Result]) -> Rows:
    rows: Rows = {}
    for result in results:
        rows.setdefault(result.cell.env, {})[result.cell.rule] = result
    return rows


def aggregate(config: CompareConfig, results: Sequence[Result], measure: str) -> Record:
    """Over those environments in which every rule has a score of each seed."""
    rows = rows_of(results)
    whole = {
        env: row
        for env, row in rows.items()
        if all(x.scores(measure) is not None for x in row.values())
    }
    scaled = {env: row for env, row in whole.items() if _entry(row).is_normalised}
    found: Record = {
        "left_out": {
            env: "a cell has no score" if env not in whole else "there is no reference"
            for env in rows
            if env not in scaled
        },
        "improvement": _pairs(config.rule_names, whole, measure, PROBABILITY),
        "improvement_over": list(whole),
        "over": list(scaled),
    }
    if not scaled:
        return found
    scores = {rule: _scores(scaled, rule, measure) for rule in config.rule_names}
    estimates = {rule: statistics.aggregate(x) for rule, x in scores.items()}
    profiles = {rule: statistics.performance_profile(x, LEVELS) for rule, x in scores.items()}
    return found | {
        "iqm": {rule: vars(x) for rule, x in estimates.items()},
        "difference": _pairs(config.rule_names, scaled, measure, DIFFERENCE),
        "against_best": against_best(estimates),
        "profile": {"levels": LEVELS, "share_above": profiles},
    }


def _entry(row: Mapping[str, Result]):
    return next(iter(row.values())).cell.entry


def _scores(rows: Rows, rule: str, measure: str, scale: bool = True) -> np.ndarray:
    """Environments × seeds."""
    each = [row[rule] for row in rows.values()]
    found = [(x, x.scores(measure)) for x in each]
    return np.stack([x.normalised(s) if scale else s for x, s in found if s is not None])


def against_best(estimates: Mapping[str, Estimate]) -> dict[str, str]:
    """In words, for each rule."""
    best = max(estimates, key=lambda rule: estimates[rule].value)
    words = {
        rule: CANNOT_BE_TOLD if x.overlaps(estimates[best]) else "worse"
        for rule, x in estimates.items()
    }
    alone = all(word == "worse" for rule, word in words.items() if rule != best)
    return words | {best: "best" if alone else f"best, but others {CANNOT_BE_TOLD} apart"}


class Between(NamedTuple):
    """What is told of a rule and another."""

    estimate: Callable[[np.ndarray, np.ndarray], Estimate]
    alike: float
    """What it is of equals."""
    scale: bool
    """Whether it takes normalised scores."""


PROBABILITY = Between(statistics.probability_of_improvement, alike=0.5, scale=False)
DIFFERENCE = Between(statistics.difference, alike=0.0, scale=True)


def _pairs(rules: Sequence[str], rows: Rows, measure: str, told: Between) -> list[Record]:
    """Of each pair of rules, the one named first over the other."""
    if not rows:
        return []
    found = []
    for one, other in itertools.combinations(rules, 2):
        x, y = (_scores(rows, rule, measure, told.scale) for rule in (one, other))
        estimate = told.estimate(x, y)
        verdict = statistics.better(estimate, told.alike)
        found.append({"rule": one, "over": other, **vars(estimate), "verdict": verdict})
    return found


def efficiency(config: CompareConfig, results: Sequence[Result]) -> Record:
    """The interquartile mean of normalised scores as the budget is used up, over environments in
    which no cell failed, from where every seed has a score."""
    rows = {
        env: row
        for env, row in rows_of(results).items()
        if _entry(row).is_normalised and all(x.records for x in row.values())
    }
    if not rows:
        return {}
    curves = {
        rule: [row[rule].curve(config.equal) for row in rows.values()] for rule in config.rule_names
    }
    end = max(x[-1] for each in curves.values() for x, _ in each)
    grid = np.linspace(end / POINTS, end, POINTS)
    by_rule = {}
    for rule, each in curves.items():
        cells = [row[rule] for row in rows.values()]
        lines = zip(cells, each, strict=True)
        scores = [cell.normalised(statistics.on_grid(*line, grid)) for cell, line in lines]
        by_rule[rule] = _band(np.stack(scores, axis=1))
    return {"budget": config.equal, "over": list(rows), "at": grid, "by_rule": by_rule}


def _band(scores: np.ndarray) -> Record:
    """Points × environments × seeds; where some score is not known yet, there is nothing. The
    interval is kept within the range of what was scored: it is to be drawn."""
    known = np.isfinite(scores).all(axis=(1, 2))
    lines = np.full((3, len(scores)), np.nan)
    if known.any():
        found, there = statistics.aggregate_along(scores[known], resamples=500), scores[known]
        lines[:, known] = np.clip(found, there.min(axis=(1, 2)), there.max(axis=(1, 2)))
    return dict(zip(("value", "low", "high"), lines, strict=True))
