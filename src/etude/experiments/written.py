"""What a reproduction leaves in its folder: the figure, the numbers behind it, and the result."""

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from etude.experiments.base import Options, Panel, Reproduction
from etude.experiments.results import RESULT, Begun, result_of, write_result
from etude.runs.figures import band, draw_band, figure_file, tidy
from etude.runs.folder import MADE, Record, RunFolder
from etude.runs.provenance import made_now
from etude.settings import Settings

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def write(
    reproduction: Reproduction,
    name: str,
    options: Options,
    folder: RunFolder,
    begun: Begun,
    command: str | None = None,
    kept: Path | None = None,
) -> None:
    """The figure, the numbers behind it, the verdicts, and what made them. The verdicts of a short
    version would mean nothing: it leaves no result, neither there nor where they are kept."""
    draw(reproduction, folder.path / "figure.png")
    folder.write_summary(
        {
            "experiment": name,
            **vars(options),
            MADE: made_now(command),
            "notes": reproduction.notes,
            "verdicts": [] if options.quick else [vars(x) for x in reproduction.verdicts],
            "panels": [_numbers(panel) for panel in reproduction.panels],
        }
    )
    if not options.quick:
        result = result_of(reproduction, name, options, begun)
        for path in filter(None, (folder.path / RESULT, kept)):
            write_result(result, path)


def _numbers(panel: Panel) -> Record:
    lines = {label: {"x": x, "by_seed": y.T} for label, (x, y) in panel.lines.items()}
    return {
        "title": panel.title,
        "x_label": panel.x_label,
        "y_label": panel.y_label,
        "lines": lines,
        "levels": panel.levels,
        "bars": panel.bars,
    }


def draw(reproduction: Reproduction, path: Path) -> None:
    panels = reproduction.panels
    rows = 1 if len(panels) < 4 else 2
    columns = -(-len(panels) // rows)
    with figure_file(path, (6.5 * columns, 4.5 * rows), (rows, columns)) as axes:
        for ax in np.ravel(axes)[len(panels) :]:
            ax.set_axis_off()
        for ax, panel in zip(np.ravel(axes), panels, strict=False):
            for label, (x, values) in panel.lines.items():
                draw_band(ax, x, values, label)
            if panel.bars:
                _draw_bars(ax, panel.bars)
            for label, level in panel.levels.items():
                ax.axhline(level, color="0.5", linestyle=":", linewidth=1)
                place: Settings = dict(ha="right", va="bottom", xycoords=("axes fraction", "data"))
                ax.annotate(label, (1.0, level), fontsize="x-small", color="0.4", **place)
            ax.set_title(panel.title, fontsize="medium")
            tidy(ax, panel.x_label, panel.y_label)


def _draw_bars(ax: "Axes", bars: dict[str, np.ndarray]) -> None:
    """The mean over seeds, with its 95% interval."""
    means, lows, highs = band(np.stack(list(bars.values())))
    reach = [means - lows, highs - means]
    ax.bar(list(bars), means, color="C0", alpha=0.8)
    ax.tick_params("x", labelsize="x-small" if len(bars) > 6 else "medium")
    ax.errorbar(list(bars), means, reach, fmt="none", ecolor="0.2", capsize=3)
