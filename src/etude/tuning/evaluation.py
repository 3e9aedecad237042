"""Trains candidates, as many at once as there are places, and gives up those without hope."""

import time
from collections.abc import Callable, Iterator

from etude import stopping
from etude.placing.crew import Crew
from etude.placing.job import Job, Places
from etude.tuning.candidate import Candidate
from etude.tuning.study import Study

LOOK_EVERY = 0.2
"""Seconds between two looks at what is under way."""


class Evaluation:
    """Of candidates, of which those that belong to the study are told to it as they go."""

    def __init__(
        self, study: Study, places: Places, tell: Callable[[list[Candidate]], None]
    ) -> None:
        """`tell` is called now and then with those that have begun."""
        self._study, self._crew, self._tell = study, Crew(places), tell
        self._under_way: dict[str, tuple[Job, Candidate]] = {}

    def run(self, candidates: Iterator[Candidate]) -> list[Candidate]:
        """All of them, each taken when there is a place for it: it may depend on those before."""
        begun: list[Candidate] = []
        with stopping.last_duty(self._crew.stop):
            try:
                while self._fill_places(candidates, begun):
                    time.sleep(LOOK_EVERY)
                    self._look()
                    self._tell(begun)
            except BaseException:
                self._crew.stop()
                raise
        return begun

    def _fill_places(self, candidates: Iterator[Candidate], begun: list[Candidate]) -> bool:
        """Whether anything is under way."""
        while self._crew.free and (candidate := next(candidates, None)) is not None:
            candidate.write()
            begun.append(candidate)
            self._go_on(candidate)
        return bool(self._under_way)

    def _go_on(self, candidate: Candidate) -> None:
        """To its next training, or to its end."""
        while not candidate.over and candidate.is_trained():
            candidate.take_score()
            self._watch(candidate)
        if candidate.over:
            self._study.end(candidate)
            return
        job = candidate.job()
        self._crew.start(job)
        self._under_way[job.name] = (job, candidate)

    def _look(self) -> None:
        ended = {job.name: why for job, why in self._crew.ended()}
        for name, (job, candidate) in list(self._under_way.items()):
            self._watch(candidate)
            if name in ended:
                candidate.failure = "" if candidate.pruned else ended[name]
            elif candidate.pruned:
                self._crew.dismiss(job)
                candidate.drop_checkpoint()
            else:
                continue
            del self._under_way[name]
            self._go_on(candidate)

    def _watch(self, candidate: Candidate) -> None:
        """Tells the study of the rungs that a trial has passed, in their order."""
        if candidate.trial is None or candidate.over:
            return
        for rung, score in candidate.new_rungs():
            if self._study.is_hopeless(candidate.trial, rung, score):
                candidate.pruned = True
                return
