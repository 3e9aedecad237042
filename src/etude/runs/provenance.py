"""What made a run: the command, the time, and the versions and machine it ran with."""

import datetime
import importlib.metadata
import os
import platform
import shlex
import subprocess
import sys
from pathlib import Path

from etude.runs.folder import Record

PACKAGES = ("etude", "jax", "jaxlib", "numpy", "equinox", "optax", "gymnax")
"""Those whose versions numbers may depend on."""


def made_now(command: str | None = None, works_here: bool = True) -> Record:
    """By this process, now. `command` is the one that the user gave, if there was one. A process
    that leaves the work to others must not take hold of a device."""
    versions = {name: version for name in PACKAGES if (version := _version(name))}
    device = {"device": _device()} if works_here else {}
    return {
        "command": command,
        "at": datetime.datetime.now().astimezone().isoformat(timespec="seconds"),
        "versions": {"python": platform.python_version(), **versions},
        "machine": {"system": platform.platform(), "cores": os.cpu_count(), **device},
    }


def command_line() -> str:
    """The command that this process was started by, as one would type it."""
    return shlex.join(["etude", *sys.argv[1:]])


def commit() -> str | None:
    """Of the code that runs, if it is in a repository of its own; a plus if it has been changed."""
    root = Path(__file__).resolve().parents[3]
    if not (root / ".git").exists():
        return None
    try:
        found = _git(root, "rev-parse", "--short=8", "HEAD")
        changed = _git(root, "status", "--porcelain", "--untracked-files=no", "--", "src")
    except (OSError, subprocess.SubprocessError):
        return None
    return f"{found}+" if changed else found


def _git(root: Path, *words: str) -> str:
    command = ["git", "-C", str(root), *words]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=20)
    return done.stdout.strip()


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _device() -> str:
    import jax  # reading a folder does without

    return jax.devices()[0].device_kind
