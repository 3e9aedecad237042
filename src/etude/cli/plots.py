"""`etude plot`: the curves of several runs in one figure."""

from collections.abc import Sequence
from pathlib import Path

from etude.errors import UserError
from etude.meta.discovery.report import plot_checks
from etude.runs.figures import plot_curves
from etude.runs.folder import RunFolder


def label_of(folder: RunFolder) -> str:
    config = folder.config()
    seeds = f", {config['seeds']} seeds" if config.get("seeds", 1) > 1 else ""
    what, where = (config.get(a) or config[b] for a, b in (("rule", "algo"), ("env", "tasks")))
    return f"{what} on {where}{seeds}"


def plot_folders(paths: Sequence[str], out: Path) -> None:
    """Overlays training runs or, if there are none among the folders, the checks of discovery."""
    folders = [RunFolder.open(path) for path in paths]
    training = [f for f in folders if {"rule", "env"} <= f.config().keys() or "algo" in f.config()]
    discoveries = [f for f in folders if "envs" in f.config()]
    if training:
        _plot_training(training, out)
    elif discoveries:
        plot_checks([f.metrics() for f in discoveries], out)
    else:
        raise UserError(f"{paths[0]} holds no training and no discovery, so there is no curve.")


def _plot_training(folders: Sequence[RunFolder], out: Path) -> None:
    labels = [label_of(folder) for folder in folders]
    if len(set(labels)) < len(labels):
        labels = [f"{label} ({f.path.name})" for label, f in zip(labels, folders, strict=True)]
    plot_curves([(x, f.metrics()) for x, f in zip(labels, folders, strict=True)], out)
