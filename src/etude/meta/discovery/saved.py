"""The settings of a discovery run in its folder, which are read without JAX."""

from etude.meta.discovery.config import DiscoverConfig
from etude.runs.folder import IMPORT_FROM, RunFolder
from etude.training.config import from_json


def read_config(path: str, meta_steps: int | None = None) -> tuple[DiscoverConfig, RunFolder]:
    """Those of a run that goes on to its own end, or to a later one."""
    folder = RunFolder.open(path)
    saved = folder.config_with("envs", "a run of discovery")
    saved.pop(IMPORT_FROM, None)
    config = from_json(DiscoverConfig, {k: v for k, v in saved.items() if v is not None})
    return config if meta_steps is None else config.extended(meta_steps), folder
