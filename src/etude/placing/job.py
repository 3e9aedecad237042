"""What a job is, and what is asked of the places where jobs run: the cores of this machine
(`local.py`), or anything else with the methods of `Places`."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Protocol, runtime_checkable

LOG = "log.txt"
"""What a job printed, in its folder."""


@dataclasses.dataclass(frozen=True)
class Job:
    """An `etude` command in a folder of its own, and how to tell from outside how far it is."""

    name: str
    """What it is called when something is told of it; no two have the same."""
    command: tuple[str, ...]
    """What follows `etude`."""
    folder: Path
    is_done: Callable[[], bool]
    """Whether it has done all its work, whatever its exit code was."""
    share: Callable[[], float]
    """How much of it is done, from 0 to 1."""
    like: str = ""
    """Jobs of the same kind are taken to last equally long until more is known."""


@runtime_checkable
class Placed(Protocol):
    """A job under way."""

    def exit_code(self) -> int | None:
        """None while it runs; negative if a signal ended it."""
        ...

    def last_words(self) -> str:
        """The last line that it printed."""
        ...

    def ask_to_stop(self) -> None:
        """Asks it to save what it has and end."""
        ...

    def end(self, seconds: float) -> None:
        """Waits for its end, and brings it about when the seconds are over."""
        ...


@runtime_checkable
class Places(Protocol):
    """Where jobs run."""

    @property
    def number(self) -> int:
        """How many run at once."""
        ...

    def start(self, job: Job, place: int) -> Placed:
        """Starts a job at the place of that number, which is free. What it prints goes to `LOG`."""
        ...
