"""Checks of settings, with one sentence for each that makes no sense."""

import dataclasses
import numbers
import types
import typing
from collections.abc import Callable
from typing import Any, Literal

from etude.errors import UserError


def typed(config: Any) -> None:
    """Gives each setting of a frozen dataclass the type it is declared with: a list is as good as
    a tuple, a whole number as a float. What does not fit is a mistake."""
    hints = typing.get_type_hints(type(config))
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        fitting, expected = _fit(value, hints[field.name])
        if expected:
            raise UserError(f"{field.name} must be {expected}, not {value!r}.")
        object.__setattr__(config, field.name, fitting)


def _fit(value: Any, hint: Any) -> tuple[Any, str]:
    """The value as the type, and an empty text; or what it should have been."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):
        fits = [_fit(value, kind) for kind in arguments]
        return next((x for x in fits if not x[1]), fits[0])
    if origin is Literal:
        return value, "" if value in arguments else f"one of {', '.join(map(str, arguments))}"
    if origin is tuple:
        parts = [_fit(x, arguments[0]) for x in value] if isinstance(value, (tuple, list)) else None
        wrong = parts is None or any(x[1] for x in parts)
        return tuple(x[0] for x in parts or ()), "several whole numbers" if wrong else ""
    if hint is type(None):
        return value, "" if value is None else "left out"
    is_bool = isinstance(value, bool)
    if hint is int and isinstance(value, numbers.Integral) and not is_bool:
        return int(value), ""
    if hint is float and isinstance(value, numbers.Real) and not is_bool:
        return float(value), ""
    names = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}
    fits = hint is Any or (isinstance(hint, type) and isinstance(value, hint) and hint is not int)
    return value, "" if fits else names.get(hint, str(hint))


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
