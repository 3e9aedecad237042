"""The host loop of every run: pieces of compiled work, with logs and checkpoints between."""

import abc
import dataclasses
import time
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import jax
import numpy as np
from jaxtyping import PyTree

from etude.errors import UserError, reason
from etude.runs.folder import RunFolder
from etude.runs.storage import named_leaves

State = TypeVar("State")
Record = dict[str, Any]
"""One line of the log."""


class Work(abc.ABC, Generic[State]):
    """What a run does, as the loop sees it: a state that is moved on by a number of updates."""

    @property
    @abc.abstractmethod
    def updates(self) -> int:
        """How many there are to do."""

    @property
    @abc.abstractmethod
    def log_every(self) -> int:
        """How many are done between two records."""

    def next_record(self, done: int) -> int:
        """After how many updates the next record is due, when `done` are done."""
        return done + self.log_every - done % self.log_every

    @abc.abstractmethod
    def shapes(self) -> State:
        """The form of the state. All of the state goes into checkpoints, and nothing else does."""

    @abc.abstractmethod
    def init(self) -> State:
        """The state at the start."""

    @abc.abstractmethod
    def advance(self, state: State, done: int, number: int) -> tuple[State, dict[str, Any]]:
        """The state after `number` more updates, and their metrics. It may use up the old state.

        Raises a `UserError` if the numbers went bad.
        """

    def joined(self, pieces: list[dict[str, Any]]) -> dict[str, Any]:
        """The metrics of several pieces of work as those of one; updates are the first axis."""
        return jax.tree.map(lambda *parts: np.concatenate(parts), *pieces)

    @abc.abstractmethod
    def record(self, state: State, metrics: dict[str, Any], done: int) -> Record:
        """The line to log after `done` updates."""

    @abc.abstractmethod
    def learned(self, state: State) -> PyTree:
        """The part of the state that must be finite to be worth keeping."""

    def before_saving(self, state: State, folder: RunFolder) -> None:
        """Writes whatever else belongs beside a checkpoint that is about to be written, so that no
        checkpoint is ever without it; by default nothing."""

    @abc.abstractmethod
    def trace(self) -> None:
        """Traces all programs, so that mistakes surface before anything is compiled or written."""

    def prepare(self) -> None:
        """Compiles what can be compiled before the clock starts."""


def require_traceable(work: Work, sentence: str) -> None:
    """An environment or a rule of the user's may raise anything; `sentence` says what it spoils."""
    try:
        work.trace()
    except UserError:
        raise
    except Exception as error:
        raise UserError(f"{sentence}: {reason(error)}") from error


@dataclasses.dataclass(frozen=True)
class Outcome(Generic[State]):
    """Where a run stands when the loop ends."""

    state: State
    done: int
    curve: list[Record]
    """All records, those of earlier parts of a resumed run among them."""

    @property
    def steps_per_second(self) -> float:
        """Environment steps (of the records' `steps`) a second, over all parts of the run."""
        last = self.curve[-1] if self.curve else {"steps": 0, "seconds": 0.0}
        return last["steps"] / last["seconds"] if last["seconds"] else 0.0


PIECE_SECONDS = 1.0
"""How long a piece of work should take, so that a run shows its progress and stops when asked."""


def run(
    work: Work[State],
    folder: RunFolder | None = None,
    *,
    report: Callable[[Record], None] = lambda record: None,
    log: Callable[[Record], None] = lambda record: None,
    should_stop: Callable[[], bool] = lambda: False,
    checkpoint_seconds: float = 30.0,
) -> Outcome[State]:
    """Runs from the folder's last checkpoint, if there is one, to the end or to `should_stop`.

    A record goes to the curve (and to `log`) every `log_every` updates, and before a checkpoint;
    `report` sees it grow after every piece of work. Without a folder there are no checkpoints, so
    that the curve does not depend on the machine's speed.
    """
    state, done, seconds = _start(work, folder)
    curve = folder.metrics() if folder else []
    if done < work.updates:
        work.prepare()

    def keep(record: Record) -> None:
        curve.append(record)
        log(record)
        if folder:
            folder.log(record)

    pieces, record, size = [], {}, 1
    saved, saved_at = done, time.monotonic()
    while done < work.updates and not should_stop():
        line = min(work.next_record(done), work.updates) - done
        number, started = min(size, line), time.monotonic()
        try:
            state, metrics = work.advance(state, done, number)
        except UserError as error:
            raise UserError(f"{error}{_what_is_kept(folder)}") from error
        took = time.monotonic() - started
        size = max(1, round(min(4.0, PIECE_SECONDS / max(took, 1e-6)) * number))
        seconds, done = seconds + took, done + number
        pieces.append(metrics)
        record = {"updates": done, "seconds": round(seconds, 3)}
        record |= work.record(state, work.joined(pieces), done)
        report(record)
        due = folder is not None and time.monotonic() - saved_at >= checkpoint_seconds
        if number == line or (due and checkpoint_seconds > 0):
            keep(record)
            pieces = []
            if due:
                _save(work, folder, state, done, seconds)
                saved, saved_at = done, time.monotonic()
    if pieces:
        keep(record)
    if saved < done:
        _save(work, folder, state, done, seconds)
    return Outcome(state, done, curve)


def _start(work: Work[State], folder: RunFolder | None) -> tuple[State, int, float]:
    restored = folder.restore(work.shapes()) if folder else None
    if restored is None:
        return work.init(), 0, 0.0
    state, progress = restored
    try:
        return state, int(progress["updates"]), float(progress["seconds"])
    except (KeyError, TypeError, ValueError):
        raise UserError("The checkpoint in this folder has a damaged header.") from None


def _save(
    work: Work[State], folder: RunFolder | None, state: State, done: int, seconds: float
) -> None:
    """Keeps the state if there is a folder; bad numbers are an error with or without one."""
    if bad := first_bad_leaf(work.learned(state)):
        raise UserError(
            f"After update {done}, {bad} holds numbers that are not finite, so that nothing was "
            f"saved.{_what_is_kept(folder)}"
        )
    if folder:
        work.before_saving(state, folder)
        folder.save(state, {"updates": done, "seconds": seconds})


def first_bad_leaf(tree: PyTree) -> str | None:
    """The name of a leaf with NaN or infinite entries, if there is one."""
    for name, x in named_leaves(jax.device_get(tree)).items():
        if np.issubdtype(x.dtype, np.floating) and not np.isfinite(x).all():
            return name
    return None


def _what_is_kept(folder: RunFolder | None) -> str:
    if folder is None or not folder.has_checkpoint:
        return ""
    return f" The last good checkpoint is in {folder.path}."
