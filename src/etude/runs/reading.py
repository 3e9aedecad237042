"""The one reader of what lies in a folder or comes from others: files of a limited size, JSON of a
limited depth and number of values, checked against a type. What does not fit is a sentence.

Whatever a file holds, reading it imports nothing, calls nothing that it names, and takes memory in
proportion to a size that is checked before.
"""

import functools
import json
import os
import stat
import sys
import types
import typing
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, NamedTuple, NoReturn

from etude.errors import UserError, disk_errors, reason

JSON = dict[str, Any]
MOST_INTEGER = 2**63 - 1
"""Whole numbers beyond it are not those of a run: no counter gets so far."""


class Limits(NamedTuple):
    """What a file of one kind may hold."""

    bytes: int
    values: int
    """All together, those within others among them."""
    containers: int = 10_000
    """Lists and objects, each of which takes more memory than twice its text."""
    depth: int = 16
    text: int = 1 << 16
    """Characters of one text."""


CONFIG_LIMITS = Limits(1 << 20, 20_000)
SUMMARY_LIMITS = Limits(64 << 20, 4_000_000)
"""A reproduction keeps the numbers behind its figure there."""
LINE_LIMITS = Limits(16 << 20, 1_000_000)
HEADER_LIMITS = Limits(1 << 20, 20_000)
METRICS_BYTES = 1 << 30


def damaged(path: Path | str, why: str) -> UserError:
    return UserError(f"{path} is damaged: {why}.")


def is_file(path: Path) -> bool:
    """Whether there is such a file; a sentence if the system will not say."""
    with disk_errors(f"{shortened(path)} cannot be read"):
        return path.is_file()


def shortened(path: Path | str) -> str:
    """A name for a sentence, which no name should make unreadable."""
    text = str(path)
    return text if len(text) <= 300 else f"{text[:120]}…{text[-120:]}"


def open_regular(path: Path, most: int) -> tuple[typing.BinaryIO, int]:
    """A plain file, open for reading, and its size: no device, pipe or socket, which may never end,
    and nothing larger than `most` bytes."""
    what = f"{shortened(path)} cannot be read"
    with disk_errors(what):
        # Without O_NONBLOCK, opening a named pipe waits for someone to write to it.
        flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
        try:
            file = os.fdopen(os.open(path, flags), "rb")
        except FileNotFoundError:
            raise UserError(f"There is no file {shortened(path)}.") from None
    found = os.fstat(file.fileno())
    why = ""
    if not stat.S_ISREG(found.st_mode):
        why = "it is not a plain file"
    elif found.st_size > most:
        why = f"it has {found.st_size:,} bytes, where {most:,} is the most that is read"
    if why:
        file.close()
        raise UserError(f"{what}: {why}.")
    return file, found.st_size


def read_bytes(path: Path, most: int) -> bytes:
    """All of a plain file."""
    file, size = open_regular(path, most)
    with file, disk_errors(f"{shortened(path)} cannot be read"):
        return file.read(size)


def read_json(path: Path, limits: Limits = CONFIG_LIMITS, form: object = JSON) -> Any:
    """What a JSON file holds, if it is of the type `form`."""
    return parse_json(read_bytes(path, limits.bytes), str(path), limits, form)


def parse_json(
    data: bytes, source: str, limits: Limits, form: object = JSON, finite: bool = True
) -> Any:
    """What a JSON text holds, if it is of the type `form`; numbers must be finite unless one says
    otherwise."""
    containers = data.count(b"[") + data.count(b"{")
    # Every value but the first comes after one of these.
    number = 1 + containers + data.count(b",") + data.count(b":")
    if len(data) > limits.bytes or number > limits.values:
        raise damaged(source, f"it holds more than {limits.values:,} values")
    if containers > limits.containers:
        raise damaged(source, f"it holds more than {limits.containers:,} lists and objects")
    try:
        value = json.loads(
            data.decode(),
            parse_int=_integer,
            parse_float=_finite if finite else float,
            parse_constant=_no_number if finite else float,
        )
    except RecursionError:
        raise damaged(source, "it is nested too deep") from None
    except ValueError as error:
        raise damaged(source, reason(error).rstrip(".")) from None
    _require_flat(value, source, limits)
    if wrong := misfit(value, form):
        raise damaged(source, wrong)
    return fitted(value, form)


def _integer(text: str) -> int:
    with suppress(ValueError):  # of more digits than Python reads
        if abs(value := int(text)) <= MOST_INTEGER:
            return value
    raise ValueError(f"{text[:20]}… is too large a number")


