"""What is asked of the machines that work for a run: Ray (`rays.py`), or anything else with the
methods of `Actors`."""

from collections.abc import Hashable, Sequence
from typing import Any, Protocol, runtime_checkable

Ref = Hashable
"""Stands for a value that there is, or will be, somewhere."""


class Lost(Exception):
    """A worker, or something that it should have returned, is no longer there."""


@runtime_checkable
class Actors(Protocol):
    """Workers in processes of their own, each of which does what it is asked in that order."""

    def hire(self) -> Hashable:
        """A new worker, which may start at any later time."""
        ...

    def room(self) -> int:
        """How many more could start at once, as far as one can tell."""
        ...

    def call(self, actor: Hashable, what: str, returns: int, *arguments: object) -> list[Ref]:
        """Asks a worker for something, without waiting. Arguments may be refs, whose values the
        worker gets."""
        ...

    def wait(self, refs: Sequence[Ref], seconds: float) -> list[Ref]:
        """Those that are ready, or whose worker is lost, when the first is or time is over."""
        ...

    def get(self, ref: Ref) -> Any:
        """The value; raises `Lost`."""
        ...

    def put(self, value: object) -> Ref:
        """Has a value at hand for workers."""
        ...

    def kill(self, actor: Hashable) -> None:
        """Ends a worker, if it is still there."""
        ...
