"""The kinds of run that there are, by the names that their folders give them. Their classes, which
need JAX, are imported when a run is opened."""

from typing import TYPE_CHECKING, NamedTuple

from etude import plugins
from etude.errors import UserError
from etude.runs.folder import RunFolder

if TYPE_CHECKING:
    from etude.runs.run import Run


class RunKind(NamedTuple):
    home: str
    """Where its class is, a subclass of `etude.runs.run.Run`."""
    command: str
    """The command that starts and resumes such runs."""


KINDS = {
    "train": RunKind("etude.training.run:TrainRun", "train"),
    "online": RunKind("etude.meta.online_run:OnlineRun", "train"),
    "discover": RunKind("etude.meta.discovery.run:DiscoveryRun", "discover"),
    "adapt": RunKind("etude.adaptation.run:AdaptRun", "adapt"),
}
COMPARE, TUNE = "compare", "tune"
HOLDERS = {COMPARE: "cells", TUNE: "trials"}
"""Kinds of folders that hold many runs, called like the commands that make them, and where in
them."""
ABOUT = {
    "train": "a training run",
    "discover": "a run of discovery",
    "adapt": "a run of `etude adapt`",
    COMPARE: "a comparison",
    TUNE: "a search of `etude tune`",
}
"""What each command makes."""


def kind_in(folder: RunFolder) -> str | None:
    """The kind of the run in a folder, None if it is of none that we know."""
    return folder.kind if folder.kind in KINDS else None


def open_folder(path: str, command: str | None = None) -> RunFolder:
    """The folder of a run of any kind, or of those that a command makes."""
    folder = RunFolder.open(path)
    kind = kind_in(folder)
    own = folder.kind if folder.kind in HOLDERS else kind and KINDS[kind].command
    if own is None:
        unknown = "a run of a kind that this version of Etude knows"
        raise UserError(f"{path} is not {ABOUT[command] if command else unknown}.")
    if own in HOLDERS and command is None:
        where = f"{path}/{HOLDERS[own]}"
        raise UserError(f"{path} is {ABOUT[own]}; the runs that it holds are in {where}.")
    if command not in (None, own):
        raise UserError(f"{path} is not {ABOUT[command]} but {ABOUT[own]}: use etude {own}.")
    return folder


def class_called(kind: str) -> "type[Run]":
    return plugins.import_class(KINDS[kind].home)


def class_of(folder: RunFolder) -> "type[Run]":
    """The class of the run in a folder that `open_folder` has opened."""
    kind = kind_in(folder)
    assert kind is not None
    return class_called(kind)
