"""Signals that ask this process to stop: Ctrl-C, SIGTERM (Slurm, Docker, Kubernetes) and SIGHUP (a
closed terminal).

One thread hears them from the first moment of the process to the last, whatever the main thread is
doing: it may be in a compiler for minutes, or in a callback of the garbage collector, where an
exception would be printed and lost. So no signal ever raises an exception, and none is missed.

While there is work that would be lost, the first signal asks for it to be saved, which may take
the grace period; a second one, or the end of that period, stops the process where it is. All else
stops at the first one.
"""

import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from etude.errors import take_over

SIGNALS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if name in dir(signal)]
GRACE = 25.0
"""Seconds that saving may take, unless one says otherwise: Kubernetes and Slurm kill after 30."""
CLEANING = 30.0
"""Seconds that the last duties of a process may take."""


class _Request:
    """What this process was asked, and what is to be done before it ends."""

    def __init__(self):
        self.number: int | None = None
        """The first signal that came."""
        self.came = threading.Event()
        self.unsaved = self.held = 0
        self.grace = GRACE
        self.ending = False
        self.say: Callable[[str], None] = _to_stderr
        self.last_words = ""
        self.duties: list[Callable[[], object]] = []
        self.lock = threading.RLock()

    def hear(self, number: int) -> None:
        with self.lock:
            again, self.number = self.number is not None, self.number or number
            self.came.set()
            if self.ending:  # its last duties take too long for someone
                os._exit(self.exit_code)
            if self.held:
                return
            if self.unsaved and not again:
                _aside(self._wait_for_saving)
                return
        self.end(self.last_words)

    def end(self, words: str) -> None:
        """Ends the process after its last duties; another signal cuts these short."""
        with self.lock:
            if self.ending:
                return
            self.ending = True
        _aside(self._end, words)

    def _end(self, words: str) -> None:
        duties = _aside(self._do_duties, words)
        duties.join(CLEANING)
        os._exit(self.exit_code)

    def _do_duties(self, words: str) -> None:
        for duty in reversed(self.duties):
            with suppress(Exception):
                duty()
        if words:
            self.say(words)

    def _wait_for_saving(self) -> None:
        limit = f"{self.grace:g} s"
        # Whoever reads what is said may be slow, or gone.
        told = "\nFinishing this piece of work, then saving"
        _aside(self.say, f"{told}, within {limit}. Ctrl-C again to stop at once.")
        threading.Event().wait(self.grace)
        kept = "what was saved before is good"
        late = f"Not saved within {limit}: stopped where it was, {kept}. " if self.unsaved else ""
        self.end(late + self.last_words)

    @property
    def exit_code(self) -> int:
        return 128 + (self.number or 0)


def _aside(work: Callable[..., object], *arguments: object) -> threading.Thread:
    thread = threading.Thread(target=work, args=arguments, daemon=True, name="etude-stopping")
    thread.start()
    return thread


def _to_stderr(text: str) -> None:
    with suppress(OSError, ValueError):
        print(text, file=sys.stderr, flush=True)


_request = _Request()


def listen() -> None:
    """Hears signals from now on. Those that whoever started this process has ignored (as `nohup`
    does SIGHUP) stay so, but for Ctrl-C: shells ignore it for all that runs in the background."""
    theirs, ours = socket.socketpair()
    theirs.setblocking(False)
    for number in SIGNALS:
        if number == signal.SIGINT or signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, lambda *_: None)  # Python tells `theirs` of it at once
    signal.set_wakeup_fd(theirs.fileno(), warn_on_full_buffer=False)

    def hear_all() -> None:
        _ends.append(theirs)  # or it would be closed
        while heard := ours.recv(1):
            if heard[0] in SIGNALS:
                _request.hear(heard[0])

    _aside(hear_all)
    take_over()


_ends: list[socket.socket] = []


def asked() -> bool:
    """Whether the process was asked to stop."""
    return _request.came.is_set()


def exit_code() -> int:
    """Of a process that was asked to stop and has: 130, 143 or 129."""
    return _request.exit_code


@contextmanager
def unsaved_work() -> Iterator[None]:
    """Within it, the first signal asks (`asked`) for what was done to be saved."""
    with _request.lock:
        _request.unsaved += 1
    try:
        yield
    finally:
        with _request.lock:
            _request.unsaved -= 1


@contextmanager
def held() -> Iterator[None]:
    """Within it, for moments only, no signal ends the process: it does when they are over."""
    with _request.lock:
        _request.held += 1
    try:
        yield
    finally:
        with _request.lock:
            _request.held -= 1
            ends = asked() and not _request.held and not _request.unsaved
        if ends:
            _request.end(_request.last_words)
            threading.Event().wait()


@contextmanager
def telling(say: Callable[[str], None], last_words: str, grace: float = GRACE) -> Iterator[None]:
    """How users are told of what signals bring about, and how long saving may take."""
    before = _request.say, _request.last_words, _request.grace
    _request.say, _request.last_words, _request.grace = say, last_words, grace
    try:
        yield
    finally:
        _request.say, _request.last_words, _request.grace = before


@contextmanager
def last_duty(duty: Callable[[], object]) -> Iterator[None]:
    """Within it, `duty` is done before a signal ends the process."""
    add_duty(duty)
    try:
        yield
    finally:
        drop_duty(duty)


def add_duty(duty: Callable[[], object]) -> None:
    _request.duties.append(duty)


def drop_duty(duty: Callable[[], object]) -> None:
    if duty in _request.duties:
        _request.duties.remove(duty)
