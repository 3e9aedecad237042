"""Update rules by name, and rule files. A name is known without JAX; a rule is made with it."""

import importlib
from typing import TYPE_CHECKING, Any

from etude.rules.names import (
    KINDS,
    PUBLISHED,
    RULE_FILE,
    START_FILE,
    Kind,
    kind_named,
    learns_online,
    suggested,
)

if TYPE_CHECKING:
    from etude.core.rule import Rule
    from etude.rules.registry import (
        digest,
        kind_of,
        load,
        load_kept,
        maker,
        require_kind,
        save,
        spec_of,
    )

__all__ = [
    "KINDS",
    "PUBLISHED",
    "RULE_FILE",
    "START_FILE",
    "Kind",
    "Rule",
    "digest",
    "kind_named",
    "kind_of",
    "learns_online",
    "load",
    "load_kept",
    "maker",
    "require_kind",
    "save",
    "spec_of",
    "suggested",
]


def __getattr__(name: str) -> Any:
    """Imports what needs JAX when it is asked for."""
    if name == "Rule":
        return importlib.import_module("etude.core.rule").Rule
    if name in __all__:
        return getattr(importlib.import_module("etude.rules.registry"), name)
    raise AttributeError(f"module 'etude.rules' has no attribute {name!r}")
