"""Settings: read from text (`name:key=value,key=value`), given their declared types, and checked,
with one sentence for each that makes no sense."""

import dataclasses
import functools
import math
import numbers
import re
import types
import typing
from collections.abc import Callable, Iterable
from typing import Any, Literal, TypeVar

from etude.errors import UserError, did_you_mean

Config = TypeVar("Config")
Settings = dict[str, Any]
"""By name, as JSON has them and users write them: what type each has, only its config knows."""


def split_spec(spec: str) -> tuple[str, dict[str, str]]:
    """The name and the settings as text. The name itself may hold colons."""
    name, colon, tail = spec.rpartition(":")
    if not colon or "=" not in tail:
        return spec, {}
    settings = {}
    for part in tail.split(","):
        key, equals, value = (x.strip() for x in part.partition("="))
        if not (key and equals and value):
            raise malformed(spec, part)
        if key in settings:
            raise UserError(f"In {spec!r}, {key} is set twice.")
        settings[key] = value
    return name, settings


def malformed(spec: str, part: str) -> UserError:
    return UserError(f"In {spec!r}, {part!r} should have the form name=value.")


def unknown_setting(owner: str, key: str, known: Iterable[str]) -> UserError:
    names = list(known)
    every = f"its settings are: {', '.join(names) or 'none'}."
    return UserError(f"{owner} has no setting {key!r}; {did_you_mean(key, names, every)}")


def split_specs(text: str) -> list[str]:
    """The specs in a list with commas. A piece like `columns=5` goes on with the spec before it."""
    found: list[str] = []
    for piece in filter(None, (x.strip() for x in text.split(","))):
        if found and "=" in piece and ":" not in piece:
            found[-1] += f",{piece}"
        else:
            found.append(piece)
    return found


def join_spec(name: str, settings: dict[str, str]) -> str:
    """What `split_spec` takes apart."""
    return f"{name}:{','.join(f'{k}={v}' for k, v in settings.items())}" if settings else name


def flag(name: str) -> str:
    """The flag of a setting."""
    return f"--{name.rstrip('_').replace('_', '-')}"


def as_whole(text: str) -> int:
    """The whole number that a text stands for, also as 1e6; a ValueError if it is none."""
    if not (match := re.fullmatch(r"([+-]?[\d_]+)(?:[eE]\+?(\d{1,3}))?", text.strip())):
        raise ValueError(f"{text[:50]!r} is not a whole number")
    return int(match[1]) * 10 ** int(match[2] or 0)


def as_bytes(text: str) -> int:
    """How much memory a text stands for: 8GB, 512 MB, 1.5GiB."""
    match = re.fullmatch(r"(\d{1,9}(?:\.\d{1,9})?)\s*([kMGT]?)(i?)B", text.strip())
    number = float(match[1]) if match else 0.0
    if not match or not number:
        raise UserError(f"Memory is given as 8GB or 500MB, not {shown(text)}.")
    return int(number * (1024 if match[3] else 1000) ** " kMGT".index(match[2] or " "))


Value = int | float | bool | tuple[int, ...] | str


def parse_value(text: str) -> Value:
    """The number, truth value or tuple of numbers (`16x2`) the text looks like, or the text."""
    for convert in (int, float, lambda t: tuple(int(x) for x in t.split("x"))):
        try:
            return convert(text)
        except ValueError:
            pass
    return {"true": True, "false": False}.get(text.lower(), text)


def as_text(value: object) -> str:
    """What `parse_value` reads."""
    return "x".join(map(str, value)) if isinstance(value, tuple) else str(value)


def lists_to_tuples(fields: Settings) -> Settings:
    """Settings hold tuples, JSON has lists, and users write either."""
    return {k: tuple(v) if isinstance(v, list) else v for k, v in fields.items()}


def make_config(kind: type[Config], owner: str, **settings: object) -> Config:
    """A dataclass of settings given by name."""
    names = [field.name for field in dataclasses.fields(kind)]  # type: ignore[arg-type]
    if unknown := [key for key in settings if key not in names]:
        raise unknown_setting(owner, unknown[0], names)
    return kind(**lists_to_tuples(settings))


def replace_fields(config: Any, settings: dict[str, str], owner: str) -> Any:
    """A dataclass, of ours or of others, with fields set from text, or a sentence about what does
    not fit."""
    hints = typing.get_type_hints(type(config))
    changes = {}
    for key, text in settings.items():
        if key not in hints:
            raise unknown_setting(owner, key, (f.name for f in dataclasses.fields(config)))
        changes[key] = as_type(text, hints[key], f"{key} of {owner}")
    return dataclasses.replace(config, **changes)


