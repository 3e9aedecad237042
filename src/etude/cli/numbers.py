"""Numbers as people write them on a command line: `1e6` and `1_000_000`, `64,64` and `64x64`."""

import re
import types
import typing
from collections.abc import Callable
from typing import Annotated, Any

from tyro.constructors import PrimitiveConstructorSpec

from etude.settings import as_whole


def _wholes(words: list[str]) -> tuple[int, ...]:
    """`64 64`, `64,64` and `64x64` are the same."""
    return tuple(as_whole(x) for word in words for x in re.split("[,x]", word) if x)


def _spec(nargs: Any, metavar: str, read: Callable[[list[str]], Any]) -> object:
    return PrimitiveConstructorSpec(
        nargs=nargs,
        metavar=metavar,
        instance_from_str=read,
        is_instance=lambda value: isinstance(value, int | tuple),
        str_from_instance=lambda value: [str(x) for x in (value if nargs == "*" else [value])],
    )


Whole = Annotated[int, _spec(1, "INT", lambda words: as_whole(words[0]))]
Wholes = Annotated[tuple[int, ...], _spec("*", "[INT [INT ...]]", _wholes)]


def readable(hint: Any) -> Any:
    """A type as the command line reads it."""
    if isinstance(hint, types.UnionType):
        parts = [readable(x) for x in typing.get_args(hint)]
        return typing.Union[tuple(parts)]  # noqa: UP007
    return {int: Whole, tuple[int, ...]: Wholes}.get(hint, hint)
