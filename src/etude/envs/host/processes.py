"""Gymnasium environments in processes of their own, each with its share of them.

A process writes what its environments do into memory that all share, and says when it is done. It
ends with whoever started it: on Linux at once, however that ended, elsewhere when it next listens.
"""

import contextlib
import ctypes
import itertools
import mmap
import multiprocessing as mp
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import numpy as np

from etude import stopping
from etude.envs.host import making
from etude.envs.host.gym_envs import GymEnvs, Leaf, MakeEnv, leaves_of
from etude.envs.host.making import made
from etude.envs.host.simulator import Leaves, SimulatorFault, Stepped, faults
from etude.errors import take_over

DEATH_SIGNAL = 1
"""Of prctl: PR_SET_PDEATHSIG."""
STDERR = 2
CLOSE = "close"
"""The last request to a process."""
CLOSING = 1.0
"""Seconds that environments have to close themselves."""


class Shape(NamedTuple):
    """Of an array in shared memory."""

    shape: tuple[int, ...]
    dtype: np.dtype

    @property
    def bytes(self) -> int:
        return -(-int(np.prod(self.shape)) * self.dtype.itemsize // 64) * 64


def shapes_for(leaves: Sequence[Leaf], num_envs: int) -> list[Shape]:
    """The observation's arrays, reward, terminated, truncated, skipped, action."""
    observation = [Shape((num_envs, *leaf.shape), leaf.dtype) for leaf in leaves]
    numbers = [np.dtype(np.float32), *[np.dtype(bool)] * 3, np.dtype(np.int32)]
    return observation + [Shape((num_envs,), dtype) for dtype in numbers]


def arrays_in(fd: int, shapes: Sequence[Shape]) -> tuple[Stepped, np.ndarray]:
    """The arrays that lie one after another in a file that is mapped into memory: what steps lead
    to, and the actions."""
    memory = mmap.mmap(fd, sum(x.bytes for x in shapes))
    arrays, start = [], 0
    for shape in shapes:
        array = np.ndarray(shape.shape, shape.dtype, memory, start)
        arrays.append(array)
        start += shape.bytes
    *observation, reward, terminated, truncated, skipped, action = arrays
    return Stepped(observation, reward, terminated, truncated, skipped), action


class Processes:
    """Copies of a Gymnasium environment in several processes."""

    def __init__(self, make: MakeEnv, num_envs: int, workers: int):
        """`make` must be something that can be pickled."""
        self.num_envs, self.at = num_envs, 0
        with faults():
            example = made(make)
            shapes = shapes_for(leaves_of(example.observation_space), num_envs)
            example.close()
        with tempfile.TemporaryFile() as file:
            file.truncate(sum(x.bytes for x in shapes))
            self.now, self.action = arrays_in(file.fileno(), shapes)
            borders = np.linspace(0, num_envs, min(workers, num_envs) + 1).astype(int).tolist()
            self.workers = [
                Worker(make, shapes, file.fileno(), share) for share in itertools.pairwise(borders)
            ]
        stopping.add_duty(self.kill)
        try:
            for worker in self.workers:
                worker.require_ready()
        except SimulatorFault:
            self.close()
            raise

    def reset(self, seed: int) -> Leaves:
        self._ask(*[("reset", seed + worker.first) for worker in self.workers])
        return self.now.observation

    def step(self, actions: np.ndarray) -> Stepped:
        self.action[:] = actions
        found = self._ask(*[("step", 0)] * len(self.workers))
        outcomes = [
            (worker.first + i, outcome)
            for worker, ended in zip(self.workers, found, strict=True)
            for i, outcome in ended
        ]
        return self.now._replace(outcomes=outcomes)

    def picture(self) -> np.ndarray | None:
        first = self.workers[0]
        first.send(("picture", 0))
        return first.answer()

    def kill(self) -> None:
        """Ends all processes at once, with all that their environments have started."""
        for worker in self.workers:
            worker.kill()

    def close(self) -> None:
        stopping.drop_duty(self.kill)
        for worker in self.workers:
            worker.send((CLOSE, 0))
        until = time.monotonic() + CLOSING
        for worker in self.workers:
            worker.stop(until - time.monotonic())

    def _ask(self, *requests: tuple[str, int]) -> list[Any]:
        for worker, request in zip(self.workers, requests, strict=True):
            worker.send(request)
        return self._wait()

    def _wait(self) -> list[Any]:
        found = []
        for worker in self.workers:
            self.at = worker.first
            found.append(worker.answer())
        return found


class Worker:
    """A process with some of the environments, seen from the one that started it."""

    def __init__(self, make: MakeEnv, shapes: Sequence[Shape], fd: int, share: tuple[int, int]):
        self.first, self.end = share
        self.connection, theirs = mp.Pipe()
        # -P: it must not import what happens to lie in the folder that the user stands in.
        command = [sys.executable, "-P", "-m", "etude.envs.host.processes"]
        with theirs:
            self.process = subprocess.Popen(
                [*command, str(theirs.fileno()), str(fd)],
                pass_fds=(theirs.fileno(), fd),
                stdin=subprocess.DEVNULL,
                stdout=STDERR,  # what environments print is not what this program prints
                start_new_session=True,  # Ctrl-C is for the one that started it
            )
        self.connection.send((sys.path, os.getpid()))
        self.connection.send((make, list(shapes), share))

    def send(self, request: tuple[str, int]) -> None:
        with contextlib.suppress(OSError):  # `answer` says that it is dead
            self.connection.send(request)

    def require_ready(self) -> None:
        """Waits for its environments to be made."""
        if not self.connection.poll(making.MOST_SECONDS):
            self.kill()  # it would not hear that it should close
            raise making.too_slow()
        self.answer()

    def answer(self) -> Any:
        try:
            fault, found = self.connection.recv()
        except (EOFError, OSError):
            code = self.process.wait(5)
            how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
            raise SimulatorFault(f"its process {how}", self.first) from None
        if fault is not None:
            message, index = fault
            raise SimulatorFault(message, self.first + (index or 0))
        return found

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)

    def stop(self, seconds: float) -> None:
        """Waits for its end, or brings that about, with all that its environments have started."""
        try:
            self.process.wait(max(0.0, seconds))
        except subprocess.TimeoutExpired:
            self.kill()
            self.process.wait()
        self.connection.close()


