"""The settings of a run of learning to adapt in its folder, which are read without JAX."""

from etude.adaptation.config import AdaptConfig
from etude.runs.folder import RunFolder
from etude.training.config import from_json, lengthened


def read_config(folder: RunFolder, steps: int | None = None) -> AdaptConfig:
    """Those of a run that goes on to its own end, or to a later one."""
    saved = {k: v for k, v in folder.settings().items() if v is not None}
    return lengthened(from_json(AdaptConfig, saved), steps, str(folder.path))
