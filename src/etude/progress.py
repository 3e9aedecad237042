"""What a run shows while it goes: a live line in a terminal, plain lines elsewhere."""

import time
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

PLAIN_SECONDS = 5.0


class ProgressReport:
    """Steps, return, speed and time left, from the records of a run as they come."""

    def __init__(self, console: Console, total_steps: int, seeds: int):
        self._console, self._total, self._seeds = console, total_steps, seeds
        self._first: dict[str, Any] | None = None
        self._shown_at = 0.0
        self._live = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[line]}"),
            console=console,
            transient=True,
        )
        self._bar = self._live.add_task("Training", total=total_steps, line="compiling…")

    def __enter__(self) -> "ProgressReport":
        if self._console.is_terminal:
            self._live.start()
        else:
            self._console.print("Compiling…")
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def __call__(self, record: dict[str, Any]) -> None:
        line = self._line(record)
        self._first = self._first or record
        if self._console.is_terminal:
            self._live.update(self._bar, completed=record["steps"], line=line)
        elif time.monotonic() - self._shown_at > PLAIN_SECONDS or record["steps"] >= self._total:
            self._console.print(line, highlight=False, soft_wrap=True)
            self._shown_at = time.monotonic()

    def _line(self, record: dict[str, Any]) -> str:
        parts = [f"{record['steps']:,} of {self._total:,} steps", f"return {record['return']:.3g}"]
        # The first record's time holds the compilation, so speed is measured from there.
        if self._first is not None and record["seconds"] > self._first["seconds"]:
            steps = record["steps"] - self._first["steps"]
            speed = steps / (record["seconds"] - self._first["seconds"])
            left = max(0, self._total - record["steps"]) / speed
            parts += [f"{speed * self._seeds:,.0f} steps/s", f"{duration(left)} left"]
        return " · ".join(parts)


def duration(seconds: float) -> str:
    """`42 s`, `3 min 10 s`, `2 h 5 min`."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