def end_with(parent: int) -> None:
    """Has the system kill this process when the one that started it ends."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(DEATH_SIGNAL, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)


def serve(connection: Connection, fd: int) -> None:
    """Does what the other side asks for until it is gone."""
    path, parent = connection.recv()
    end_with(parent)
    sys.path[:] = path
    make, shapes, (first, end) = connection.recv()  # only now can it be imported
    now, action = arrays_in(fd, shapes)
    share = slice(first, end)
    room = Stepped([x[share] for x in now.observation], *(x[share] for x in now[1:5]))  # type: ignore[arg-type, index]
    try:
        envs = GymEnvs(make, end - first, room)
    except SimulatorFault as error:
        return connection.send(((str(error), error.index), None))
    connection.send((None, None))
    work = {
        "reset": lambda seed: envs.reset(seed) and None,
        "step": lambda _: envs.step(action[share]).outcomes,
        "picture": lambda _: envs.picture(),
    }
    with contextlib.closing(envs):
        while (request := connection.recv()) != (CLOSE, 0):
            what, argument = request
            try:
                connection.send((None, work[what](argument)))
            except SimulatorFault as error:
                connection.send(((str(error), error.index), None))


if __name__ == "__main__":
    for number in stopping.SIGNALS:  # they are for the one that started it
        signal.signal(number, signal.SIG_IGN)
    take_over()
    with contextlib.suppress(EOFError, OSError):
        serve(Connection(int(sys.argv[1])), int(sys.argv[2]))
