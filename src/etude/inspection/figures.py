"""What was found out about a rule, drawn."""

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from etude.inspection.inspect import Inspection
from etude.inspection.targets import HEADS
from etude.runs.figures import draw_band, figure_file, tidy

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def draw(found: Inspection, path: Path) -> None:
    with figure_file(path, (15.0, 13.0), (2, 2)) as axes:
        probes, ahead, gradient, ablation = np.ravel(axes)
        _draw_probes(probes, found)
        steps = np.arange(len(found.horizon))
        for i, head in enumerate(found.heads):
            draw_band(ahead, steps, found.horizon[:, i], head)
        ahead.set_yscale("log")
        ahead.set_title("how far ahead targets look", fontsize="medium")
        tidy(ahead, "steps from a target to the reward that changes", "KL divergence")
        _draw_inputs(gradient, found.inputs, found.gradient)
        gradient.set_title("change of the targets for one deviation of an input", fontsize="medium")
        _draw_inputs(ablation, found.inputs, found.ablation)
        ablation.set_title("KL divergence without an input", fontsize="medium")


def _draw_probes(ax: "Axes", found: Inspection) -> None:
    """R² below 0 is drawn as 0: nothing was found."""
    sources = list(next(iter(found.probes.values())))
    place, width = np.arange(len(found.probes)), 0.8 / len(sources)
    for i, source in enumerate(sources):
        by_seed = np.stack([x[source] for x in found.probes.values()])
        means = np.clip(np.nan_to_num(np.mean(by_seed, axis=1)), 0.0, 1.0)
        ax.barh(place + i * width, means, width, label=source)
    ax.set_yticks(place + 0.4 - width / 2, list(found.probes), fontsize="small")
    ax.invert_yaxis()
    ax.set_title("what predictions tell, on held-out episodes", fontsize="medium")
    tidy(ax, "R²", "")


def _draw_inputs(ax: "Axes", names: list[str], by_head: np.ndarray) -> None:
    place, width = np.arange(len(names)), 0.8 / len(HEADS)
    for i, head in enumerate(HEADS):
        ax.barh(place + i * width, by_head[:, i].mean(axis=-1), width, label=head)
    ax.set_yticks(place + 0.4 - width / 2, names, fontsize="x-small")
    ax.invert_yaxis()
    tidy(ax, "", "")
