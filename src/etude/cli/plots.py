"""`etude plot`: the curves of several runs in one figure, a panel per environment."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from etude.errors import UserError
from etude.kinds import kind_in
from etude.meta.discovery.report import draw_checks
from etude.runs.figures import curve_arrays, draw_band, figure_file, label_of, tidy
from etude.runs.folder import RunFolder

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class Line(NamedTuple):
    """What a run has to show in one panel."""

    panel: tuple[str, str, str]
    """The title, and what the axes say: lines with the same share a panel."""
    label: str
    draw: Callable[["Axes", str], object]
    """Given the axes and a label."""


def plot_folders(paths: Sequence[str], out: Path) -> list[str]:
    """Draws what can be drawn; says of what cannot why not."""
    found: list[tuple[RunFolder, Line]] = []
    undrawn = []
    for path in paths:
        try:
            folder = RunFolder.open(path)
            found += [(folder, line) for line in lines_of(folder)]
        except UserError as error:
            undrawn.append(str(error))
    if not found:
        raise UserError(undrawn[0])
    panels: dict[tuple[str, str, str], list[tuple[RunFolder, Line]]] = {}
    for folder, line in found:
        panels.setdefault(line.panel, []).append((folder, line))
    columns = min(len(panels), 3)
    rows = -(-len(panels) // columns)
    with figure_file(out, (6.0 * columns, 4.5 * rows), (rows, columns)) as grid:
        axes: list[Axes] = list(np.ravel(grid))
        for ax, (panel, lines) in zip(axes, panels.items(), strict=False):
            _draw_panel(ax, panel, lines)
        for ax in axes[len(panels) :]:
            ax.set_visible(False)
    return undrawn


def _draw_panel(
    ax: "Axes", panel: tuple[str, str, str], lines: Sequence[tuple[RunFolder, Line]]
) -> None:
    title, across, up = panel
    labels = [line.label for _, line in lines]
    for folder, line in lines:
        alone = labels.count(line.label) == 1
        line.draw(ax, line.label if alone else f"{line.label} ({folder.path.name})")
    ax.set_title(title, fontsize="medium")
    tidy(ax, across, up)


def lines_of(folder: RunFolder) -> Iterator[Line]:
    """What the run in a folder has to show; a sentence if there is nothing."""
    kind = kind_in(folder)
    if kind is None:
        raise UserError(f"{folder.path} holds no run with a curve: it is not drawn.")
    yield from _checks(folder) if kind == "discover" else _returns(folder)


def _returns(folder: RunFolder) -> Iterator[Line]:
    steps, returns = curve_arrays(folder.metrics())
    if not len(steps):
        raise UserError(f"In {folder.path} no episode has ended yet: there is nothing to draw.")
    config = folder.config()
    places = [x for x in (config.get("env"), config.get("tasks")) if isinstance(x, str) and x]
    title = next(iter(places), "?")[:200]
    label = label_of(config).replace(f" on {title}", "")

    def draw(ax: "Axes", label: str) -> None:
        draw_band(ax, steps, returns, label, width=max(1, len(steps) // 50))

    yield Line((title, "environment steps", "episode return"), label, draw)


def _checks(folder: RunFolder) -> Iterator[Line]:
    checked = [record for record in folder.metrics() if "check" in record]
    if not checked:
        raise UserError(f"In {folder.path} no rule was checked yet: there is nothing to draw.")
    for name in checked[0]["check"]["returns"]:

        def draw(ax: "Axes", label: str, name: str = name) -> None:
            color = draw_checks(ax, checked, name, 0.15, label=label)
            baseline = checked[-1]["check"]["baseline"][name]["mean"]
            if baseline is not None:
                ax.axhline(baseline, color=color, linestyle=":", linewidth=1)

        up = "return of fresh agents (dotted: actor-critic)"
        yield Line((name, "meta-steps", up), folder.path.name, draw)