def _finite(text: str) -> float:
    value = float(text)
    return value if abs(value) <= sys.float_info.max else _no_number(text[:20])


def _no_number(text: str) -> NoReturn:
    raise ValueError(f"{text} is not a finite number")


def _require_flat(value: object, source: str, limits: Limits) -> None:
    """Level by level, so that no depth is too much for it."""
    level, depth = [value], 0
    while level:
        if (depth := depth + 1) > limits.depth:
            raise damaged(source, "it is nested too deep")
        below: list[object] = []
        for part in level:
            if isinstance(part, dict):
                below += part.keys()
                below += part.values()
            elif isinstance(part, list):
                below += part
            elif isinstance(part, str):
                _require_text(part, source, limits)
        level = below


def _require_text(text: str, source: str, limits: Limits) -> None:
    if len(text) > limits.text:
        raise damaged(source, f"it holds a text of {len(text):,} characters")
    try:
        text.encode()
    except UnicodeEncodeError:  # half a character, which nothing could write or draw
        raise damaged(source, "it holds text that is not Unicode") from None


# --- Types ----------------------------------------------------------------------------------------


def misfit(value: object, form: object, at: str = "") -> str:
    """Where and how a value of JSON is not of a type, empty if it is. Types are int (0 or more),
    float, str, bool, None, Any, unions, `list[…]`, `dict[str, …]`, and TypedDicts of them, which
    may hold more than they name."""
    origin, inner = typing.get_origin(form), typing.get_args(form)
    if origin in (types.UnionType, typing.Union):
        found = [misfit(value, x, at) for x in inner]
        return "" if "" in found else found[0]
    if origin is Literal:
        return "" if value in inner else _wrong(at, f"one of {', '.join(map(str, inner))}", value)
    if typing.is_typeddict(form):
        return _misfit_of_fields(value, form, at)
    if origin is list:
        if not isinstance(value, list):
            return _wrong(at, "a list", value)
        found = (misfit(x, inner[0], f"{at}[{i}]") for i, x in enumerate(value))
        return next(filter(None, found), "")
    if origin is dict:
        if not isinstance(value, dict):
            return _wrong(at, "values by name", value)
        found = (misfit(x, inner[1], _below(at, name)) for name, x in value.items())
        return next(filter(None, found), "")
    return _misfit_of_plain(value, form, at)


_hints = functools.cache(typing.get_type_hints)
"""A log has thousands of lines of one form."""


def _misfit_of_fields(value: object, form: Any, at: str) -> str:
    if not isinstance(value, dict):
        return _wrong(at, "values by name", value)
    if missing := form.__required_keys__ - value.keys():
        return f"{at or 'it'} lacks {min(missing)}"
    hints = _hints(form)
    found = (misfit(value[name], x, _below(at, name)) for name, x in hints.items() if name in value)
    return next(filter(None, found), "")


def _misfit_of_plain(value: object, form: object, at: str) -> str:
    is_integer = isinstance(value, int) and not isinstance(value, bool)
    fits, what = {
        int: (is_integer and typing.cast(int, value) >= 0, "a whole number"),
        float: (is_integer or _is_finite(value), "a finite number"),
        str: (isinstance(value, str), "text"),
        bool: (isinstance(value, bool), "true or false"),
        types.NoneType: (value is None, "null"),
        Any: (True, ""),
    }[form]
    return "" if fits else _wrong(at, what, value)


def fitted(value: Any, form: Any) -> Any:
    """A value that is of a type, with a float wherever the type has one: JSON may say 1 for 1.0."""
    origin, inner = typing.get_origin(form), typing.get_args(form)
    if origin in (types.UnionType, typing.Union):
        return fitted(value, next(x for x in inner if not misfit(value, x)))
    if typing.is_typeddict(form):
        hints = _hints(form)
        return {name: fitted(x, hints.get(name, Any)) for name, x in value.items()}
    if origin is list:
        return [fitted(x, inner[0]) for x in value]
    if origin is dict:
        return {name: fitted(x, inner[1]) for name, x in value.items()}
    return float(value) if form is float else value


def _is_finite(value: object) -> bool:
    return isinstance(value, float) and abs(value) <= sys.float_info.max


def _below(at: str, name: str) -> str:
    return f"{at}.{name[:50]}" if at else name[:50]


def _wrong(at: str, expected: str, value: object) -> str:
    text = json.dumps(value)
    return f"{at or 'it'} should be {expected}, not {text if len(text) <= 60 else text[:60] + '…'}"
