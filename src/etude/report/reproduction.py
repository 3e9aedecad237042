"""What `etude reproduce` leaves: verdicts on printed claims, and the curves behind them."""

import numpy as np

from etude import stats
from etude.experiments import EXPERIMENTS
from etude.report.curves import Detail, about_lines, line
from etude.report.folders import Row, Told, origin
from etude.report.page import (
    Bars,
    Block,
    Cell,
    Commands,
    Curves,
    Facts,
    Paragraph,
    Part,
    Table,
    Tone,
    number,
    text,
)
from etude.runs.folder import Record
from etude.runs.reading import damaged
from etude.text import count

TONES: dict[str, Tone] = {"holds": "good", "does not hold": "bad", "cannot be told": "open"}


def tell(path: str, summary: Record, detail: Detail) -> Told:
    name = summary["experiment"][:200]
    known = EXPERIMENTS.get(name)
    hold = sum(x["verdict"] == "holds" for x in summary["verdicts"])
    held = f"{hold} of {count(len(summary['verdicts']), 'claim')} hold"
    blocks: list[Block] = [verdicts(summary)]
    if summary["quick"]:
        held = "short version"
        blocks = [Paragraph("This was the short version, which says nothing of the claims.", True)]
    blocks += [block for panel in summary["panels"] for block in drawn(path, panel, detail)]
    blocks += [Paragraph(note) for note in summary["notes"]]
    made = summary.get("made")
    if made and made["command"]:
        blocks.append(Commands("Commands", {"What was run": made["command"]}))
    blocks.append(Facts("Settings", {x: str(summary[x]) for x in ("seeds", "seed")}))
    blocks += origin(made)
    lead = f"Reproduction · {count(summary['seeds'], 'seed')} · {held}"
    source = f" · {known.source}" if known else ""
    part = Part(known.about if known else name, lead + source, blocks)
    return Told(part, Row("reproduction", name, held, summary["seeds"]))


def verdicts(summary: Record) -> Table:
    rows = [
        [
            text(x["claim"]),
            *(number(x[part]) for part in ("figure", "low", "high")),
            Cell(x["verdict"], tone=TONES[x["verdict"]]),
        ]
        for x in summary["verdicts"]
    ]
    note = "A claim holds, or does not, if all of our 95% interval agrees."
    return Table("Verdicts", ("claim", "ours", "low", "high", "verdict"), rows, note=note)


def drawn(path: str, panel: Record, detail: Detail) -> list[Block]:
    """A panel's lines and bars."""
    title, y_label = panel["title"], panel.get("y_label", "")
    levels = {label: level for label, level in panel["levels"].items() if level is not None}
    blocks: list[Block] = []
    if panel["lines"]:
        values = {label: _arrays(path, x) for label, x in panel["lines"].items()}
        lines = [line(label, x, y, detail.points) for label, (x, y) in values.items()]
        records, seeds = max(y.shape for _, y in values.values())
        note = about_lines(records, seeds, detail.points)
        blocks.append(Curves(title, panel.get("x_label", ""), y_label, lines, levels, note))
    if panel["bars"]:
        bars = {label: _interval(by_seed) for label, by_seed in panel["bars"].items()}
        note = "Mean over seeds, with Student's 95% interval."
        blocks.append(Bars(title, y_label, bars, {} if panel["lines"] else levels, note))
    return blocks


def _arrays(path: str, drawn: Record) -> tuple[np.ndarray, np.ndarray]:
    """Points along x, and values of shape points × seeds."""
    x = np.array(drawn["x"], float)
    if any(len(values) != len(x) for values in drawn["by_seed"]) or not drawn["by_seed"]:
        raise damaged(path, "a line has values for other points than it names")
    return x, np.array(drawn["by_seed"], float).T


def _interval(by_seed: list[float | None]) -> tuple[float, float, float]:
    values = np.array(by_seed, float)
    seen = values[np.isfinite(values)]
    if not len(seen):
        return np.nan, np.nan, np.nan
    with np.errstate(all="ignore"):
        mean, low, high = map(float, stats.t_interval(seen))
    return mean, low, high
