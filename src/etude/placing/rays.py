"""Workers that are actors of Ray. Ray is imported nowhere else, and only once there is a
`--cluster`."""

import logging
import os
import secrets
import signal
import socket
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from etude import stopping
from etude.errors import UserError, reason
from etude.placing.actors import Lost, Ref
from etude.placing.cluster import LOCAL, ClusterOptions, host_and_port
from etude.placing.local import cores
from etude.placing.sweeper import Sweeper
from etude.settings import shown

LOOPBACK = ("127.0.0.1", "localhost", "::1")
STAYS_HERE = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
TOKEN = ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN")
ANSWERS_WITHIN = 10.0
"""Seconds in which the address of a cluster must be reached."""
SETTINGS = b"\4"
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(3) + SETTINGS + bytes(5)
"""How a conversation in HTTP/2, which Ray speaks, begins: on both sides with a frame of this kind,
which here is empty."""
ROOM = "etude-ray-"
"""What the names of folders begin with."""
SHORT = 20
"""Characters of a folder's name that leave room for what Ray puts there."""
ROOM_EVERY = 5.0
"""Seconds between two looks at what is free."""


def connect(address: str, cpus: int = 1) -> Callable[[], None]:
    """Makes this process the driver of a cluster; returns what undoes it. `cpus`: how many one of
    our own is to count at least, whether or not there are as many."""
    if "ray" in sys.modules and sys.modules["ray"].is_initialized():
        return lambda: None  # whoever did that will end it, too
    token = {name: os.environ.get(name) for name in TOKEN}
    set_out(address)
    if address != LOCAL:
        _require_answer(address)
    import ray

    room = private_room() if address == LOCAL else None
    sweeper = Sweeper(room) if room is not None else None
    # Also while Ray is still starting, which it does not like to be interrupted at.
    duty = ray.shutdown if sweeper is None else sweeper.sweep

    def disconnect() -> None:
        stopping.drop_duty(duty)
        ray.shutdown()
        if sweeper is not None:
            sweeper.sweep()
        for name, value in token.items():
            os.environ.pop(name, None)
            os.environ.update({} if value is None else {name: value})

    stopping.add_duty(duty)
    try:
        _init(ray, address, room, cpus)
    except Exception as error:  # Ray has many
        disconnect()
        raise UserError(f"The cluster {address} cannot be used: {_why(error)}") from error
    return disconnect


def _init(ray: Any, address: str, room: str | None, cpus: int) -> None:
    own: dict[str, Any] = {}
    if room is not None:
        own = dict(num_cpus=max(len(cores()), cpus), include_dashboard=False)
        # In another folder than the room itself: Ray opens its own to all users.
        own |= dict(_node_ip_address="127.0.0.1", _temp_dir=os.path.join(room, "ray"))
    with _own_signals(), warnings.catch_warnings():
        # JAX warns of forks. Ray's children become programs of their own at once.
        warnings.filterwarnings("ignore", r"os\.fork\(\) was called", RuntimeWarning)
        ray.init(address, log_to_driver=False, logging_level=logging.ERROR, **own)


def _why(error: Exception) -> str:
    if not isinstance(error, ConnectionError):
        return reason(error)
    return (
        "it answers, but takes no driver. It may want a token (RAY_AUTH_MODE=token and "
        "RAY_AUTH_TOKEN in the environment), or have another version of Ray."
    )


def private_room() -> str:
    """A new folder for a cluster of our own that no other user can look into."""
    return tempfile.mkdtemp(prefix=ROOM, dir=place_of_rooms())


def place_of_rooms() -> str:
    """Ray's sockets are there, and the system has a limit on the length of their names."""
    usual = tempfile.gettempdir()
    return usual if len(usual) <= SHORT else "/tmp"


