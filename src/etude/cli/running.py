"""What every run in a terminal has: its folder, progress, TensorBoard, and Ctrl-C."""

import os
import signal
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from typing import Any, NoReturn, TypeVar

from etude.cli.options import RunOptions
from etude.cli.progress import ProgressReport
from etude.cli.terminal import out, say
from etude.runs.folder import RunFolder
from etude.runs.run import Run

Result = TypeVar("Result")


@contextmanager
def watched(run: Run[Any, Any], folder: RunFolder, options: RunOptions) -> Iterator[dict[str, Any]]:
    """Progress, Ctrl-C and TensorBoard, as options of the loop."""
    progress = ProgressReport(out, run.doing, run.updates, run.describe)
    events = _tensorboard(folder, options.tensorboard)
    with progress, _stop_on_interrupt() as stop, events as write:
        yield dict(
            report=progress,
            log=write,
            should_stop=lambda: stop["asked"],
            checkpoint_seconds=options.checkpoint_seconds,
        )


def require_end(done: int, run: Run[Any, Any], folder: RunFolder, command: str) -> None:
    """Leaves, with a word on how to go on, if the run was stopped before its end."""
    if done < run.updates:
        how = "Stopped and saved." if done else "Stopped before the first update."
        say(f"{how} Go on with: etude {command} --resume {folder.path}")
        sys.exit(130)


@contextmanager
def _stop_on_interrupt() -> Iterator[dict[str, bool]]:
    """The first Ctrl-C asks the run to save and stop; the second stops it where it is."""
    asked = {"asked": False}

    def ask(*_: object) -> None:
        if asked["asked"]:
            raise KeyboardInterrupt
        asked["asked"] = True
        say("\nFinishing this piece of work, then saving. Ctrl-C again to stop at once.")

    before = signal.signal(signal.SIGINT, ask)
    try:
        yield asked
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def _tensorboard(folder: RunFolder, wanted: bool) -> Iterator[Any]:
    if not wanted:
        yield lambda record: None
        return
    from tensorboardX import SummaryWriter

    with SummaryWriter(str(folder.path / "tensorboard")) as writer:

        def write(record: dict[str, Any]) -> None:
            for name, value in _flat(record):
                writer.add_scalar(name, value, record["steps"])

        yield write


def _flat(record: dict[str, Any], before: str = "") -> Iterator[tuple[str, float]]:
    """All numbers of a record by name; those within others have both names."""
    for name, value in record.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{before}{name}/")
        elif isinstance(value, (int, float)):
            yield f"{before}{name}", value


def interruptible(work: Callable[[], Result], folder: RunFolder) -> Result:
    """The result of work that may be one program of minutes. It runs beside the main thread, which
    alone hears of Ctrl-C, and is then left where it is: it has nothing yet to be kept."""
    from etude.experiments.trainings import stop_all

    def quit(*_: object) -> NoReturn:
        say("\nStopped. Trainings are kept, and go on when this is run again; nothing else is.")
        stop_all()
        with suppress(OSError):
            folder.path.rmdir()
        os._exit(130)

    before = signal.signal(signal.SIGINT, quit)
    try:
        with ThreadPoolExecutor(1) as pool:
            future = pool.submit(work)
            while wait([future], timeout=0.2).not_done:
                pass
            return future.result()
    finally:
        signal.signal(signal.SIGINT, before)
