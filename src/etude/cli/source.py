"""What the source of a class says of it, read without importing the module."""

import ast
import importlib.util
import itertools
from pathlib import Path
from typing import NamedTuple


class Field(NamedTuple):
    """A setting in a dataclass, as it is written there."""

    name: str
    default: str
    about: str
    """Its docstring, the one below it."""


def class_in(module: str, name: str) -> ast.ClassDef:
    spec = importlib.util.find_spec(module)
    assert spec is not None and spec.origin is not None
    body = ast.parse(Path(spec.origin).read_text(encoding="utf-8")).body
    return next(x for x in body if isinstance(x, ast.ClassDef) and x.name == name)


def first_line(source: ast.ClassDef) -> str:
    return (ast.get_docstring(source) or "").split("\n")[0]


def fields_in(source: ast.ClassDef) -> list[Field]:
    """The fields that have a docstring."""
    found = []
    for pair in itertools.pairwise(source.body):
        match pair:
            case (
                ast.AnnAssign(target=ast.Name(id=name), value=default),
                ast.Expr(value=ast.Constant(value=str(text))),
            ):
                written = "" if default is None else ast.unparse(default)
                found.append(Field(name, written, " ".join(text.split())))
    return found
