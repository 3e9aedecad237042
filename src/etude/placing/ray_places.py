"""Places on a cluster: jobs run as processes of its machines, as they do here (`local.py`)."""

import signal
import time
from collections.abc import Callable, Hashable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from etude.errors import UserError
from etude.placing.actors import Actors, Lost, Ref
from etude.placing.cluster import ClusterOptions
from etude.placing.job import Job
from etude.placing.local import Claim, LocalProcess, start_process
from etude.placing.rays import RayActors, room_in_all
from etude.placing.surroundings import Surroundings
from etude.placing.workforce import TOLD
from etude.runs.folder import CONFIG, LOCK
from etude.runs.inside import is_locked

if TYPE_CHECKING:
    from etude.placing.job import Placed

RESTARTS = 5
"""How often a job goes on elsewhere when the machine is lost that it ran on."""
PULSE_EVERY = 5.0
"""Seconds between two looks at whether the machine of a job still answers."""
LETTING_GO = 60.0
"""Seconds that a process has to end whose runner is lost; the job goes on only then."""
ANSWER = 10.0
"""Seconds that a machine which is there needs for an answer at most."""
RUN, STOP, LAST_WORDS, PULSE, END = ["run", "ask_to_stop", "last_words", "pulse", "end"]
CALLS_AT_ONCE = 4


class Runner:
    """Runs one command on the machine that it is on. It is asked while the command runs."""

    def __init__(self, surroundings: Surroundings, cpus: int):
        surroundings.take_on()
        self._claim, self._is_over = Claim(cpus), False
        self._process: LocalProcess | None = None
        self._refused = ""

    def call(self, what: str, returns: int, *arguments: object) -> object:
        return getattr(self, what)(*arguments)

    def run(self, command: tuple[str, ...], folder: Path) -> int:
        """The command's exit code, when it has ended."""
        if not (folder / CONFIG).is_file():
            self._refused = (
                f"{self.pulse()} does not see {folder}: on a cluster, run folders must be where "
                "all machines see them."
            )
            return 2
        until = time.monotonic() + LETTING_GO
        while is_locked(folder / LOCK) and time.monotonic() < until and not self._is_over:
            time.sleep(0.1)
        if self._is_over:
            return 128 + signal.SIGINT
        self._process = start_process(command, folder, self._claim.cores)
        return self._process.wait()

    def pulse(self) -> str:
        """The name of this machine."""
        import socket

        return socket.gethostname()

    def last_words(self) -> str:
        return self._process.last_words() if self._process is not None else self._refused

    def ask_to_stop(self) -> None:
        self._is_over = True
        if self._process is not None:
            self._process.ask_to_stop()

    def end(self, seconds: float) -> None:
        if self._process is not None:
            self._process.end(seconds)


class RayPlaces:
    """As many places as the cluster has room for, or as are wanted."""

    def __init__(self, options: ClusterOptions, tell: Callable[[str], None] = lambda text: None):
        here = Surroundings.of_this_process(gpus=bool(options.worker_gpus))
        asked = (here, options.worker_cpus)
        self._actors = RayActors(Runner, asked, options, calls_at_once=CALLS_AT_ONCE)
        self._timeout, self._tell = options.worker_timeout, tell
        self.number = options.workers or room_in_all(options)
        if not self.number:
            raise UserError("The cluster has no machine with what a worker asks for.")

    def start(self, job: Job, place: int) -> "Placed":
        return OnWorker(self._actors, job, self._timeout, self._tell)


class OnWorker:
    """A job on a worker. If that is lost, or does not answer in time, the job goes on from its
    folder on another."""

    def __init__(
        self,
        actors: Actors,
        job: Job,
        timeout: float,
        tell: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ):
        self._actors, self._job, self._restarts = actors, job, 0
        self._timeout, self._tell, self._clock = timeout, tell, clock
        self._words, self._waits = "", False
        self._begin()

    def _begin(self) -> None:
        self._actor: Hashable = self._actors.hire()
        arguments = self._job.command, self._job.folder
        self._code: Ref = self._actors.call(self._actor, RUN, 1, *arguments)[0]
        self._host = ""
        self._feel_pulse()

    def _feel_pulse(self) -> None:
        self._pulse: Ref = self._actors.call(self._actor, PULSE, 1)[0]
        self._felt = self._clock()

    def exit_code(self) -> int | None:
        try:
            if not self._actors.wait([self._code], 0.0):
                return self._require_pulse()
            code: int = self._actors.get(self._code)
        except Lost as loss:
            return self._go_on_elsewhere(str(loss))
        self._words = self._ask(LAST_WORDS, ANSWER) or ""
        self._actors.kill(self._actor)
        return code

    def _require_pulse(self) -> None:
        """A machine that has started must answer; until then it may wait for room as long as it
        takes."""
        waited = self._clock() - self._felt
        if not self._host and waited > TOLD and not self._waits:
            self._waits = True
            self._tell(f"{self._job.name} waits for room on the cluster.")
        if self._actors.wait([self._pulse], 0.0):
            self._host = self._actors.get(self._pulse)
            if waited >= PULSE_EVERY:
                self._feel_pulse()
        elif self._host and waited > self._timeout:
            raise Lost(f"no answer for {waited:.0f} s")

    def _go_on_elsewhere(self, why: str) -> int | None:
        self._actors.kill(self._actor)
        if self._restarts == RESTARTS:
            self._words = f"its worker was lost {RESTARTS + 1} times, at last: {why}."
            return 1
        self._restarts += 1
        where = f" on {self._host}" if self._host else ""
        self._tell(f"The worker of {self._job.name}{where} is lost ({why}): it goes on elsewhere.")
        self._begin()
        return None

    def last_words(self) -> str:
        return self._words

    def ask_to_stop(self) -> None:
        self._actors.call(self._actor, STOP, 1)

    def end(self, seconds: float) -> None:
        if self._host:  # or it has not begun
            self._ask(END, seconds + ANSWER, seconds)
        self._actors.kill(self._actor)

    def _ask(self, what: str, within: float, *arguments: object) -> Any:
        """The answer, None if there is none or the worker is lost."""
        (ref,) = self._actors.call(self._actor, what, 1, *arguments)
        try:
            return self._actors.get(ref) if self._actors.wait([ref], within) else None
        except Lost:
            return None
