"""The search: which settings are tried, and which of the best are the best once more."""

import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

from optuna.trial import FrozenTrial, Trial

from etude.errors import UserError
from etude.placing.job import Places
from etude.runs.folder import Record, RunFolder
from etude.training.presets.files import LayerForm
from etude.tuning.candidate import Candidate
from etude.tuning.config import TuneConfig
from etude.tuning.evaluation import Evaluation
from etude.tuning.space import space_of
from etude.tuning.study import JOURNAL, WHY, Study, suggested

TRIALS, CONFIRMED, DEFAULTS = "trials", "confirmed", "defaults"
"""Folders of candidates; `DEFAULTS` are the settings as they are before the search."""


class Contender(NamedTuple):
    """One of those between which the search chooses in the end."""

    name: str
    layer: LayerForm
    score: float | None
    """In the search; None of defaults that could not be trained."""
    again: float | None
    """On other seeds; None if it was not tried there, or failed."""


class Found(NamedTuple):
    """What a search has come to."""

    chosen: Contender
    contenders: list[Contender]
    trials: list[FrozenTrial]
    importances: dict[str, float]


def total_of(config: TuneConfig) -> int:
    """How many candidates a search has, the defaults among them."""
    again = min(config.confirm, config.trials)
    return config.trials + 1 + (again + 1 if again else 0)


class Search:
    """A search in a folder, from where it was left. All that it remembers is in the study's journal
    and in the folders of its trainings, so that it may be killed at any moment."""

    def __init__(
        self,
        config: TuneConfig,
        folder: RunFolder,
        places: Places,
        report: Callable[[Record], None] = lambda record: None,
    ):
        """`report` is told how many candidates are done (`updates`), in how many `steps`."""
        self._config, self._path = config, folder.path
        self._space = space_of(config)
        self._study = Study(folder.path / JOURNAL, config.seed)
        self._study.require_fit(self._space.ranges)
        self._evaluation = Evaluation(self._study, places, self._tell)
        self._report, self._told = report, -1.0
        self._before = sum(x.state.is_finished() for x in self._study.trials)
        self._started, self._steps = time.monotonic(), 0

    def run(self) -> Found:
        tried = self._evaluation.run(self._trials())
        self._before, self._steps = self._config.trials + 1, self._steps_of(tried)
        best = self._study.best(max(1, self._config.confirm))
        if not best:
            raise UserError(f"None of the trials could be finished. The last one: {self._why()}")
        again = [self._again(f"{x.number:04d}", self._layer(x)) for x in best]
        again = [self._again(DEFAULTS, LayerForm(envs=["*"])), *again]
        if self._config.confirm:
            self._evaluation.run(iter(again))
        scores = [tried[0].score, *(x.value for x in best)]
        contenders = [
            Contender(x.folder.name, x.layer, score, x.score)
            for x, score in zip(again, scores, strict=True)
        ]
        return Found(
            chosen=_best_of(contenders, confirmed=self._config.confirm > 0),
            contenders=contenders,
            trials=self._study.trials,
            importances=self._study.importances(),
        )

    def _trials(self) -> Iterator[Candidate]:
        """The defaults, the trials that had begun, and new ones, each when there is a place."""
        yield self._candidate(TRIALS, DEFAULTS, LayerForm(envs=["*"]), self._config.seed)
        for trial in self._study.under_way():
            yield self._of_trial(trial)
        while len(self._study.trials) < self._config.trials:
            yield self._of_trial(self._study.begin())

    def _of_trial(self, trial: Trial) -> Candidate:
        layer = self._space.draw(self._study.suggester(trial))
        return self._candidate(TRIALS, f"{trial.number:04d}", layer, self._config.seed, trial)

    def _layer(self, trial: FrozenTrial) -> LayerForm:
        """The settings of a finished trial."""
        return self._space.draw(lambda name, range_: suggested(trial, name, range_))

    def _again(self, name: str, layer: LayerForm) -> Candidate:
        """On other seeds than the search's."""
        return self._candidate(CONFIRMED, name, layer, self._config.seed + 1)

    def _candidate(
        self, room: str, name: str, layer: LayerForm, seed: int, trial: Trial | None = None
    ) -> Candidate:
        folder = self._path / room / name
        return Candidate(self._config, folder, layer, seed, trial)

    def _why(self) -> str:
        said = [x.user_attrs.get(WHY) for x in self._study.trials]
        return next(filter(None, reversed(said)), "it was given up.")

    def _tell(self, begun: list[Candidate]) -> None:
        done = self._before + sum(x.share for x in begun)
        if done > self._told:  # time left is inferred from what is new
            self._told = done
            steps, seconds = self._steps + self._steps_of(begun), time.monotonic() - self._started
            self._report({"updates": done, "seconds": seconds, "steps": steps})

    def _steps_of(self, begun: list[Candidate]) -> int:
        return sum(x.steps + x.steps_here() * self._config.seeds for x in begun)


def _best_of(contenders: list[Contender], confirmed: bool) -> Contender:
    """On the seeds that had no part in the search, if there were such; of equal ones the first."""
    judged = [(x.again if confirmed else x.score, x) for x in contenders]
    known = [(score, x) for score, x in judged if score is not None]
    if not known:
        raise UserError("None of the best trials, nor the defaults, could be trained once more.")
    return max(known, key=lambda pair: pair[0])[1]
