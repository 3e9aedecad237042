"""Where things are kept between runs: downloaded weights, compiled programs."""

import os
from pathlib import Path


def cache_dir() -> Path:
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(root) / "etude"
