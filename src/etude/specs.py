"""`name:key=value,key=value`: how environments and rules are named with their settings."""

import dataclasses
import types
import typing
from typing import Any

from etude.errors import UserError


def split(spec: str) -> tuple[str, dict[str, str]]:
    """The name and the settings as text. The name itself may hold colons."""
    name, colon, tail = spec.rpartition(":")
    if not colon or "=" not in tail:
        return spec, {}
    settings = {}
    for part in tail.split(","):
        key, equals, value = (x.strip() for x in part.partition("="))
        if not (key and equals and value):
            raise UserError(f"In {spec!r}, {part!r} should have the form name=value.")
        settings[key] = value
    return name, settings


def split_list(text: str) -> list[str]:
    """The specs in a list with commas. A piece like `columns=5` goes on with the spec before it."""
    found: list[str] = []
    for piece in filter(None, (x.strip() for x in text.split(","))):
        if found and "=" in piece and ":" not in piece:
            found[-1] += f",{piece}"
        else:
            found.append(piece)
    return found


def join(name: str, settings: dict[str, str]) -> str:
    """What `split` takes apart."""
    return f"{name}:{','.join(f'{k}={v}' for k, v in settings.items())}" if settings else name


def parse_value(text: str) -> Any:
    """The number, truth value or tuple of numbers (`16x2`) the text looks like, or the text."""
    for convert in (int, float, lambda t: tuple(int(x) for x in t.split("x"))):
        try:
            return convert(text)
        except ValueError:
            pass
    return {"true": True, "false": False}.get(text.lower(), text)


def as_text(value: Any) -> str:
    """What `parse_value` reads."""
    return "x".join(map(str, value)) if isinstance(value, tuple) else str(value)


def replace_fields(config: Any, settings: dict[str, str], owner: str) -> Any:
    """`config` (a dataclass) with fields set from text, or a sentence about what does not fit."""
    hints = typing.get_type_hints(type(config))
    changes = {}
    for key, text in settings.items():
        if key not in hints:
            names = ", ".join(f.name for f in dataclasses.fields(config)) or "none"
            raise UserError(f"{owner} has no setting {key!r}; its settings are: {names}.")
        changes[key] = as_type(text, hints[key], f"{key} of {owner}")
    return dataclasses.replace(config, **changes)


def as_type(text: str, hint: Any, what: str) -> Any:
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
        if isinstance(origin, type) and type(value) is origin:
            return value
        if kind is Any or not isinstance(origin, type):  # not said, or arrays: anything will do
            return value
    expected = " or ".join(getattr(k, "__name__", str(k)) for k in kinds)
    raise UserError(f"The setting {what} must be of type {expected}, not {text!r}.")
