"""Etude learns how to learn: agents under a learned update rule, and the rules themselves."""

import importlib
from typing import TYPE_CHECKING

from etude._process import keep_freed_memory, run_small_programs_at_once

if TYPE_CHECKING:
    __version__: str
    from etude import envs, rules
    from etude.api import (
        Compared,
        Loaded,
        Tuned,
        adapt,
        compare,
        discover,
        load,
        resume,
        train,
        tune,
    )
    from etude.core.agent import Agent, Heads
    from etude.core.config import NetworkConfig
    from etude.core.learner import Learner, update
    from etude.core.optim import adam
    from etude.core.types import Rollout
    from etude.errors import UserError
    from etude.placing.cluster import ClusterOptions
    from etude.rules import Rule
    from etude.training.config import TrainPlan, TrainRequest
    from etude.training.trained import TrainedAgent

keep_freed_memory()
run_small_programs_at_once()

__all__ = [
    "Agent",
    "ClusterOptions",
    "Compared",
    "Heads",
    "Learner",
    "Loaded",
    "NetworkConfig",
    "Rollout",
    "Rule",
    "TrainPlan",
    "TrainRequest",
    "TrainedAgent",
    "Tuned",
    "UserError",
    "adam",
    "adapt",
    "compare",
    "discover",
    "envs",
    "load",
    "resume",
    "rules",
    "train",
    "tune",
    "update",
]

_HOMES = {
    "api": (
        *("Compared", "Loaded", "Tuned"),
        *("adapt", "compare", "discover", "load", "resume", "train", "tune"),
    ),
    "core.agent": ("Agent", "Heads"),
    "core.config": ("NetworkConfig",),
    "core.learner": ("Learner", "update"),
    "core.optim": ("adam",),
    "core.rule": ("Rule",),
    "core.types": ("Rollout",),
    "errors": ("UserError",),
    "placing.cluster": ("ClusterOptions",),
    "training.config": ("TrainPlan", "TrainRequest"),
    "training.trained": ("TrainedAgent",),
}


def __getattr__(name: str) -> object:
    """Imports what is asked for, when it is: JAX alone takes a second, and the command line wants
    to be there before."""
    if name == "__version__":
        return importlib.import_module("importlib.metadata").version("etude")
    if name in ("envs", "rules"):
        return importlib.import_module(f"etude.{name}")
    for home, names in _HOMES.items():
        if name in names:
            return getattr(importlib.import_module(f"etude.{home}"), name)
    raise AttributeError(f"module 'etude' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
