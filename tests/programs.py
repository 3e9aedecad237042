"""Where the programs that tests compile are kept. This does not import JAX, which reads the
environment when it is imported."""

import contextlib
import time

from etude.cache import cache_dir

FORGOTTEN_AFTER = 14 * 24 * 3600.0
"""Seconds that a compiled program is kept after it was made."""


def kept_programs() -> str:
    """A folder in the user's cache: what has not changed since the last test run is not compiled
    again, but for what a process that was killed had only begun to write. JAX knows a program by
    its text, its flags and all versions that matter."""
    folder = cache_dir() / "tests"
    folder.mkdir(parents=True, exist_ok=True)
    for path in folder.iterdir():
        with contextlib.suppress(OSError):  # another test run was faster
            if time.time() - path.stat().st_mtime > FORGOTTEN_AFTER:
                path.unlink()
    return str(folder)
