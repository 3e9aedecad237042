"""Constructors of the user's, which may hang: on a server that is not there, on a lock, on a window
that nobody sees."""

import contextvars
import queue
import threading
from collections.abc import Callable
from typing import TypeVar

from etude.envs.host.simulator import SimulatorFault

Made = TypeVar("Made")
MOST_SECONDS = 300.0
"""That making an environment may take: some fetch or compile things."""


def made(make: Callable[[], Made]) -> Made:
    """What `make` returns, if it does so in time. Nothing can end a thread that hangs: it is left
    behind."""
    found: queue.SimpleQueue[tuple[list[Made], BaseException | None]] = queue.SimpleQueue()
    context = contextvars.copy_context()

    def work() -> None:
        try:
            found.put(([context.run(make)], None))
        except BaseException as error:  # the user's code may raise anything, or exit
            found.put(([], error))

    threading.Thread(target=work, daemon=True, name="etude-making").start()
    try:
        values, error = found.get(timeout=MOST_SECONDS)
    except queue.Empty:
        raise too_slow() from None
    if error is not None:
        raise error
    return values[0]


def too_slow() -> SimulatorFault:
    return SimulatorFault(f"it was not made within {MOST_SECONDS:g} seconds")
