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


def classes_in(module: str) -> dict[str, ast.ClassDef]:
    spec = importlib.util.find_spec(module)
    assert spec is not None and spec.origin is not None
    body = ast.parse(Path(spec.origin).read_text(encoding="utf-8")).body
    return {x.name: x for x in body if isinstance(x, ast.ClassDef)}


def first_line(of: ast.ClassDef) -> str:
    """Of its docstring."""
    return (ast.get_docstring(of) or "").split("\n")[0]


def fields_in(*classes: ast.ClassDef) -> list[Field]:
    """The fields that have a docstring."""
    found = []
    for pair in itertools.chain.from_iterable(itertools.pairwise(x.body) for x in classes):
        match pair:
            case (
                ast.AnnAssign(target=ast.Name(id=name), value=default),
                ast.Expr(value=ast.Constant(value=str(text))),
            ):
                written = "" if default is None else ast.unparse(default)
                found.append(Field(name, written, " ".join(text.split())))
    return found
