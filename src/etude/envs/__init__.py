"""Environments in the gymnax interface, by name."""

import importlib
from typing import TYPE_CHECKING

from etude.envs.catalogue import available, require_known

if TYPE_CHECKING:
    from etude.envs.registry import Task, make

__all__ = ["Task", "available", "make", "require_known"]


def __getattr__(name: str) -> object:
    """Imports what needs JAX when it is asked for."""
    if name in ("Task", "make"):
        return getattr(importlib.import_module("etude.envs.registry"), name)
    raise AttributeError(f"module 'etude.envs' has no attribute {name!r}")
