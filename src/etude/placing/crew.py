"""Jobs under way, one at each place, and their end: by themselves, one by one, or all at once."""

import threading
import time

from etude.placing.job import Job, Placed, Places

SAVING = 60.0
"""Seconds that jobs may take to save what they have when they are stopped."""


class Crew:
    """What runs at the places there are. `stop` may be called by another thread, when a signal ends
    this process: then nothing more is started, and nothing is said about how jobs ended."""

    def __init__(self, places: Places):
        self._places = places
        self._running: dict[int, tuple[Job, Placed]] = {}
        self._lock, self._stopped = threading.Lock(), False

    @property
    def running(self) -> list[Job]:
        return [job for job, _ in self._running.values()]

    @property
    def free(self) -> int:
        """How many places are free."""
        return self._places.number - len(self._running)

    def start(self, job: Job) -> None:
        """Starts a job at a free place."""
        place = next(x for x in range(self._places.number) if x not in self._running)
        with self._lock:
            self._rest_if_stopped()
            self._running[place] = (job, self._places.start(job, place))

    def ended(self) -> list[tuple[Job, str]]:
        """The jobs that have ended since this was last asked, each with why it failed, or with an
        empty text if it is done."""
        found = []
        for place, (job, placed) in list(self._running.items()):
            if (code := placed.exit_code()) is not None:
                self._rest_if_stopped()
                del self._running[place]
                why = "" if job.is_done() else _why_it_stopped(code, placed.last_words())
                found.append((job, why))
        return found

    def dismiss(self, job: Job) -> None:
        """Stops one of them, which is not needed any more."""
        place = next(x for x, (running, _) in self._running.items() if running is job)
        _, placed = self._running.pop(place)
        placed.ask_to_stop()
        placed.end(SAVING)

    def stop(self) -> None:
        """Asks all to save what they have, and waits until they did."""
        with self._lock:
            self._stopped = True
            under_way = [placed for _, placed in self._running.values()]
        for placed in under_way:
            placed.ask_to_stop()
        until = time.monotonic() + SAVING
        for placed in under_way:
            placed.end(max(0.0, until - time.monotonic()))

    def _rest_if_stopped(self) -> None:
        if self._stopped:
            threading.Event().wait()


def _why_it_stopped(code: int, last_words: str) -> str:
    if code < 0:
        return f"it was killed by signal {-code}; if memory is short, by the system."
    return last_words.removeprefix("etude: ") or f"exit code {code}."