def as_type(text: str, hint: object, what: str) -> Any:
    """The value a text stands for, if it is of the type of `hint`."""
    value = parse_value(text)
    kinds = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    for kind in kinds:
        if kind is str:
            return text
        origin = typing.get_origin(kind) or kind
        if origin is tuple and isinstance(value, int) and not isinstance(value, bool):
            return (value,)
        if origin is float and isinstance(value, int) and not isinstance(value, bool):
            return float(value)
        if origin is int and isinstance(value, float) and value.is_integer():  # 1e6
            return int(value)
        if isinstance(origin, type) and type(value) is origin:
            return value
        if kind is Any or not isinstance(origin, type):  # not said, or arrays: anything will do
            return value
    expected = " or ".join(getattr(k, "__name__", str(k)) for k in kinds)
    raise UserError(f"The setting {what} must be of type {expected}, not {text!r}.")


# --- Checks ---------------------------------------------------------------------------------------


def check_types(config: object) -> None:
    """Gives each setting of a frozen dataclass the type it is declared with: a list is as good as
    a tuple, a whole number as a float. What does not fit is a mistake."""
    for name, hint in typing.get_type_hints(type(config)).items():
        value = getattr(config, name)
        fitting, expected = _fit(value, hint)
        if expected:
            raise UserError(f"{name} must be {expected}, not {value!r}.")
        object.__setattr__(config, name, fitting)


def _fit(value: object, hint: object) -> tuple[object, str]:
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


def require(config: object, names: str, holds: Callable[..., object], what: str) -> None:
    """Each of the named settings that is given at all must hold."""
    for name in names.split():
        value = getattr(config, name)
        if value is not None and not holds(value):
            raise UserError(f"{name} must be {what}, not {shown(value)}.")


def shown(value: object) -> str:
    """For a sentence, which no value should make unreadable."""
    text = str(value)
    return text if len(text) <= 80 else f"{text[:60]}… ({len(text)} characters)"


MOST_STEPS, MOST_AT_ONCE = 10**15, 2**31 - 1
"""What comes one after another, of which no run has more in a lifetime, and what there is at once,
which arrays have an index for."""
IN_TIME = ("steps", "meta_steps", "warmup", "seed")
MOST_LAYERS = 256
MOST_FRAMES = 256


def is_count(x: int | tuple[int, ...]) -> bool:
    return all(n >= 1 for n in (x if isinstance(x, tuple) else (x,)))


def _are_layers(x: tuple[int, ...]) -> bool:
    return len(x) <= MOST_LAYERS and is_count(x)


def is_seed(x: int) -> bool:
    return 0 <= x < 2**32


SEED_RANGE = "from 0 to 4294967295"
TUNING_SEEDS = 1_000_000
"""Settings are chosen on seeds from here on, and shown on those below: `etude tune` refuses the
latter, comparisons refuse the former."""
_RANGES: dict[str, tuple[Callable[[Any], object], str]] = {
    "seed": (is_seed, SEED_RANGE),
    "share": (lambda x: 0 <= x <= 1, "from 0 to 1"),
    "part": (lambda x: 0 <= x < 1, "at least 0 and below 1"),
    "cost": (lambda x: 0 <= x < math.inf, "0 or more"),
    "positive": (lambda x: 0 < x < math.inf, "a positive number"),
    "whole": (lambda x: x >= 0, "0 or more"),
    "lag": (lambda x: x in (0, 1), "0 or 1"),
    "count": (is_count, "at least 1"),
    "frames": (lambda x: 1 <= x <= MOST_FRAMES, f"from 1 to {MOST_FRAMES}"),
    "widths": (lambda x: x and _are_layers(x), f"1 to {MOST_LAYERS} positive widths"),
    "channels": (lambda x: _are_layers(x), f"at most {MOST_LAYERS} positive numbers of channels"),
}


def check(config: Any, **names: str) -> None:
    """Checks the types of all settings and, by the name of a range, those that must lie in it:
    `check(self, share="discount td_lambda", cost="entropy_cost")`."""
    check_types(config)
    for name, fields in names.items():
        require(config, fields, *_RANGES[name])
    for name in vars(config):
        most = MOST_STEPS if name in IN_TIME else MOST_AT_ONCE
        require(config, name, functools.partial(_are_at_most, most), f"at most {most:,}")


def _are_at_most(most: int, x: object) -> bool:
    parts = x if isinstance(x, tuple) else (x,)
    return all(not isinstance(n, int) or n <= most for n in parts)


def is_odd_bins(x: int) -> bool:
    return x >= 3 and x % 2 == 1