def set_out(address: str) -> None:
    """What Ray is told by the environment, before it is imported."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ["RAY_ENABLE_AUTO_CONNECT"] = "0"  # once it is ended, it must not begin again
    # In clusters of our own, or whatever else runs goes before their workers.
    os.environ.setdefault("RAY_worker_niceness", "0")
    if address == LOCAL or host_and_port(address)[0] in LOOPBACK:
        # Or Ray would put the address of this machine on the network in place of the loopback.
        if "ray" in sys.modules and os.environ.get(STAYS_HERE) != "0":
            raise UserError(
                f"Ray was imported before it could be told to stay on loopback: set {STAYS_HERE}=0 "
                "in the environment, or leave it to Etude to import Ray."
            )
        os.environ[STAYS_HERE] = "0"
    if address == LOCAL:
        # Loopback is open to all users of a machine: what is not sent this is not listened to.
        os.environ.update(dict(zip(TOKEN, ("token", secrets.token_hex(32)), strict=True)))


@contextmanager
def connected(options: ClusterOptions) -> Iterator[None]:
    """Within it, this process is the driver of the cluster, if there is one."""
    if options.cluster is None:
        yield
        return
    disconnect = connect(options.cluster, options.cpus)
    try:
        # Others may get machines that have it.
        if options.cluster == LOCAL and not room_in_all(options):
            raise UserError(
                f"This machine lacks what a worker asks for: --worker-cpus {options.worker_cpus}, "
                f"--worker-gpus {options.worker_gpus:g}."
            )
        yield
    finally:
        disconnect()


def _require_answer(address: str) -> None:
    """Ray itself would try for minutes."""
    in_the_open = os.environ.get("RAY_USE_TLS", "0") not in ("1", "true")
    answer = SETTINGS
    try:
        with socket.create_connection(host_and_port(address), ANSWERS_WITHIN) as link:
            link.settimeout(ANSWERS_WITHIN)
            if in_the_open:  # or keys would have to be exchanged first
                link.sendall(PREFACE)
                answer = link.recv(9)[3:4]
    except (OSError, UnicodeError) as error:
        raise UserError(f"No Ray cluster answers at {address}: {reason(error)}.") from None
    if answer != SETTINGS:
        raise UserError(f"What answers at {address} is not a Ray cluster.")


class _own_signals:
    """Leaves signals to `etude.stopping`, whatever Ray does to them."""

    def __enter__(self) -> None:
        self._before = {number: signal.getsignal(number) for number in stopping.SIGNALS}

    def __exit__(self, *_: object) -> None:
        if threading.current_thread() is threading.main_thread():
            for number, handler in self._before.items():
                signal.signal(number, handler)


def room_in_all(options: ClusterOptions) -> int:
    """For how many workers the cluster's machines would have room if nothing else ran there."""
    import ray

    return sum(_room(node["Resources"], options) for node in ray.nodes() if node["Alive"])


def _room(there_is: Mapping[str, float], options: ClusterOptions) -> int:
    room = [there_is.get("CPU", 0.0) // options.worker_cpus]
    if options.worker_gpus:
        room.append(there_is.get("GPU", 0.0) // options.worker_gpus)
    return int(min(room))


class RayActors:
    """Actors of one class, spread over the machines of the cluster (see `Actors`). It has a method
    `call(what, returns, *arguments)`."""

    def __init__(
        self,
        kind: type,
        arguments: tuple[object, ...],
        options: ClusterOptions,
        calls_at_once: int = 1,
    ):
        import ray

        self._ray, self._options = ray, options
        asks: dict[str, Any] = dict(num_cpus=options.worker_cpus, num_gpus=options.worker_gpus)
        if calls_at_once > 1:
            asks["max_concurrency"] = calls_at_once
        # Whoever is lost is replaced by the driver, who knows what it did last.
        fate = dict(max_restarts=0, max_task_retries=0, scheduling_strategy="SPREAD")
        self._make = lambda: ray.remote(kind).options(**asks, **fate).remote(*arguments)
        self._room, self._looked_at = 0, -ROOM_EVERY

    def hire(self) -> Hashable:
        return self._make()

    def room(self) -> int:
        now = time.monotonic()
        if now - self._looked_at >= ROOM_EVERY:
            self._looked_at = now
            free = _room(self._ray.available_resources(), self._options)
            self._room = min(free, room_in_all(self._options))
        return self._room

    def call(self, actor: Any, what: str, returns: int, *arguments: object) -> list[Ref]:
        with self._cluster():
            method = actor.call.options(num_returns=returns)
            refs = method.remote(what, returns, *arguments)
        return [refs] if returns == 1 else refs

    def wait(self, refs: Sequence[Ref], seconds: float) -> list[Ref]:
        if not refs:
            time.sleep(seconds)
            return []
        with self._cluster():
            wait: Any = self._ray.wait
            first, rest = wait(list(refs), num_returns=1, timeout=seconds, fetch_local=False)
            if not first or not rest:
                return first
            others = wait(rest, num_returns=len(rest), timeout=0, fetch_local=False)[0]
        return first + others

    def get(self, ref: Ref) -> Any:
        errors = self._ray.exceptions
        try:
            return self._ray.get(ref)
        except errors.RayTaskError as error:  # workers return what goes wrong (see `Failed`)
            raise UserError(f"A worker failed: {reason(error.cause)}") from error
        except errors.RayError as error:
            raise Lost(shown(reason(error).partition(". ")[0].rstrip("."))) from error

    def put(self, value: object) -> Ref:
        with self._cluster():
            return self._ray.put(value)

    def kill(self, actor: Any) -> None:
        with suppress(Exception):  # it is gone, or the cluster is
            self._ray.kill(actor)

    def _cluster(self) -> "_cluster":
        return _cluster(self._ray.exceptions.RayError)


class _cluster:
    """What goes wrong with the cluster itself ends a run."""

    def __init__(self, error: type[Exception]):
        self._error = error

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, self._error):
            raise UserError(f"The cluster is gone: {reason(error)}") from error
