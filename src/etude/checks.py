"""Checks of settings, with one sentence for each that makes no sense."""

from collections.abc import Callable
from typing import Any

from etude.errors import UserError


def require(config: Any, names: str, holds: Callable[[Any], bool], what: str) -> None:
    """Each of the named settings that is given at all must hold."""
    for name in names.split():
        value = getattr(config, name)
        if value is not None and not holds(value):
            raise UserError(f"{name} must be {what}, not {value}.")


def share(x: float | int) -> bool:
    return 0.0 <= x <= 1.0


def cost(x: float | int) -> bool:
    return 0.0 <= x < float("inf")


def positive(x: float | int) -> bool:
    return 0.0 < x < float("inf")


def counts(x: int | tuple[int, ...]) -> bool:
    return all(n >= 1 for n in (x if isinstance(x, tuple) else (x,)))


SEED = "from 0 to 4294967295"


def seed(x: int) -> bool:
    return 0 <= x < 2**32


def odd_bins(x: int) -> bool:
    return x >= 3 and x % 2 == 1
