"""What a reproduction is: a setting, curves with bands over seeds, verdicts on printed claims."""

import dataclasses
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from etude import stats
from etude.runs.figures import band, draw_band, figure_file, tidy
from etude.runs.folder import MADE, Record, RunFolder
from etude.runs.provenance import made_now
from etude.settings import Settings

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SHORT_VERSION = (
    "This was the short version: it shows that all works, and says nothing of the claims."
)

Say = Callable[[str], None]
"""Shows a line of progress."""


@dataclasses.dataclass(frozen=True)
class Verdict:
    """A claim of the source, our figure with its 95% interval, and what that says of the claim."""

    claim: str
    figure: float
    low: float
    high: float
    verdict: Literal["holds", "does not hold", "cannot be told"]

    @staticmethod
    def about(
        claim: str, by_seed: np.ndarray, at_least: float = -np.inf, at_most: float = np.inf
    ) -> "Verdict":
        """The claim is that the figure is between the two; all of its interval must agree."""
        mean, low, high = map(float, stats.t_interval(by_seed))
        if at_least < low and high < at_most:
            return Verdict(claim, mean, low, high, "holds")
        outside = high <= at_least or low >= at_most
        return Verdict(claim, mean, low, high, "does not hold" if outside else "cannot be told")

    @property
    def holds(self) -> bool:
        return self.verdict == "holds"


Line = tuple[np.ndarray, np.ndarray]
"""Points along x, and values of shape points × seeds."""


@dataclasses.dataclass(frozen=True)
class Panel:
    """One plot: lines, bars, and levels to compare them with."""

    title: str
    x_label: str
    y_label: str
    lines: dict[str, Line]
    levels: dict[str, float] = dataclasses.field(default_factory=dict)
    bars: dict[str, np.ndarray] = dataclasses.field(default_factory=dict)
    """Single figures by label, a value for each seed."""


@dataclasses.dataclass(frozen=True)
class Reproduction:
    verdicts: list[Verdict]
    panels: list[Panel]
    notes: tuple[str, ...] = ()
    """Where we depart from the source."""


@dataclasses.dataclass(frozen=True)
class Options:
    """How much of an experiment to run."""

    quick: bool
    """A short version, which shows that everything works, not that the claims hold."""
    seeds: int
    seed: int
    full: bool = False
    """As long as the source has it, where ours is cut to about two hours on two cores."""

    def size(self, quick: int, usual: int, full: int) -> int:
        return quick if self.quick else full if self.full else usual


@dataclasses.dataclass(frozen=True)
class Experiment:
    """A published experiment, rerun."""

    about: str
    source: str
    home: str
    """The function that runs it, as module:function of this package."""
    seeds: int = 10
    """How many there are unless one asks for others."""
    cut: str = ""
    """What is shorter than in the source, and what the whole would cost; empty if nothing is."""

    def run(self, options: Options, say: Say) -> Reproduction:
        module, _, function = self.home.partition(":")
        return getattr(import_module(f"etude.experiments.{module}"), function)(options, say)


def at_the_end(curve: np.ndarray, share: float = 0.1) -> np.ndarray:
    """Each seed's mean over the last part of its curve (points × seeds)."""
    return np.nanmean(curve[-max(1, round(share * len(curve))) :], axis=0)


def write(
    reproduction: Reproduction,
    name: str,
    options: Options,
    folder: RunFolder,
    command: str | None = None,
) -> None:
    """The figure, the numbers behind it, the verdicts, and what made them."""
    draw(reproduction, folder.path / "figure.png")
    folder.write_summary(
        {
            "experiment": name,
            **vars(options),
            MADE: made_now(command),
            "notes": reproduction.notes,
            # Those of a short version would mean nothing.
            "verdicts": [] if options.quick else [vars(x) for x in reproduction.verdicts],
            "panels": [_numbers(panel) for panel in reproduction.panels],
        }
    )


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
