"""Runs many jobs at whatever places there are."""

import time
from collections.abc import Callable, Sequence

from etude import stopping
from etude.errors import UserError
from etude.placing.crew import Crew
from etude.placing.job import Job, Places
from etude.placing.pace import Pace, Progress

LOOK_EVERY = 0.1
"""Seconds between two looks at what is under way."""


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
    crew, pace, waiting = Crew(places), Pace(jobs, places.number), list(jobs)
    failed: dict[str, str] = {}
    told = time.monotonic()
    with stopping.last_duty(crew.stop):
        try:
            while waiting or crew.running:
                for _ in range(min(crew.free, len(waiting))):
                    before_each()
                    crew.start(waiting[0])
                    pace.started(waiting.pop(0))
                time.sleep(LOOK_EVERY)
                for job, why in crew.ended():
                    pace.ended(job, failed=bool(why))
                    if why:
                        failed[job.name] = why
                        if not keep_going:
                            raise UserError(f"The work in {job.folder} stopped: {why}")
                if time.monotonic() - told >= report_every:
                    report(pace.progress())
                    told = time.monotonic()
        except BaseException:
            crew.stop()
            raise
    report(pace.progress())
    return failed
