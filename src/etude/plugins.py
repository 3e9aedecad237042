"""Code of the user's own, named `module:Class`: environments and rules. Nothing else imports code
that a user, or a file, names.

What the user names is imported. What a file names (a run folder, a rule file, a file of settings)
is not, unless the user says that the file is to be trusted.
"""

import importlib
import importlib.machinery
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import ModuleType
from typing import Any

from etude.errors import UserError, foreign_code
from etude.settings import split_spec, split_specs

OURS = "etude."
"""What Etude's own modules begin with."""


def is_named(name: str) -> bool:
    """Whether a name is that of a class in a module."""
    module, _, attribute = name.partition(":")
    return all(x.isidentifier() for x in (*module.split("."), attribute))


def import_module(module_name: str) -> ModuleType:
    """A module of the user's, or of ours."""
    if not module_name.startswith(OURS):
        # An installed script does not look where the user stands. Where nobody names a module of
        # theirs it should not: in a folder from others, any file may have any module's name.
        _look_first_in(os.getcwd())
    with foreign_code(f"Module {module_name!r} cannot be imported"):
        try:
            return importlib.import_module(module_name)
        except ModuleNotFoundError as error:
            raise UserError(
                f"Cannot import {module_name!r}: there is no module {error.name!r}."
            ) from None


def import_class(name: str) -> Any:
    """The class that `module:Class` names. It is for the caller to see what kind of class it is
    before anything is called."""
    module_name, _, attribute = name.partition(":")
    module = import_module(module_name)
    if not hasattr(module, attribute):
        raise UserError(f"Module {module_name!r} has no class {attribute!r}.")
    found = getattr(module, attribute)
    if not isinstance(found, type):
        raise UserError(f"{name!r} is not a class.")
    return found


def _look_first_in(folder: str) -> None:
    if sys.path[:1] != [folder]:
        sys.path.insert(0, folder)


# --- Trust ----------------------------------------------------------------------------------------


class UntrustedError(UserError):
    """A file names code that the user has not said to trust."""

    def __init__(self, what: str):
        super().__init__(f"{what} If you trust it, say so: trust=True.")
        self.what = what
        """Without how to say so, which is another on the command line."""


_TRUSTS: ContextVar[bool] = ContextVar("trusts", default=False)
_NAMED: set[str] = set()
"""Modules that the user has named on this command line."""


@contextmanager
def trusting(trust: bool) -> Iterator[None]:
    """Lets code be imported that files name, if `trust`."""
    token = _TRUSTS.set(trust or _TRUSTS.get())
    try:
        yield
    finally:
        _TRUSTS.reset(token)


def trust_files() -> None:
    """As `trusting`, from now on: for a process with one command."""
    _TRUSTS.set(True)


def name_modules(settings: object) -> None:
    """Takes note of what the user has named on the command line."""
    _NAMED.update(map(_module_of, code_in(settings)))


def code_in(settings: object) -> list[str]:
    """All that names code in settings, however they are called: every text that could be taken for
    `module:Class`, alone, in a list, as a name of others, or as the value of a setting of an
    environment or rule."""
    if isinstance(settings, dict):
        return code_in([*settings.keys(), *settings.values()])
    if isinstance(settings, (list, tuple)):
        return [name for value in settings for name in code_in(value)]
    if not isinstance(settings, str):
        return []
    return [name for spec in split_specs(settings) for name in _code_in_spec(spec)]


def _code_in_spec(spec: str) -> list[str]:
    try:
        name, settings = split_spec(spec)
    except UserError:  # it is malformed, which is not for us to say
        return [spec] if ":" in spec else []
    return [text for text in (name, *settings.values()) if ":" in text]


def _module_of(name: str) -> str:
    """Of `module:Class`, also after `gym/` or `trials/`."""
    return name.partition(":")[0].rpartition("/")[2]


def require_trust(named: Iterable[str], source: str, import_from: str | None) -> None:
    """Refuses code that a file names, unless the user has named its module or trusts the file. Only
    then may it be imported from the folder that the file gives."""
    foreign = [name for name in named if _module_of(name) not in _NAMED]
    if not foreign:
        return
    if not _TRUSTS.get():
        where = _whereabouts(_module_of(foreign[0]), import_from)
        raise UntrustedError(
            f"{source} names code that is not Etude's: {foreign[0][:100]!r}, from {where}. "
            "Nothing of it was imported."
        )
    if import_from is not None:
        _look_first_in(import_from)


def _whereabouts(module: str, import_from: str | None) -> str:
    """Where a module would come from, found out without importing it."""
    top = module.partition(".")[0]
    folders = [x for x in (os.getcwd(), import_from, *sys.path) if x is not None]
    try:
        found = importlib.machinery.PathFinder.find_spec(top, folders)
    except (OSError, ValueError, ImportError):
        found = None
    if found is not None and found.origin is not None:
        return f"the module {module[:100]} in {found.origin}"
    return f"a module {module[:100]}, which is to be imported from {import_from or 'here'}"
