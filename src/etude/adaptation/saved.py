"""The settings of a run of learning to adapt in its folder, which are read without JAX."""

from etude.adaptation.config import AdaptConfig
from etude.runs.folder import IMPORT_FROM, RunFolder
from etude.training.config import from_json, lengthened


def read_config(path: str, steps: int | None = None) -> tuple[AdaptConfig, RunFolder]:
    """Those of a run that goes on to its own end, or to a later one."""
    folder = RunFolder.open(path)
    saved = folder.config_with("algo", "a run of `etude adapt`")
    saved.pop(IMPORT_FROM, None)
    config = from_json(AdaptConfig, {k: v for k, v in saved.items() if v is not None})
    return lengthened(config, steps, path), folder
