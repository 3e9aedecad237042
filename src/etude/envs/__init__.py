"""Environments by name."""

import importlib
from typing import TYPE_CHECKING

from etude.envs.catalogue import SUITES, available, require_known

if TYPE_CHECKING:
    from etude.envs.registry import listed, make, make_jax
    from etude.envs.tasks import HostTask, JaxTask, Task

__all__ = [
    "SUITES",
    "HostTask",
    "JaxTask",
    "Task",
    "available",
    "listed",
    "make",
    "make_jax",
    "require_known",
]


LATE = {
    "etude.envs.registry": ("listed", "make", "make_jax"),
    "etude.envs.tasks": ("HostTask", "JaxTask", "Task"),
}


def __getattr__(name: str) -> object:
    """Imports what needs JAX when it is asked for."""
    for module, names in LATE.items():
        if name in names:
            return getattr(importlib.import_module(module), name)
    raise AttributeError(f"module 'etude.envs' has no attribute {name!r}")
