"""The settings of a run of learning to adapt in its folder, which are read without JAX."""

import dataclasses

from etude.adaptation.config import AdaptConfig
from etude.runs.folder import CONFIG, RunFolder
from etude.runs.reading import damaged
from etude.training.config import from_json, later_end

DROPPED = ("outer",)
"""Settings of earlier versions that said nothing beside the others: `pg` was one epoch."""


def read_config(folder: RunFolder, steps: int | None = None) -> AdaptConfig:
    """Those of a run that goes on to its own end, or to a later one."""
    saved = {k: v for k, v in folder.settings().items() if v is not None and k not in DROPPED}
    config = from_json(AdaptConfig, saved)
    if config.steps is None:
        raise damaged(folder.path / CONFIG, "it lacks steps")
    steps = later_end(config.steps, config.schedule, steps, str(folder.path))
    return dataclasses.replace(config, steps=steps)
