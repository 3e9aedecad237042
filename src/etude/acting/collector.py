"""Rollouts of a host simulator, played beside the learning."""

import contextlib
import queue
import threading
import time
from collections.abc import Sequence
from typing import NamedTuple

from jaxtyping import Array, Key

from etude.acting.host_source import HostSource
from etude.core.types import Episodes, Rollout
from etude.envs.host.simulator import Outcome

Played = tuple[Rollout, Episodes]
LOOK_EVERY = 0.5
"""Seconds between two looks at whether the simulator still answers."""
CLOSING = 5.0
"""Seconds that a simulator has to close itself."""


class Order(NamedTuple):
    """The arguments of `HostSource.collect`."""

    leaves: Sequence[Array]
    keys: Key[Array, " S"]
    length: int


class Collector:
    """Has rollouts played on a thread of its own, in the order in which they are asked for."""

    def __init__(self, source: HostSource, step_timeout: float):
        self.source, self.step_timeout = source, step_timeout
        self.asked = 0
        """Rollouts that were asked for and not yet taken."""
        self.outcomes: list[Outcome] = []
        """Those of the episodes that ended in the rollout that was taken last."""
        self._orders: queue.SimpleQueue[Order | None] = queue.SimpleQueue()
        self._played: queue.SimpleQueue[tuple[Played, list[Outcome]] | BaseException] = (
            queue.SimpleQueue()
        )
        # A simulator that hangs must not keep the program from ending.
        self._thread = threading.Thread(target=self._work, daemon=True, name="etude-collector")
        self._thread.start()

    def ask(self, leaves: Sequence[Array], keys: Key[Array, " S"], length: int) -> None:
        self.asked += 1
        self._orders.put(Order(leaves, keys, length))

    def take(self) -> Played:
        """Waits for the next rollout that was asked for."""
        while True:
            try:
                found = self._played.get(timeout=LOOK_EVERY)
                break
            except queue.Empty:
                self._require_answer()
        self.asked -= 1
        if isinstance(found, BaseException):
            raise found
        played, self.outcomes = found
        return played

    def play(self, leaves: Sequence[Array], keys: Key[Array, " S"], length: int) -> Played:
        """Asks for a rollout and waits for it."""
        self.ask(leaves, keys, length)
        return self.take()

    def close(self) -> None:
        """Ends the thread after the step it is in, then the simulator, unless either hangs."""
        self.source.stop = True
        self._orders.put(None)
        self._thread.join(timeout=LOOK_EVERY)
        while self._thread.is_alive() and not self._overdue():
            self._thread.join(timeout=LOOK_EVERY)
        closing = threading.Thread(target=self._close_source, daemon=True)
        closing.start()
        closing.join(CLOSING)

    def _close_source(self) -> None:
        with contextlib.suppress(Exception):  # what was learned is worth more than a clean end
            self.source.close()

    def _work(self) -> None:
        while (order := self._orders.get()) is not None:
            try:
                self._played.put((self.source.collect(*order), self.source.outcomes))
            except BaseException as error:
                self._played.put(error)
                return

    def _overdue(self) -> bool:
        since = self.source.stepping_since
        return since is not None and time.monotonic() - since > self.step_timeout

    def _require_answer(self) -> None:
        if self._overdue():
            seconds = f"{self.step_timeout:g} seconds"
            raise self.source.fault(f"no answer within {seconds}", self.source.at)
