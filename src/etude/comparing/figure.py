"""The figure of a comparison: one axis per environment, and what they say together."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from etude.comparing import statistics
from etude.comparing.config import CompareConfig
from etude.comparing.results import MEASURES, SHOWN, Result, rows_of
from etude.runs.figures import figure_file, tidy
from etude.runs.folder import Record
from etude.settings import Settings
from etude.text import count

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLUMNS = 4
BUDGETS = {"steps": "environment steps", "updates": "agent updates", "seconds": "seconds"}


def draw(config: CompareConfig, results: Sequence[Result], efficiency: Record, path: Path) -> None:
    rows = rows_of(results)
    panels = len(rows) + bool(efficiency)
    columns = min(COLUMNS, panels)
    lines = -(-panels // columns)
    with figure_file(path, (4.2 * columns, 3.2 * lines + 0.6), (lines, columns)) as axes:
        every: list[Axes] = list(np.ravel(axes))
        for ax, (env, row) in zip(every, rows.items(), strict=False):
            _draw_environment(ax, config, row)
            ax.set_title(env, fontsize="medium")
        if efficiency:
            _draw_efficiency(every[len(rows)], efficiency)
        for ax in every[panels:]:
            ax.set_visible(False)
        every[0].figure.supxlabel(caption(config, bool(efficiency)), fontsize="small")


def caption(config: CompareConfig, together: bool) -> str:
    seeds = count(config.seeds, "seed")
    told = f"Shown: {MEASURES[SHOWN]}. Lines: interquartile mean over {seeds}"
    told += "; bands: from the 25th to the 75th percentile of seeds." if config.seeds > 1 else "."
    if together:
        told += (
            "\nAll environments: interquartile mean of normalised scores (0: random, 1: the stated "
            "reference), in its 95% interval within the range of what was scored."
        )
    return told


def _draw_environment(ax: "Axes", config: CompareConfig, row: dict[str, Result]) -> None:
    entry = next(iter(row.values())).cell.entry
    for index, (rule, result) in enumerate(row.items()):
        if not result.records:
            ax.plot([], [], color=f"C{index}", linestyle=":", label=f"{rule}: failed")
            continue
        x, returns = result.curve(config.equal)
        known = np.isfinite(returns).all(axis=1)
        x, returns = x[known], returns[known]
        low, high = np.quantile(returns, [0.25, 0.75], axis=1) if len(x) else (x, x)
        _draw_line(ax, index, rule, x, statistics.iqm(returns), low, high)
    for level, name in ((entry.random, "random"), (entry.strong, "reference")):
        if level is not None:
            ax.axhline(level, color="0.5", linestyle=":", linewidth=1)
            place: Settings = dict(ha="right", va="bottom", xycoords=("axes fraction", "data"))
            ax.annotate(name, (1.0, level), fontsize="xx-small", color="0.4", **place)
    tidy(ax, BUDGETS[config.equal], "return")


def _draw_efficiency(ax: "Axes", efficiency: Record) -> None:
    for index, (rule, line) in enumerate(efficiency["by_rule"].items()):
        _draw_line(ax, index, rule, efficiency["at"], line["value"], line["low"], line["high"])
    ax.set_title(f"all {count(len(efficiency['over']), 'environment')}", fontsize="medium")
    tidy(ax, BUDGETS[efficiency["budget"]], "normalised score")


def _draw_line(
    ax: "Axes",
    index: int,
    label: str,
    x: np.ndarray,
    middle: np.ndarray,
    low: np.ndarray,
    high: np.ndarray,
) -> None:
    alone = "o" if len(x) == 1 else None  # a line of one point would not be seen
    ax.plot(x, middle, color=f"C{index}", label=label, linewidth=1.6, marker=alone)
    ax.fill_between(x, low, high, color=f"C{index}", alpha=0.2, linewidth=0)
