"""Live logging by other people's tools: TensorBoard, and Weights & Biases."""

import os
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from etude.cli.options import LOGGERS, RunOptions
from etude.errors import UserError, reason
from etude.runs.arrays import write_atomically
from etude.runs.folder import Record, RunFolder
from etude.runs.inside import refuse_link
from etude.runs.reading import is_file, read_bytes
from etude.runs.run import Run

MOST_ID = 100
"""Bytes."""
Write = Callable[[Record], None]
Opened = Callable[[ExitStack, Run, RunFolder], Write]
"""Opens a logger, to be closed with the stack."""


@contextmanager
def loggers(run: Run, folder: RunFolder, options: RunOptions) -> Iterator[Write]:
    """Writes records wherever that is asked for. The first one opens the loggers: by then the run
    holds the folder's lock."""
    asked = [OPEN[name] for name in LOGGERS if getattr(options, name)]
    opened: list[Write] = []
    with ExitStack() as stack:

        def write(record: Record) -> None:
            if not opened:
                opened.extend(open_(stack, run, folder) for open_ in asked)
            for log in opened:
                log(record)

        yield write


def _tensorboard(stack: ExitStack, run: Run, folder: RunFolder) -> Write:
    from tensorboardX import SummaryWriter

    refuse_link(folder.path / "tensorboard")
    writer = stack.enter_context(SummaryWriter(str(folder.path / "tensorboard")))

    def write(record: Record) -> None:
        for name, value in flat(record):
            writer.add_scalar(name, value, record["steps"])

    return write


def _wandb(stack: ExitStack, run: Run, folder: RunFolder) -> Write:
    """A run of the folder's name in the project `etude`, or in that of WANDB_PROJECT. A run that
    goes on writes on into the same one."""
    import wandb  # pyright: ignore[reportMissingImports]  (not among what is locked)

    own = folder.path.resolve()
    refuse_link(own / "wandb")
    try:
        logged = wandb.init(
            project=os.environ.get("WANDB_PROJECT", "etude"),
            name=own.name,
            id=_wandb_id(own / "wandb-id"),
            resume="allow",
            dir=str(own),
            config=run.settings() | {"kind": run.kind},
            settings=wandb.Settings(silent=True, console="off"),
        )
    except Exception as error:  # no account, no network: whatever it is, it comes from there
        raise UserError(
            f"Weights & Biases cannot be reached: {reason(error)} "
            "WANDB_MODE=offline needs neither account nor network."
        ) from error
    stack.callback(logged.finish)
    return lambda record: logged.log(dict(flat(record)), step=record["steps"])


def _wandb_id(path: Path) -> str:
    """By which a run that goes on is known there."""
    refuse_link(path)  # what it leads to would be sent to them
    if not is_file(path):
        write_atomically(path, lambda file: file.write(uuid.uuid4().hex[:12].encode()))
    return read_bytes(path, MOST_ID).decode(errors="replace").strip()


OPEN: dict[str, Opened] = {"tensorboard": _tensorboard, "wandb": _wandb}


def flat(record: Record, before: str = "") -> Iterator[tuple[str, float]]:
    """All numbers of a record by name; those within others have both names."""
    for name, value in record.items():
        if isinstance(value, dict):
            yield from flat(value, f"{before}{name}/")
        elif isinstance(value, (int, float)):
            yield f"{before}{name}", value
