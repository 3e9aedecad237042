"""What made a run: the command, the time, and the versions and machine it ran with."""

import datetime
import importlib.metadata
import os
import platform
import shlex
import sys

from etude.runs.folder import Record

PACKAGES = ("etude", "jax", "jaxlib", "numpy", "equinox", "optax", "gymnax")
"""Those whose versions numbers may depend on."""


def made_now(command: str | None = None) -> Record:
    """By this process, now. `command` is the one that the user gave, if there was one."""
    versions = {name: version for name in PACKAGES if (version := _version(name))}
    return {
        "command": command,
        "at": datetime.datetime.now().astimezone().isoformat(timespec="seconds"),
        "versions": {"python": platform.python_version(), **versions},
        "machine": {"system": platform.platform(), "cores": os.cpu_count(), "device": _device()},
    }


def command_line() -> str:
    """The command that this process was started by, as one would type it."""
    return shlex.join(["etude", *sys.argv[1:]])


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _device() -> str:
    import jax  # reading a folder does without

    return jax.devices()[0].device_kind
