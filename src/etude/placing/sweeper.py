"""Ends what is left of a cluster of our own, and removes its folder, when its driver is done with
it or was killed: `python -m etude.placing.sweeper FOLDER`, which waits for the end of its input."""

import os
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

ENDING = 20.0
"""Seconds that sweeping may take."""


class Sweeper:
    """The process that sweeps, seen from the driver."""

    def __init__(self, folder: str):
        command = [sys.executable, "-P", "-m", "etude.placing.sweeper", folder]
        # Its input ends with this process, however that ends; a signal is for this one alone.
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def sweep(self) -> None:
        with suppress(subprocess.TimeoutExpired):
            self._process.communicate(timeout=ENDING)


def sweep(folder: Path, driver: int) -> None:
    for process in using(folder) - {driver, os.getpid()}:
        with suppress(OSError):  # it has just ended
            os.kill(process, signal.SIGKILL)
    shutil.rmtree(folder, ignore_errors=True)


def using(folder: Path) -> set[int]:
    """The processes that have files in a folder open, where the system tells of them."""
    folder, found = folder.resolve(), set()
    for link in Path("/proc").glob("[0-9]*/fd/*"):
        with suppress(OSError):
            if folder in Path(os.readlink(link)).parents:
                found.add(int(link.parts[2]))
    return found


if __name__ == "__main__":
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    driver = os.getppid()
    sys.stdin.read()
    sweep(Path(sys.argv[1]), driver)
