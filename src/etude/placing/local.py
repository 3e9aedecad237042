"""Processes of this machine, each on cores of its own: programs as small as ours gain little from
more than one, and lose by sharing it."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from etude.errors import UserError, disk_errors
from etude.placing.job import LOG, Job
from etude.runs.inside import open_inside
from etude.settings import Settings

TAIL = 8192
"""Bytes from the end of a log in which its last line is looked for."""


def cores() -> list[int]:
    """Those that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def _keep_to(own: Sequence[int]) -> None:
    """Has all threads of this process run on these cores only."""
    for thread in map(int, os.listdir("/proc/self/task")):
        with suppress(ProcessLookupError):  # it has ended
            os.sched_setaffinity(thread, own)


@contextmanager
def on_one_core() -> Iterator[None]:
    """Within it, all threads that this process has share one core, where the system can do that."""
    if sys.platform != "linux":
        yield
        return
    before = cores()
    try:
        _keep_to(before[:1])
        yield
    finally:
        _keep_to(before)


class Claim:
    """So many cores that no other claim of this user's on this machine has, for as long as this
    process lives; where there are not as many, or there is no telling, all of them."""

    def __init__(self, number: int, among: str = "etude"):
        """`among`: others of the same name are looked at."""
        self._among = among
        self._names: list[socket.socket] = []
        found: list[int] = []
        for core in cores() if sys.platform == "linux" else ():
            if len(found) < number and self._takes(core):
                found.append(core)
        if len(found) < number:
            self.release()
        self.cores = found if len(found) == number else cores()

    def _takes(self, core: int) -> bool:
        # A name that the system takes back when its holder ends, however it does.
        name = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            name.bind(f"\0{self._among}-core-{os.getuid()}-{core}")
        except OSError:  # another has it
            name.close()
            return False
        self._names.append(name)
        return True

    def release(self) -> None:
        for name in self._names:
            name.close()
        self._names = []


class LocalPlaces:
    """Places for a number of processes, by default one per core; fewer share the cores out."""

    def __init__(self, processes: int | None = None):
        there_are = cores()
        number = len(there_are) if processes is None else processes
        if not 1 <= number <= len(there_are):
            raise UserError(f"--processes must be from 1 to {len(there_are)}, the cores there are.")
        self._cores = [there_are[place::number] for place in range(number)]

    @property
    def number(self) -> int:
        return len(self._cores)

    def start(self, job: Job, place: int) -> "LocalProcess":
        return start_process(job.command, job.folder, self._cores[place])


CHILD = "etude.placing.child"


def start_process(command: Sequence[str], folder: Path, own: Sequence[int]) -> "LocalProcess":
    """An `etude` command with cores of its own; what it prints goes to `LOG` in the folder."""
    pinned = ",".join(map(str, own))
    # -P: whatever lies in the folder that the user stands in is not imported for that.
    words = [sys.executable, "-P", "-m", CHILD, pinned, str(os.getpid()), *command]
    with (
        disk_errors(f"Cannot start a process for {folder}"),
        open_inside(folder / LOG, os.O_WRONLY | os.O_APPEND) as log,
    ):
        begins = log.seek(0, os.SEEK_END)
        # Ctrl-C is for us: it reaches them through `ask_to_stop`, once.
        streams: Settings = dict(stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)
        process = subprocess.Popen(words, start_new_session=True, **streams)
    return LocalProcess(process, folder / LOG, begins)


class LocalProcess:
    """A job that runs here."""

    def __init__(self, process: subprocess.Popen, log: Path, begins: int):
        """`begins`: where in the log that begins which is of this process."""
        self._process, self._log, self._begins = process, log, begins

    def exit_code(self) -> int | None:
        return self._process.poll()

    def wait(self) -> int:
        """Its exit code, when it has ended."""
        return self._process.wait()

    def last_words(self) -> str:
        with suppress(OSError), self._log.open("rb") as log:
            log.seek(max(self._begins, self._log.stat().st_size - TAIL))
            lines = log.read().decode(errors="replace").strip().splitlines()
            return lines[-1] if lines else ""
        return ""

    def ask_to_stop(self) -> None:
        self._process.send_signal(signal.SIGINT)

    def end(self, seconds: float) -> None:
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=seconds)
        self._process.kill()  # if it is still there: checkpoints are whole whatever happens
        self._process.wait()
