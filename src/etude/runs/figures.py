"""Figures: learning curves with bands over seeds."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from warnings import catch_warnings, filterwarnings

import numpy as np

from etude import stats
from etude.errors import UserError, disk_errors, reason
from etude.runs.arrays import write_atomically
from etude.runs.folder import Record
from etude.settings import Settings

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def column(records: Sequence[Record], name: str) -> np.ndarray:
    return np.array([record[name] for record in records], float)


def curve_arrays(records: Sequence[Record]) -> tuple[np.ndarray, np.ndarray]:
    """Steps, and returns by seed (a column each), of those records that saw episodes end."""
    seen = [r for r in records if r.get("return") is not None and np.isfinite(r["return"])]
    return column(seen, "steps"), column(seen, "returns")


def has_curve(records: Sequence[Record]) -> bool:
    return len(curve_arrays(records)[0]) > 0


def band(returns: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mean over seeds (columns) and Student's 95% interval, at each point of a curve."""
    seen = np.isfinite(returns)
    count = np.maximum(seen.sum(axis=1), 1)
    mean = np.where(seen, returns, 0.0).sum(axis=1) / count
    # A seed without an episode in some stretch is taken to be like the others there.
    return stats.t_interval(np.where(seen, returns, mean[:, None]))


def smooth(x: np.ndarray, width: int) -> np.ndarray:
    """Running mean over `width` entries, shorter at the ends."""
    if width <= 1 or len(x) < 3:
        return x
    kernel = np.ones(width)
    return np.convolve(x, kernel, "same") / np.convolve(np.ones(len(x)), kernel, "same")


@contextmanager
def figure_file(
    path: Path, size: tuple[float, float] = (7.0, 4.5), grid: tuple[int, int] = (1, 1)
) -> Iterator[Any]:
    """Axes to draw on (a grid of them, or one); the figure is written when all is drawn."""
    # Not by pyplot, which would choose how figures are shown in someone's notebook.
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    what = f"The figure cannot be written to {path}"
    try:
        # Names are drawn as they are: a dollar sign is no formula, and no font has all characters.
        with disk_errors(what), rc_context({"text.parse_math": False}), catch_warnings():
            filterwarnings("ignore", "Glyph ")
            figure = Figure(figsize=size, layout="constrained")
            yield figure.subplots(*grid)
            kind = path.suffix[1:] or "png"
            write_atomically(path, lambda file: figure.savefig(file, dpi=130, format=kind))
    except (ValueError, ArithmeticError) as error:  # the format is unknown, or a number too large
        raise UserError(f"{what}: {reason(error)}.") from None


def label_of(config: Record) -> str:
    """What was trained where, from the settings of a run, which may be anyone's."""
    what, where = (
        next((x for x in map(config.get, pair) if isinstance(x, str) and x), "?")[:200]
        for pair in (("rule", "algo"), ("env", "tasks"))
    )
    number = config.get("seeds", 1)
    seeds = f", {number} seeds" if isinstance(number, int) and number > 1 else ""
    return f"{what} on {where}{seeds}"


def tidy(axes: "Axes", x_label: str, y_label: str) -> None:
    """The looks that all our axes share."""
    axes.set_xlabel(x_label)
    axes.set_ylabel(y_label)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    handles, labels = axes.get_legend_handles_labels()
    if handles:
        long = max(map(len, labels)) > 40
        place: Settings = dict(loc="upper center", bbox_to_anchor=(0.5, -0.14)) if long else {}
        axes.legend(frameon=False, fontsize="small", **place)


def plot_curves(runs: Sequence[tuple[str, Sequence[Record]]], path: Path) -> None:
    """Overlays the learning curves of labelled runs: the mean over seeds, with a 95% band."""
    runs = [(label, records) for label, records in runs if has_curve(records)]
    if not runs:
        raise UserError("There are no finished episodes to plot yet.")
    with figure_file(path) as axes:
        for label, records in runs:
            steps, returns = curve_arrays(records)
            draw_band(axes, steps, returns, label, width=max(1, len(steps) // 50))
        tidy(axes, "environment steps", "episode return")


def plot_learned(records: Sequence[Record], watched: Sequence[str], path: Path) -> None:
    """What a rule that learns online has learned, with bands over seeds, and the loss it learns
    from."""
    steps, learned = column(records, "steps"), [r["learned"] for r in records]
    with figure_file(path, (5.0 * (len(watched) + 1), 4.0), (1, len(watched) + 1)) as axes:
        for ax, name in zip(axes, watched, strict=False):
            draw_band(ax, steps, column(learned, name))
            tidy(ax, "environment steps", name)
        axes[-1].plot(steps, column(records, "outer_loss"))
        tidy(axes[-1], "environment steps", "outer loss")


def draw_band(
    ax: "Axes", x: np.ndarray, by_seed: np.ndarray, label: str | None = None, width: int = 1
) -> None:
    """A line of the mean over seeds (columns), in its 95% band if there are several, smoothed over
    `width` points."""
    mean, low, high = (smooth(line, width) for line in band(by_seed))
    alone = "o" if len(x) == 1 else None  # a line of one point would not be seen
    (line,) = ax.plot(x, mean, label=label, linewidth=1.6, marker=alone)
    if by_seed.shape[1] > 1:
        ax.fill_between(x, low, high, color=line.get_color(), alpha=0.2, linewidth=0)
