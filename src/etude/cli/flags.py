"""Flags from settings: one for each field of a dataclass, with its docstring as help.

A flag that is not given is None whatever the default of its setting, so that parsing itself tells
which flags were given.
"""

import dataclasses
import functools
import inspect
import types
import typing
from collections.abc import Callable
from typing import Annotated, Any

import tyro

from etude.cli.source import class_in, fields_in


class Flags:
    """The flags of a group as they were parsed."""

    @property
    def given(self) -> dict[str, Any]:
        """The values of those flags that were given, by the name of the setting."""
        return {name: value for name, value in vars(self).items() if value is not None}


def flags_of(settings: Any, default_of: Callable[[str], str] | None = None) -> Any:
    """What tells tyro, in an annotation of `Flags`, that the flags are those of `settings`, an
    instance of a dataclass. Its values are the defaults; `default_of` has words for gaps."""
    return tyro.conf.arg(constructor_factory=functools.partial(_flags_type, settings, default_of))


def _flags_type(settings: Any, default_of: Callable[[str], str] | None) -> type[Flags]:
    kind = type(settings)
    hints = typing.get_type_hints(kind)
    docs = {x.name: x.about for x in fields_in(class_in(kind.__module__, kind.__name__))}
    fields = []
    for field in dataclasses.fields(settings):
        shown = _shown(getattr(settings, field.name), field.name, default_of)
        argument = tyro.conf.arg(
            name=field.name.rstrip("_"), help=docs[field.name], help_behavior_hint=shown
        )
        annotation: Any = Annotated[_or_none(hints[field.name]), argument]
        fields.append((field.name, annotation, dataclasses.field(default=None)))
    about = {"__doc__": inspect.getdoc(kind)}
    return dataclasses.make_dataclass(kind.__name__, fields, bases=(Flags,), namespace=about)


def _or_none(hint: Any) -> Any:
    return hint if isinstance(hint, types.UnionType) else hint | None


def _shown(value: Any, name: str, default_of: Callable[[str], str] | None) -> str:
    if value is not None:
        return f"(default: {as_words(value)})"
    words = default_of(name) if default_of else ""
    return f"(default: {words})" if words else ""


def as_words(value: Any) -> str:
    """A setting's value for a reader."""
    if isinstance(value, tuple):
        return " ".join(map(str, value)) or "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value) or "none"
