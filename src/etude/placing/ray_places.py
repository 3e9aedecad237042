"""Places on a cluster: jobs run as processes of its machines, as they do here (`local.py`)."""

import signal
from collections.abc import Hashable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from etude.errors import UserError
from etude.placing.actors import Actors, Lost, Ref
from etude.placing.cluster import ClusterOptions
from etude.placing.job import Job
from etude.placing.local import LocalProcess, cores, start_process
from etude.placing.rays import RayActors, room_in_all
from etude.placing.surroundings import Surroundings
from etude.runs.folder import CONFIG

if TYPE_CHECKING:
    from etude.placing.job import Placed

RESTARTS = 5
"""How often a job goes on elsewhere when the machine is lost that it ran on."""
RUN, STOP, LAST_WORDS, END = ["run", "ask_to_stop", "last_words", "end"]
CALLS_AT_ONCE = 4


class Runner:
    """Runs one command on the machine that it is on. It is asked while the command runs."""

    def __init__(self, surroundings: Surroundings):
        surroundings.take_on()
        self._process: LocalProcess | None = None
        self._refused = ""

    def call(self, what: str, returns: int, *arguments: object) -> object:
        return getattr(self, what)(*arguments)

    def run(self, command: tuple[str, ...], folder: Path) -> int:
        """The command's exit code, when it has ended."""
        if not (folder / CONFIG).is_file():
            import socket

            self._refused = (
                f"{socket.gethostname()} does not see {folder}: on a cluster, run folders must be "
                "where all machines see them."
            )
            return 2
        self._process = start_process(command, folder, cores())
        return self._process.wait()

    def last_words(self) -> str:
        return self._process.last_words() if self._process is not None else self._refused

    def ask_to_stop(self) -> None:
        if self._process is not None:
            self._process.ask_to_stop()

    def end(self, seconds: float) -> None:
        if self._process is not None:
            self._process.end(seconds)


class RayPlaces:
    """As many places as the cluster has room for, or as are wanted."""

    def __init__(self, options: ClusterOptions):
        here = Surroundings.of_this_process(gpus=bool(options.worker_gpus))
        self._actors = RayActors(Runner, (here,), options, calls_at_once=CALLS_AT_ONCE)
        self.number = options.workers or room_in_all(options)
        if not self.number:
            raise UserError("The cluster has no machine with what a worker asks for.")

    def start(self, job: Job, place: int) -> "Placed":
        return OnWorker(self._actors, job)


class OnWorker:
    """A job on a worker. If that is lost, it goes on from its folder on another."""

    def __init__(self, actors: Actors, job: Job):
        self._actors, self._job, self._restarts = actors, job, 0
        self._words = ""
        self._begin()

    def _begin(self) -> None:
        self._actor: Hashable = self._actors.hire()
        arguments = self._job.command, self._job.folder
        self._code: Ref = self._actors.call(self._actor, RUN, 1, *arguments)[0]

    def exit_code(self) -> int | None:
        if not self._actors.wait([self._code], 0.0):
            return None
        try:
            code: int = self._actors.get(self._code)
        except Lost:
            self._actors.kill(self._actor)
            if self._restarts == RESTARTS:
                return -signal.SIGKILL
            self._restarts += 1
            self._begin()
            return None
        self._words = self._ask(LAST_WORDS) or ""
        self._actors.kill(self._actor)
        return code

    def last_words(self) -> str:
        return self._words

    def ask_to_stop(self) -> None:
        self._actors.call(self._actor, STOP, 1)

    def end(self, seconds: float) -> None:
        self._ask(END, seconds)
        self._actors.kill(self._actor)

    def _ask(self, what: str, *arguments: object) -> Any:
        """The answer, None if the worker is lost."""
        try:
            return self._actors.get(self._actors.call(self._actor, what, 1, *arguments)[0])
        except Lost:
            return None
