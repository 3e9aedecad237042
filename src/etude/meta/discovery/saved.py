"""The settings of a discovery run in its folder, which are read without JAX."""

import dataclasses
from typing import get_args

from etude.meta.config import Recording
from etude.meta.discovery.config import DiscoverConfig
from etude.runs.folder import RunFolder
from etude.training.config import from_json, later_end


def read_config(folder: RunFolder, meta_steps: int | None = None) -> DiscoverConfig:
    """Those of a run that goes on to its own end, or to a later one."""
    saved = {k: v for k, v in folder.settings().items() if v is not None}
    if saved.get("memory") in get_args(Recording):  # what `record` was once called
        saved["record"] = saved.pop("memory")
    if "workers" in saved:  # what `env_workers` was once called
        saved["env_workers"] = saved.pop("workers")
    useless = ("size",) if "from_" in saved else ()
    if saved.get("memory", "none") == "none":
        useless += ("memory_size", "memory_gate")
    saved = {k: v for k, v in saved.items() if k not in useless}  # what is now refused
    saved.setdefault("draw_tasks", False)  # before there was the choice, none were drawn
    config = from_json(DiscoverConfig, saved)
    ends = config.meta_steps, config.meta_schedule, meta_steps
    later = later_end(*ends, str(folder.path), "meta-steps")
    return dataclasses.replace(config, meta_steps=later)
