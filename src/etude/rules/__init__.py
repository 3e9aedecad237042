"""Update rules by name, and rule files. A name is known without JAX; a rule is made with it."""

import importlib
from typing import TYPE_CHECKING

from etude.rules.names import KINDS as KINDS
from etude.rules.names import PUBLISHED as PUBLISHED
from etude.rules.names import RULE_FILE as RULE_FILE
from etude.rules.names import START_FILE as START_FILE
from etude.rules.names import kind_named as kind_named
from etude.rules.names import suggested as suggested

if TYPE_CHECKING:
    from etude.core.rule import Rule as Rule
    from etude.rules.registry import class_named as class_named
    from etude.rules.registry import digest as digest
    from etude.rules.registry import kind_of as kind_of
    from etude.rules.registry import load as load
    from etude.rules.registry import load_kept as load_kept
    from etude.rules.registry import maker as maker
    from etude.rules.registry import require_kind as require_kind
    from etude.rules.registry import save as save
    from etude.rules.registry import save_kept as save_kept
    from etude.rules.registry import spec_of as spec_of


def __getattr__(name: str) -> object:
    """Imports what needs JAX when it is asked for."""
    if not name.startswith("_"):
        registry = importlib.import_module("etude.rules.registry")
        if hasattr(registry, name):
            return getattr(registry, name)
    raise AttributeError(f"module 'etude.rules' has no attribute {name!r}")
