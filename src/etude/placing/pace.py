"""How far many jobs are, and how long the rest will take."""

import dataclasses
import time
from collections.abc import Callable, Sequence

from etude.placing.job import Job

ENOUGH = 0.02
"""The share of a job that must have been done before one can tell how long it takes."""


@dataclasses.dataclass(frozen=True)
class Progress:
    """Of all jobs together."""

    share: float
    """From 0 to 1, in terms of time."""
    seconds_left: float | None
    """None while nothing is known of it."""
    running: tuple[str, ...]
    done: int
    failed: int
    total: int


@dataclasses.dataclass
class _Course:
    """What is known of a job's time."""

    job: Job
    before: float
    """The share that was done before it was started here."""
    started: float | None = None
    ended: float | None = None
    failed: bool = False

    def share(self) -> float:
        if self.ended is not None:
            return 1.0
        return self.before if self.started is None else max(self.before, self.job.share())

    def length(self, share: float, now: float) -> float | None:
        """How long all of it takes, as far as one can tell from what was done here."""
        if self.started is None or self.failed:
            return None
        took = (now if self.ended is None else self.ended) - self.started
        return took / (share - self.before) if share - self.before > ENOUGH else None


class Pace:
    """Takes note of when jobs start and end."""

    def __init__(
        self, jobs: Sequence[Job], places: int, clock: Callable[[], float] = time.monotonic
    ):
        self._clock, self._places = clock, places
        self._courses = {job.name: _Course(job, job.share()) for job in jobs}

    def started(self, job: Job) -> None:
        self._courses[job.name].started = self._clock()

    def ended(self, job: Job, failed: bool = False) -> None:
        course = self._courses[job.name]
        course.ended, course.failed = self._clock(), failed

    def progress(self) -> Progress:
        courses, now = list(self._courses.values()), self._clock()
        shares = [course.share() for course in courses]
        lengths = self._lengths(shares, now)
        left = [length * (1.0 - share) for length, share in zip(lengths, shares, strict=True)]
        all_of_it = sum(lengths)
        known = all_of_it > 0.0
        return Progress(
            share=1.0 - sum(left) / all_of_it if known else sum(shares) / max(1, len(shares)),
            # No job is done at two places: the longest one may be what all wait for.
            seconds_left=max(sum(left) / self._places, max(left)) if known else None,
            running=tuple(x.job.name for x in courses if x.started is not None and x.ended is None),
            done=sum(x.ended is not None and not x.failed for x in courses),
            failed=sum(x.failed for x in courses),
            total=len(courses),
        )

    def _lengths(self, shares: list[float], now: float) -> list[float]:
        """Of each job; those of which nothing is known are taken to be like others."""
        pairs = zip(self._courses.values(), shares, strict=True)
        known = {course.job.name: course.length(share, now) for course, share in pairs}
        kinds: dict[str, list[float]] = {}
        for course in self._courses.values():
            if (length := known[course.job.name]) is not None:
                kinds.setdefault(course.job.like, []).append(length)
        every = [length for lengths in kinds.values() for length in lengths]

        def of(course: _Course) -> float:
            own = known[course.job.name]
            alike = kinds.get(course.job.like, every)
            return own if own is not None else sum(alike) / max(1, len(alike))

        return [of(course) for course in self._courses.values()]
