"""Training runs: returns, what a rule has learned, losses."""

import numpy as np

from etude.report.curves import Detail, about_lines, diagnostics, line, seed_lines
from etude.report.folders import (
    Found,
    Row,
    Told,
    commands,
    film,
    lead_of,
    origin,
    row_of_run,
    settings_table,
)
from etude.report.page import Block, Curves, Facts, Line, Paragraph, Part
from etude.runs import results
from etude.runs.figures import column, curve_arrays, label_of

STEPS, RETURN = "environment steps", "episode return"
SHOWN = ("updates", "seconds", "steps", "return", "returns", "last_returns", "learned")
WHAT = {"train": "Training", "online": "Training under a rule that learns"}


def tell(found: Found, detail: Detail) -> Told:
    title = label_of(found.settings | {"seeds": 1})
    blocks: list[Block] = []
    if found.summary is not None:
        blocks.append(Facts("Results", results.of_training(found.summary), large=True))
    blocks += returns(found, detail)
    blocks += film(found.path, detail, title)
    blocks += learned(found, detail)
    if found.records:
        blocks += diagnostics(found.records, detail.points, "steps", STEPS, SHOWN)
    blocks.append(commands(found.path, found.kind, found.made, found.summary is not None))
    blocks += [settings_table(found.settings), *origin(found.made)]
    part = Part(title, lead_of(found, WHAT[found.kind]), blocks)
    return Told(part, row(found), common(found, detail))


def returns(found: Found, detail: Detail) -> list[Block]:
    steps, by_seed = curve_arrays(found.records)
    if not len(steps):
        return [Paragraph("No episode has ended yet.")]
    seeds = seed_lines(steps, by_seed, detail.points)
    lines = [line("mean" if seeds else "", steps, by_seed, detail.points), *seeds]
    note = about_lines(len(steps), by_seed.shape[1], detail.points)
    return [Curves("Episode return", STEPS, RETURN, lines, note=note)]


def learned(found: Found, detail: Detail) -> list[Block]:
    """What a rule that learns has learned."""
    told = [r for r in found.records if "learned" in r]
    steps = column(told, "steps")
    figures: list[Block] = []
    for name in told[0]["learned"] if told else ():
        by_seed = np.array([r["learned"][name] for r in told], float)
        note = about_lines(len(steps), by_seed.shape[1], detail.points)
        lines = [line("", steps, by_seed, detail.points)]
        figures.append(Curves(f"Learned: {name}", STEPS, name, lines, note=note, small=True))
    return figures


def row(found: Found) -> Row:
    return row_of_run(found, found.config.get("rule"), found.config.get("env"), "final_return")


def common(found: Found, detail: Detail) -> tuple[str, str, Line] | None:
    """The curve in the figure of all runs in the same environment."""
    steps, by_seed = curve_arrays(found.records)
    if not len(steps):
        return None
    rule, env = (str(found.config.get(name))[:200] for name in ("rule", "env"))
    return env, RETURN, line(rule, steps, by_seed, detail.points)
