"""The ranges in which `etude tune` searches for settings. They are declared next to the settings: a
table per rule (`Rule.ranges`), and one for training."""

import dataclasses
from typing import Any


@dataclasses.dataclass(frozen=True)
class Span:
    """All numbers from one to another; whole ones, if both ends are."""

    low: int | float
    high: int | float
    log: bool = False
    """Whether what matters is the ratio of two values, not their difference."""
    when: tuple[str, object] | None = None
    """Another setting of the same table and the value that it must have for this one to matter."""


@dataclasses.dataclass(frozen=True)
class Choice:
    """One of several values."""

    values: tuple[Any, ...]
    when: tuple[str, object] | None = None


Range = Span | Choice
Ranges = dict[str, Range]

DISCOUNT = Choice((0.9, 0.95, 0.98, 0.99, 0.995, 0.999))
TRACE = Choice((0.8, 0.9, 0.95, 0.98))
ENTROPY_COST = Span(1e-4, 0.2, log=True)
VALUE_COST = Choice((0.25, 0.5, 1.0))
EXPLORATION: Ranges = {
    "epsilon_end": Span(0.01, 0.2, log=True),
    "epsilon_updates": Span(100, 10_000, log=True),
}
