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
    return {x.name: x for x in _body_of(module) if isinstance(x, ast.ClassDef)}


def _body_of(module: str) -> list[ast.stmt]:
    spec = importlib.util.find_spec(module)
    assert spec is not None and spec.origin is not None
    return ast.parse(Path(spec.origin).read_text(encoding="utf-8")).body


def lineage(module: str, name: str) -> list[ast.ClassDef]:
    """A class and all that it inherits from, the oldest first, as far as these are Etude's."""
    body = _body_of(module)
    homes = {
        alias.name: home
        for x in body
        if isinstance(x, ast.ImportFrom) and (home := x.module or "").startswith("etude.")
        for alias in x.names
    }
    own = {x.name: x for x in body if isinstance(x, ast.ClassDef)}[name]
    homes |= {x.name: module for x in body if isinstance(x, ast.ClassDef)}
    bases = [base.id for base in own.bases if isinstance(base, ast.Name) and base.id in homes]
    return [x for base in bases for x in lineage(homes[base], base)] + [own]


def first_line(of: ast.ClassDef) -> str:
    """Of its docstring."""
    return (ast.get_docstring(of) or "").split("\n")[0]


def fields_in(*classes: ast.ClassDef) -> list[Field]:
    """The fields that have a docstring; of those with the same name, the last."""
    found = {}
    for pair in itertools.chain.from_iterable(itertools.pairwise(x.body) for x in classes):
        match pair:
            case (
                ast.AnnAssign(target=ast.Name(id=name), value=default),
                ast.Expr(value=ast.Constant(value=str(text))),
            ):
                written = "" if default is None else ast.unparse(default)
                found[name] = Field(name, written, " ".join(text.split()))
    return [*found.values()]
