"""Runs of `etude adapt`: returns on tasks before adapting to them, and after."""

import numpy as np

from etude.report.curves import Detail, about_lines, diagnostics, line
from etude.report.folders import (
    Found,
    Row,
    Told,
    commands,
    film,
    lead_of,
    origin,
    row_of_run,
    score_cells,
    settings_table,
)
from etude.report.page import Block, Curves, Facts, Line, Part, Table, text
from etude.runs import results
from etude.runs.figures import column, label_of
from etude.text import count, duration

STEPS, RETURN = "environment steps", "return on test tasks"
SHOWN = ("updates", "seconds", "steps", "return", "returns", "returns_before")


def tell(found: Found, detail: Detail) -> Told:
    title = label_of(found.settings | {"seeds": 1})
    blocks: list[Block] = judged(found)
    blocks += adapting(found, detail)
    blocks += film(found.path, detail, title)
    if found.records:
        blocks += diagnostics(found.records, detail.points, "steps", STEPS, SHOWN)
    blocks.append(commands(found.path, found.kind, found.made, found.summary is not None))
    blocks += [settings_table(found.settings), *origin(found.made)]
    part = Part(title, lead_of(found, "Learning to adapt"), blocks)
    return Told(part, row(found), common(found, detail))


def judged(found: Found) -> list[Block]:
    if (summary := found.summary) is None:
        return []
    rows = [
        [text(label), *score_cells(score)]
        for label, score in results.of_adaptation(summary).items()
    ]
    title = f"Return on {count(summary['fresh_tasks'], 'fresh task')}"
    work = {
        "time": duration(summary["seconds"]),
        "speed": f"{summary['steps_per_second']:,.0f} steps/s",
    }
    interval = "Low and high are the ends of a 95% interval."
    return [
        Table(title, ("", "mean", "low", "high"), rows, note=interval),
        Facts("Work", work),
    ]


def adapting(found: Found, detail: Detail) -> list[Block]:
    lines = [
        line(label, *_returns(found, name), detail.points)
        for label, name in (("before adapting", "returns_before"), ("after", "returns"))
    ]
    lines = [one for one in lines if len(one.x)]
    if not lines:
        return []
    steps, by_seed = _returns(found, "returns")
    note = about_lines(len(steps), by_seed.shape[1], detail.points)
    return [Curves("Before adapting and after", STEPS, RETURN, lines, note=note)]


def _returns(found: Found, name: str) -> tuple[np.ndarray, np.ndarray]:
    by_seed = column(found.records, name) if found.records else np.zeros((0, 1))
    return column(found.records, "steps"), by_seed


def row(found: Found) -> Row:
    return row_of_run(found, found.config.get("algo"), found.config.get("tasks"), "after")


def common(found: Found, detail: Detail) -> tuple[str, str, Line] | None:
    """The curve in the figure of all runs on the same tasks."""
    algo, tasks = (str(found.config.get(name))[:200] for name in ("algo", "tasks"))
    after = line(algo, *_returns(found, "returns"), detail.points)
    return (tasks, "return after adapting", after) if len(after.x) else None
