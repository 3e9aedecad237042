"""`etude plot`: the curves of several runs in one figure."""

from collections.abc import Sequence
from pathlib import Path

from etude.errors import UserError
from etude.kinds import kind_in
from etude.meta.discovery.report import plot_checks
from etude.runs.figures import label_of, plot_curves
from etude.runs.folder import RunFolder


def plot_folders(paths: Sequence[str], out: Path) -> None:
    """Overlays training runs or, if there are none among the folders, the checks of discovery."""
    folders = [RunFolder.open(path) for path in paths]
    discoveries = [f for f in folders if kind_in(f) == "discover"]
    training = [f for f in folders if kind_in(f) not in ("discover", None)]
    if training:
        _plot_training(training, out)
    elif discoveries:
        plot_checks([f.metrics() for f in discoveries], out)
    else:
        raise UserError(f"{paths[0]} holds no training and no discovery, so there is no curve.")


def _plot_training(folders: Sequence[RunFolder], out: Path) -> None:
    labels = [label_of(folder.config()) for folder in folders]
    if len(set(labels)) < len(labels):
        labels = [f"{label} ({f.path.name})" for label, f in zip(labels, folders, strict=True)]
    plot_curves([(x, f.metrics()) for x, f in zip(labels, folders, strict=True)], out)
