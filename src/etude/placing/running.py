"""Runs many jobs at whatever places there are."""

import threading
import time
from collections.abc import Callable, Sequence

from etude import stopping
from etude.errors import UserError
from etude.placing.job import Job, Placed, Places
from etude.placing.pace import Pace, Progress

LOOK_EVERY = 0.1
"""Seconds between two looks at what is under way."""
SAVING = 60.0
"""Seconds that jobs may take to save what they have when they are stopped."""


def run_jobs(
    jobs: Sequence[Job],
    places: Places,
    *,
    keep_going: bool = False,
    before_each: Callable[[], None] = lambda: None,
    report: Callable[[Progress], None] = lambda progress: None,
    report_every: float = 1.0,
) -> dict[str, str]:
    """Runs all jobs, as many at once as there are places, the first ones first.

    If one fails, the others are stopped and a `UserError` says why; with `keep_going` they go on.
    An exception, or a signal that ends this process, stops all: each saves what it has.

    Args:
        jobs: Those that are not done yet.
        places: Where they run.
        keep_going: Whether the others go on when one fails.
        before_each: Called before each job starts; if it raises, all stop.
        report: Told how far they are, every `report_every` seconds and at the end.

    Returns:
        Why those that failed did, by their names.
    """
    work = _Work(list(jobs), places, keep_going)
    pace = Pace(jobs, places.number)
    told = time.monotonic()
    with stopping.last_duty(work.stop):
        try:
            while work.waiting or work.running:
                work.fill_places(before_each, pace)
                time.sleep(LOOK_EVERY)
                work.look(pace)
                if time.monotonic() - told >= report_every:
                    report(pace.progress())
                    told = time.monotonic()
        except BaseException:
            work.stop()
            raise
    report(pace.progress())
    return work.failed


class _Work:
    """What is to be done and what is under way."""

    def __init__(self, waiting: list[Job], places: Places, keep_going: bool):
        self.waiting, self.places, self.keep_going = waiting, places, keep_going
        self.running: dict[int, tuple[Job, Placed]] = {}
        self.failed: dict[str, str] = {}
        self._lock, self._stopped = threading.Lock(), False

    def fill_places(self, before_each: Callable[[], None], pace: Pace) -> None:
        free = (x for x in range(self.places.number) if x not in self.running)
        for place, _ in zip(free, list(self.waiting), strict=False):
            before_each()
            with self._lock:
                self._rest_if_stopped()
                job = self.waiting.pop(0)
                self.running[place] = (job, self.places.start(job, place))
                pace.started(job)

    def look(self, pace: Pace) -> None:
        for place, (job, placed) in list(self.running.items()):
            if (code := placed.exit_code()) is None:
                continue
            self._rest_if_stopped()
            del self.running[place]
            if job.is_done():
                pace.ended(job)
                continue
            self.failed[job.name] = why = _why_it_stopped(code, placed.last_words())
            pace.ended(job, failed=True)
            if not self.keep_going:
                raise UserError(f"The work in {job.folder} stopped: {why}")

    def stop(self) -> None:
        """Asks all to save what they have, and waits until they did."""
        with self._lock:
            self._stopped = True
            under_way = [placed for _, placed in self.running.values()]
        for placed in under_way:
            placed.ask_to_stop()
        until = time.monotonic() + SAVING
        for placed in under_way:
            placed.end(max(0.0, until - time.monotonic()))

    def _rest_if_stopped(self) -> None:
        """When a signal ends this process, another thread stops the jobs: there is nothing more to
        start, nor to be said about how they ended."""
        if self._stopped:
            threading.Event().wait()


def _why_it_stopped(code: int, last_words: str) -> str:
    if code < 0:
        return f"it was killed by signal {-code}; if memory is short, by the system."
    return last_words.removeprefix("etude: ") or f"exit code {code}."
