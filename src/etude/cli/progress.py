"""What a run shows while it goes: a live line in a terminal, plain lines elsewhere."""

import math
import time
from collections.abc import Callable

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from etude.runs.folder import Record
from etude.text import duration, printable, speed

PLAIN_SECONDS = 5.0


class ProgressReport:
    """How far a run is, what it says of itself, and time left, from its records as they come."""

    def __init__(
        self,
        console: Console,
        title: str,
        total: int,
        describe: Callable[[Record], str],
        seeds: int = 1,
        max_seconds: float = math.inf,
    ):
        """`total` is the run's number of updates; `describe` puts a record into words; a record's
        steps are those of each of the `seeds`."""
        self._console, self._total, self._describe, self._seeds = console, total, describe, seeds
        self._max_seconds = max_seconds
        self._first: Record | None = None
        self._shown_at = 0.0
        self._live = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[line]}"),
            console=console,
            transient=True,
        )
        self._bar = self._live.add_task(title, total=total, line="compiling…")

    def __enter__(self) -> "ProgressReport":
        if self._console.is_terminal:
            self._live.start()
        else:
            self._console.print("Compiling…")
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Leaves the terminal as it was."""
        self._live.stop()

    def __call__(self, record: Record) -> None:
        line = f"{self._describe(record)}{self._pace(record)}"
        self._first = self._first or record
        if self._console.is_terminal:
            self._live.update(self._bar, completed=record["updates"], line=line)
        elif time.monotonic() - self._shown_at > PLAIN_SECONDS or record["updates"] >= self._total:
            self._console.print(printable(line), highlight=False, markup=False, soft_wrap=True)
            self._shown_at = time.monotonic()

    def _pace(self, record: Record) -> str:
        """Speed and time left, measured from the first record on."""
        if self._first is None or record["seconds"] <= self._first["seconds"]:
            return ""
        took = record["seconds"] - self._first["seconds"]
        left = took / (record["updates"] - self._first["updates"])
        left *= max(0, self._total - record["updates"])
        left = min(left, max(0.0, self._max_seconds - record["seconds"]))
        steps = self._seeds * (record["steps"] - self._first["steps"])
        return f" · {speed(steps / took, self._seeds)} · {duration(left)} left"
