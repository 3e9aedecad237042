"""Code of the user's own, named `module:Class`: environments and rules."""

import importlib
import os
import sys
from types import ModuleType
from typing import Any

from etude.errors import UserError, reason


def is_named(name: str) -> bool:
    """Whether a name is that of a class in a module."""
    module, colon, attribute = name.partition(":")
    return bool(module and colon and attribute)


def import_module(module_name: str) -> ModuleType:
    """A module of the user's. Nothing else imports code that a user, or a file, names."""
    if os.getcwd() not in sys.path:  # an installed script does not look where the user stands
        sys.path.insert(0, os.getcwd())
    try:
        return importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        raise UserError(
            f"Cannot import {module_name!r}: there is no module {error.name!r}."
        ) from None
    except Exception as error:
        raise UserError(f"Module {module_name!r} cannot be imported: {reason(error)}") from None


def import_class(name: str) -> Any:
    """What `module:Class` names."""
    module_name, _, attribute = name.partition(":")
    module = import_module(module_name)
    if not hasattr(module, attribute):
        raise UserError(f"Module {module_name!r} has no class {attribute!r}.")
    found = getattr(module, attribute)
    if not callable(found):
        raise UserError(f"{name!r} is not a class.")
    return found


def look_in(folder: str) -> None:
    """Lets imports find what lies in a folder: the one in which a run was started."""
    if sys.path[:1] != [folder]:
        sys.path.insert(0, folder)
