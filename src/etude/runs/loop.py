"""The host loop of every run: pieces of compiled work, with logs and checkpoints between."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypedDict

import numpy as np

from etude import stopping
from etude.errors import UserError
from etude.runs.failing import explained
from etude.runs.folder import RunFolder
from etude.runs.run import Found, Outcome, Record, Run, State
from etude.runs.storage import to_arrays

PIECE_SECONDS = 1.0
"""How long a piece of work should take, so that a run shows its progress and stops when asked."""


class LoopOptions(TypedDict, total=False):
    """Those of `advance_to_end`."""

    report: Callable[[Record], None]
    on_record: Callable[[Record], None]
    on_checkpoint: Callable[[Path], None]
    should_stop: Callable[[], bool]
    checkpoint_seconds: float
    begin: Callable[[int], None]


def advance_to_end(
    run: Run[State, Found],
    folder: RunFolder | None = None,
    *,
    report: Callable[[Record], None] = lambda record: None,
    on_record: Callable[[Record], None] = lambda record: None,
    on_checkpoint: Callable[[Path], None] = lambda path: None,
    should_stop: Callable[[], bool] = lambda: False,
    checkpoint_seconds: float = 30.0,
    begin: Callable[[int], None] = lambda done: None,
) -> Outcome[State]:
    """Runs from the folder's last checkpoint, if there is one, to the end or to `should_stop`.

    A record goes to the curve (and to `on_record`) every `log_every` updates, and before a
    checkpoint; `report` sees it grow after every piece of work, and `on_checkpoint` is given the
    folder after every checkpoint; `begin` is told how many updates are done before the first.
    Without a folder there are no checkpoints, so that the curve does not depend on the machine's
    speed. If `on_record` raises, the state is saved first.
    """
    restored = folder.restore(run.shapes(), run.rule_digest) if folder else None
    with explained(run):
        state, done, seconds = restored or (run.init(), 0, 0.0)
    curve = folder.metrics() if folder else []
    begin(done)
    if not run.is_over(state, done, seconds):
        with explained(run):
            run.prepare()

    def keep(record: Record) -> None:
        curve.append(record)
        if folder:
            folder.log(record)
        with _if_raised(lambda: _save(run, folder, state, done, seconds)):
            on_record(record)

    def save() -> None:
        _save(run, folder, state, done, seconds)
        if folder:
            on_checkpoint(folder.path)

    with stopping.unsaved_work():
        pieces, record, size = [], {}, 1
        saved, saved_at = done, time.monotonic()
        while not run.is_over(state, done, seconds) and not should_stop():
            line = min(run.next_record(done), run.updates) - done
            number, started = min(size, line), time.monotonic()
            with explained(run, done, number, _what_is_kept(folder)):
                state, metrics = run.advance(state, done, number)
            took = time.monotonic() - started
            seconds, done = seconds + took, done + number
            wanted = min(PIECE_SECONDS, run.max_seconds - seconds)
            size = max(1, round(min(4.0, wanted / max(took, 1e-6)) * number))
            pieces.append(metrics)
            record = {"updates": done, "seconds": round(seconds, 3)}
            record |= run.record(state, run.joined(pieces), done)
            report(record)
            due = folder is not None and time.monotonic() - saved_at >= checkpoint_seconds
            if number == line or (due and checkpoint_seconds > 0):
                keep(record)
                pieces = []
                if due:
                    save()
                    saved, saved_at = done, time.monotonic()
        if pieces:
            keep(record)
        if saved < done:
            save()
    return Outcome(state, done, curve, run.is_over(state, done, seconds))


@contextmanager
def _if_raised(react: Callable[[], None]) -> Iterator[None]:
    try:
        yield
    except BaseException:
        react()
        raise


def _save(
    run: Run[State, Found], folder: RunFolder | None, state: State, done: int, seconds: float
) -> None:
    """Keeps the state if there is a folder; bad numbers are an error with or without one."""
    state = run.gathered(state)
    for name, x in to_arrays(run.learned(state)).items():
        if np.issubdtype(x.dtype, np.floating) and not np.isfinite(x).all():
            raise UserError(
                f"After update {done}, {name} holds numbers that are not finite, so that nothing "
                f"was saved.{_what_is_kept(folder)}"
            )
    if folder:
        run.before_saving(state, folder)
        folder.save(state, done, seconds, run.rule_digest)
        if run.draws_on_the_way and not run.is_over(state, done, seconds):
            run.draw(folder)


def _what_is_kept(folder: RunFolder | None) -> str:
    if folder is None or not folder.has_checkpoint:
        return ""
    return f" The last good checkpoint is in {folder.path}."
