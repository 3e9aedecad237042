"""Flags from settings: one for each field of a dataclass, with its docstring as help.

A flag that is not given is None whatever the default of its setting, so that parsing itself tells
which flags were given.
"""

import dataclasses
import functools
import inspect
import typing
from collections.abc import Callable
from typing import Annotated

import tyro

from etude.cli.numbers import readable
from etude.cli.source import classes_in, fields_in
from etude.settings import Settings
from etude.text import as_words


class Flags:
    """The flags of a group as they were parsed."""

    @property
    def given(self) -> Settings:
        """The values of those flags that were given, by the name of the setting."""
        return {name: value for name, value in vars(self).items() if value is not None}


def no_default(words: str = "") -> object:
    """Of a flag whose default is no value: words for what happens then."""
    return tyro.conf.arg(help_behavior_hint=f"(default: {words})" if words else "")


def flags_of(settings: object, default_of: Callable[[str], str] = lambda name: "") -> object:
    """What tells tyro, in an annotation of `Flags`, that the flags are those of `settings`, an
    instance of a dataclass. Its values are the defaults; `default_of` has words for gaps."""
    return tyro.conf.arg(constructor_factory=functools.partial(_flags_type, settings, default_of))


def _flags_type(settings: object, default_of: Callable[[str], str]) -> type[Flags]:
    kind = type(settings)
    docs = {x.name: x.about for x in fields_in(*classes_in(kind.__module__).values())}
    fields = []
    for name, hint in typing.get_type_hints(kind).items():
        value = getattr(settings, name)
        words = default_of(name) if value is None else as_words(value)
        shown = f"(default: {words})" if words else ""
        argument = tyro.conf.arg(name=name.rstrip("_"), help=docs[name], help_behavior_hint=shown)
        flag = Annotated[readable(hint | None), argument]
        fields.append((name, flag, dataclasses.field(default=None)))
    about = {"__doc__": inspect.getdoc(kind)}
    return dataclasses.make_dataclass(kind.__name__, fields, bases=(Flags,), namespace=about)
