"""Runs in a terminal: they are set up, watched until they end, and what came out is printed."""

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from typing import NoReturn, TypeVar

from etude import envs, kinds, rules
from etude.adaptation import run as adaptation
from etude.adaptation.config import AdaptConfig
from etude.api import reopen
from etude.cli.options import RunOptions
from etude.cli.progress import ProgressReport
from etude.cli.terminal import (
    out,
    print_adaptation,
    print_discovery,
    print_scores,
    print_training,
    say,
)
from etude.errors import UserError
from etude.meta.discovery.config import DiscoverConfig
from etude.meta.discovery.run import start_maker
from etude.runs.folder import Record, RunFolder
from etude.runs.lifecycle import execute, start
from etude.settings import Settings
from etude.training.config import TrainPlan

Made = TypeVar("Made")
PRINT = {"train": print_training, "discover": print_discovery, "adapt": print_adaptation}
"""How the summary of a run is printed, by the command that it belongs to."""


def run(kind: str, config: object, options: RunOptions, end: int | None) -> None:
    """A new run, or the one in a folder that goes on to `end`."""
    if options.resume is None:
        run = kinds.class_called(kind).create(config)
        folder = start(run, options.out)
    else:
        run, folder = reopen(options.resume, end)
    say(f"Run folder: {folder.path}")
    for note in run.notes(resumed=options.resume is not None):
        say(note)
    progress = ProgressReport(out, run.doing, run.updates, run.describe)
    stop = threading.Event()
    with progress, _on_interrupt(lambda: _ask(stop)), _events(folder, options) as write:
        result = execute(
            run,
            folder,
            report=progress,
            log=write,
            should_stop=stop.is_set,
            checkpoint_seconds=options.checkpoint_seconds,
        )
    command = kinds.KINDS[run.kind].command
    if result.done < run.updates:
        how = "Stopped and saved." if result.done else "Stopped before the first update."
        say(f"{how} Go on with: etude {command} --resume {folder.path}")
        sys.exit(130)
    PRINT[command](result.summary, folder)


def try_out(config: object) -> None:
    """Makes what a new run needs, so that a dry run finds the same mistakes; a rule's published
    weights are not fetched."""
    if isinstance(config, TrainPlan):
        rules.maker(config.rule, envs.make(config.env).observation)
    elif isinstance(config, DiscoverConfig):
        names = config.env_names + config.held_out_names
        start_maker(config, [envs.make_jax(name) for name in names])
    elif isinstance(config, AdaptConfig):
        adaptation.AdaptRun.untraced(config)


def test_adaptation(folder: RunFolder, given: Settings) -> None:
    """How the policies of a run do on fresh tasks."""
    work = adaptation.read_folder(folder)
    for name in ("algo", "tasks"):
        own = getattr(work.config, name)
        if given.get(name, own) != own:
            raise UserError(f"{folder.path} is a run of --{name} {own}, not {given[name]}.")
    asked = AdaptConfig(**given)
    seed = asked.seed or 2**32 - 1  # the run itself was judged by number 0
    policies = adaptation.kept_policies(work, folder)
    print_scores(adaptation.judged(work, policies, asked.test_tasks, seed))


def interruptible(work: Callable[[], Made], folder: RunFolder) -> Made:
    """The result of work that may be one program of minutes. It runs beside the main thread, which
    alone hears of Ctrl-C, and is then left where it is: it has nothing yet to be kept."""
    from etude.experiments.trainings import stop_all

    def quit() -> NoReturn:
        say("\nStopped. Trainings are kept, and go on when this is run again; nothing else is.")
        stop_all()
        with suppress(OSError):
            folder.path.rmdir()
        os._exit(130)

    with _on_interrupt(quit), ThreadPoolExecutor(1) as pool:
        future = pool.submit(work)
        while wait([future], timeout=0.2).not_done:
            pass
        return future.result()


@contextmanager
def _on_interrupt(react: Callable[[], None]) -> Iterator[None]:
    before = signal.signal(signal.SIGINT, lambda *_: react())
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _ask(stop: threading.Event) -> None:
    """The first Ctrl-C asks the run to save and stop; the second stops it where it is."""
    if stop.is_set():
        raise KeyboardInterrupt
    stop.set()
    say("\nFinishing this piece of work, then saving. Ctrl-C again to stop at once.")


@contextmanager
def _events(folder: RunFolder, options: RunOptions) -> Iterator[Callable[[Record], None]]:
    """Writes records for TensorBoard, if that is asked for. The first one opens the file: by then
    the run holds the folder's lock."""
    with ExitStack() as stack:

        @cache
        def writer():
            from tensorboardX import SummaryWriter

            return stack.enter_context(SummaryWriter(str(folder.path / "tensorboard")))

        def write(record: Record) -> None:
            for name, value in _flat(record):
                writer().add_scalar(name, value, record["steps"])

        yield write if options.tensorboard else lambda record: None


def _flat(record: Record, before: str = "") -> Iterator[tuple[str, float]]:
    """All numbers of a record by name; those within others have both names."""
    for name, value in record.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{before}{name}/")
        elif isinstance(value, (int, float)):
            yield f"{before}{name}", value
