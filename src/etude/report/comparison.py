"""Comparisons: which rule learned best, how sure that is, and every cell."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from etude.comparing import statistics
from etude.comparing.figure import BUDGETS
from etude.comparing.results import AREA, CELLS
from etude.comparing.statistics import CANNOT_BE_TOLD
from etude.report.curves import Detail, thinned
from etude.report.folders import Found, Row, Told, held, holder_commands, origin, settings_table
from etude.report.page import (
    Block,
    Cell,
    Curves,
    Line,
    Paragraph,
    Part,
    Table,
    Tone,
    number,
    text,
    whole,
)
from etude.runs.figures import column
from etude.runs.folder import Record, RunFolder
from etude.settings import split_specs
from etude.text import as_words, count, duration

NORMALISED = "normalised score"


class Of(NamedTuple):
    """A finished comparison."""

    path: Path
    summary: Record

    @property
    def shown(self) -> Record:
        """What the environments say together, by the measure that is shown."""
        empty = {"over": [], "left_out": {}, "improvement": []}
        return self.summary["aggregate"].get(self.summary["shown"], empty)

    @property
    def looks(self) -> dict[str, int]:
        """A rule has the same colour in all figures."""
        return {rule: index for index, rule in enumerate(self.summary["rules"])}


def tell(found: Found, detail: Detail) -> Told:
    envs, rules = (str(found.config.get(name))[:200] for name in ("envs", "rules"))
    blocks: list[Block] = []
    if found.summary is None:
        state, blocks = "not finished", held(found)
    else:
        state = f"finished in {duration(found.summary['seconds'])}"
        blocks = finished(Of(found.path, found.summary), detail)
    blocks.append(holder_commands(found))
    blocks += [settings_table(found.settings), *origin(found.made)]
    part = Part(_title(rules, envs), f"Comparison · {state}", blocks)
    seconds = (found.summary or {}).get("seconds")
    return Told(part, Row("comparison", envs, state, found.config.get("seeds"), seconds=seconds))


def _title(rules: str, envs: str) -> str:
    """What was compared where, or how much if that would be long."""
    named, places = split_specs(rules), split_specs(envs)
    whole = f"{', '.join(named)} on {', '.join(places)}"
    short = f"{count(len(named), 'rule')} on {count(len(places), 'environment')}"
    return whole if len(whole) <= 80 else short


def finished(it: Of, detail: Detail) -> list[Block]:
    failed = [Paragraph(f"Failed: {x}: {why}", True) for x, why in it.summary["failed"].items()]
    tables = [*together(it), *cells(it)]
    return [*tables[:1], *failed, *efficiency(it), *environments(it, detail), *tables[1:],
            *profile(it), *references(it)]  # fmt: skip


# --- All environments together --------------------------------------------------------------------


def together(it: Of) -> list[Block]:
    shown = it.shown
    probability = (
        "That a run of the first is better than a run of the other; 0.5 if they are alike."
    )
    blocks = [
        *_scores(it, it.summary["shown"], "All environments together"),
        *_scores(it, AREA, "All environments together, over the whole budget"),
        *_pairs(shown["improvement"], "Probability of improvement", probability),
    ]
    left_out = [f"{env} ({why})" for env, why in shown["left_out"].items()]
    if left_out:
        blocks.append(Paragraph(f"Left out of normalised scores: {', '.join(left_out)}."))
    return blocks


def _scores(it: Of, measure: str, title: str) -> list[Block]:
    """Interquartile means by one measure, and how far apart they are."""
    found = it.summary["aggregate"].get(measure, {})
    if not found.get("iqm"):
        return []
    words = found.get("against_best", {})
    rows = [
        [text(rule), *_estimate(x), _judged(words.get(rule, ""))]
        for rule, x in found["iqm"].items()
    ]
    over = f"{count(len(found['over']), 'environment')} and {count(it.summary['seeds'], 'seed')}"
    note = (
        f"Interquartile mean of normalised scores (0: random, 1: the stated reference) over "
        f"{over}, with 95% intervals: {it.summary['measures'].get(measure, '')}."
    )
    columns = ("rule", "score", "low", "high", "against the best")
    apart = f"{title}: differences"
    note_apart = "The interquartile mean of the first minus that of the other."
    return [
        Table(title, columns, rows, note=note),
        *_pairs(found.get("difference", []), apart, note_apart),
    ]


def _pairs(pairs: Sequence[Record], title: str, note: str) -> list[Block]:
    """Of one rule and another."""
    rows = [
        [
            text(x["rule"]),
            text(x["over"]),
            *_estimate(x),
            Cell(x["verdict"], tone=_tone(x["verdict"])),
        ]
        for x in pairs
    ]
    columns = ("rule", "over", "value", "low", "high", "verdict")
    return [Table(title, columns, rows, note=note)] if rows else []


def _estimate(found: Record) -> list[Cell]:
    return [number(found[name]) for name in ("value", "low", "high")]


def _judged(words: str) -> Cell:
    return Cell(words, tone=_tone(words))


def _tone(words: str) -> Tone:
    if CANNOT_BE_TOLD in words:
        return "open"
    return {"best": "good", "better": "good", "worse": "bad"}.get(words, "")  # type: ignore[return-value]


def efficiency(it: Of) -> list[Block]:
    found = it.summary["efficiency"]
    if not found.get("by_rule") or not found.get("at"):
        return []
    at = np.array(found["at"], float)
    lines = []
    for rule, x in found["by_rule"].items():
        value, low, high = (np.array(x[name], float) for name in ("value", "low", "high"))
        if len(at) == len(value) == len(low) == len(high):
            lines.append(Line(rule, at, value, low, high, look=it.looks.get(rule)))
    note = "Line: interquartile mean of normalised scores. Band: its 95% interval."
    budget = BUDGETS.get(found.get("budget", ""), "budget")
    return [Curves("How fast the rules learn", budget, NORMALISED, lines, note=note)]


def profile(it: Of) -> list[Block]:
    if (found := it.shown.get("profile")) is None:
        return []
    levels = np.array(found["levels"], float)
    lines = [
        Line(rule, levels, np.array(shares, float), look=it.looks.get(rule))
        for rule, shares in found["share_above"].items()
        if len(shares) == len(levels)
    ]
    note = "The share of all runs whose normalised score is above what the axis says."
    return [Curves("Performance profile", NORMALISED, "share of runs", lines, note=note)]


# --- Cells ----------------------------------------------------------------------------------------


def environments(it: Of, detail: Detail) -> list[Block]:
    """A figure per environment, drawn from what its cells have logged."""
    note = (
        f"Line: interquartile mean over {count(it.summary['seeds'], 'seed')}. Band: from the 25th "
        "to the 75th percentile of seeds."
    )
    figures: list[Block] = []
    for env in it.summary["environments"]:
        own = [x for x in it.summary["cells"] if x["env"] == env and x["status"] == "done"]
        lines = [line for cell in own if (line := curve(it, cell, detail)) is not None]
        reference = it.summary["references"].get(env, {})
        levels = {"random": reference.get("random"), "reference": reference.get("strong")}
        known = {name: level for name, level in levels.items() if level is not None}
        axis = BUDGETS.get(it.summary["equal"], "budget")
        figures.append(Curves(env, axis, "return", lines, known, note, small=True))
    return figures


def curve(it: Of, cell: Record, detail: Detail) -> Line | None:
    """Of a cell, if what it has logged is there."""
    name = Path(cell["folder"]).name  # nothing elsewhere is read, whatever the summary names
    records = RunFolder(it.path / CELLS / name).metrics() if name not in ("", "..") else []
    if not records or any("last_returns" not in x for x in records):
        return None
    equal = it.summary["equal"] if it.summary["equal"] in BUDGETS else "steps"
    x = np.array([record.get(equal, np.nan) for record in records], float)
    if equal == "updates" and x[-1] > 0:  # those of the agent, where records count the rule's
        x = x * cell.get("agent_updates", x[-1]) / x[-1]
    with np.errstate(all="ignore"):
        returns = statistics.carried(column(records, "last_returns"))
        known = np.isfinite(returns).all(axis=1) & np.isfinite(x)
        x, returns = thinned(x[known], returns[known], detail.points)
        if not len(x) or not returns.shape[1]:
            return None
        low, high = np.quantile(returns, [0.25, 0.75], axis=1)
        middle = statistics.iqm(returns)
    return Line(cell["rule"], x, middle, low, high, look=it.looks.get(cell["rule"]))


def cells(it: Of) -> list[Block]:
    measures = list(it.summary["measures"])
    targets = sorted({x for cell in it.summary["cells"] for x in cell.get("seconds_to_score", {})})
    rows = [_cell(cell, measures, targets) for cell in it.summary["cells"]]
    columns = (
        "environment", "rule", *measures, "steps", "agent updates", "time",
        *(f"s to {x}" for x in targets), "status",
    )  # fmt: skip
    said = "; ".join(f"{name}: {about}" for name, about in it.summary["measures"].items())
    reached = " Seconds to a normalised score: the mean over seeds, if all reached it."
    note = f"Means over seeds. {said}.{reached if targets else ''}"
    return [Table("Cells", columns, rows, note=note), *_differing(it.summary["cells"])]


def _cell(cell: Record, measures: Sequence[str], targets: Sequence[str]) -> list[Cell]:
    scores, reached = cell.get("scores", {}), cell.get("seconds_to_score", {})
    done, seconds = cell["status"] == "done", cell.get("seconds")
    return [
        text(cell["env"]),
        text(cell["rule"]),
        *(number(_mean(scores.get(measure))) for measure in measures),
        whole(cell.get("environment_steps")),
        whole(cell.get("agent_updates")),
        Cell("–") if seconds is None else Cell(duration(seconds), seconds),
        *(number(_mean(reached.get(target))) for target in targets),
        Cell("done") if done else Cell(f"failed: {cell.get('why') or ''}"[:300], tone="bad"),
    ]


def _mean(by_seed: Sequence[float | None] | None) -> float | None:
    """None if a seed has no number."""
    seen = [x for x in by_seed or () if x is not None]
    return sum(seen) / len(seen) if seen and len(seen) == len(by_seed or ()) else None


def _differing(cells: Sequence[Record]) -> list[Block]:
    """The settings that are not the same in all cells."""
    names = list({name: 0 for cell in cells for name in cell["settings"]})
    told = {name: [as_words(cell["settings"].get(name)) for cell in cells] for name in names}
    differ = [x for x in names if x not in ("env", "rule") and len(set(told[x])) > 1]
    rows = [
        [text(cell["env"]), text(cell["rule"]), *(text(told[name][i]) for name in differ)]
        for i, cell in enumerate(cells)
    ]
    columns = ("environment", "rule", *differ)
    return [Table("Settings that differ", columns, rows, folded=True)] if differ else []


def references(it: Of) -> list[Block]:
    rows = [
        [text(env), number(x["random"]), number(x["strong"]), text(x["source"])]
        for env, x in it.summary["references"].items()
    ]
    columns = ("environment", "random", "reference", "source")
    return [Table("References", columns, rows, folded=True)] if rows else []
