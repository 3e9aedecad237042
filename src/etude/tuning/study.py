"""The memory of a search: a study of Optuna's, kept as a journal of JSON in the run folder."""

import logging
import os
import warnings
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import optuna
from optuna.pruners import MedianPruner
from optuna.samplers import TPESampler
from optuna.storages import JournalStorage
from optuna.storages.journal import BaseJournalBackend
from optuna.trial import BaseTrial, FrozenTrial, Trial, TrialState

from etude.errors import UserError, disk_errors, reason
from etude.ranges import Choice, Range, Ranges
from etude.runs.arrays import as_json
from etude.runs.inside import open_inside
from etude.runs.reading import (
    LINE_LIMITS,
    METRICS_BYTES,
    damaged,
    is_file,
    misfit,
    parse_json,
    read_bytes,
)
from etude.settings import as_text
from etude.tuning.candidate import Candidate

JOURNAL = "study.jsonl"
WHY = "why"
"""Under this name, a trial that failed says why."""
STARTUP_TRIALS = 8
"""So many are drawn at random, and none of them is pruned, before others are judged by them."""


class Journal(BaseJournalBackend):
    """One writer, who holds the lock of the run folder; nothing in it is pickled."""

    def __init__(self, path: Path):
        self._path = path
        self._logs: list[dict[str, Any]] = []
        if is_file(path):
            data = read_bytes(path, METRICS_BYTES)
            # A search killed while it wrote may leave its last line unfinished.
            whole = data[: data.rfind(b"\n") + 1]
            self._logs = [
                parse_json(line, f"Line {number} of {path}", LINE_LIMITS)
                for number, line in enumerate(whole.splitlines(), 1)
            ]
            if len(whole) < len(data):
                with open_inside(path, os.O_RDWR) as file:
                    file.truncate(len(whole))

    def read_logs(self, log_number_from: int) -> Iterator[dict[str, Any]]:
        yield from self._logs[log_number_from:]

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        text = b"".join(as_json(log) + b"\n" for log in logs)
        with (
            disk_errors(f"Cannot write to {self._path}"),
            open_inside(self._path, os.O_WRONLY | os.O_APPEND) as file,
        ):
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        self._logs += logs


class Study:
    """The trials of a search. With one process at a time, what it suggests and prunes depends on
    nothing but the seed and the scores it was told, however often it was interrupted."""

    def __init__(self, path: Path, seed: int):
        optuna.logging.set_verbosity(logging.WARNING)
        pruner = MedianPruner(n_startup_trials=STARTUP_TRIALS, n_warmup_steps=2, n_min_trials=4)
        try:
            self._study = optuna.create_study(
                storage=JournalStorage(Journal(path)),
                study_name="tune",
                direction="maximize",
                load_if_exists=True,
                pruner=pruner,
            )
            self.trials  # noqa: B018
        except UserError:
            raise
        except Exception as error:  # someone may have mangled it in any way
            raise damaged(path, reason(error).rstrip(".")) from None
        self._path, self._seed = path, seed

    def require_fit(self, ranges: Ranges) -> None:
        """Refuses trials that are not of a search in these ranges: their settings could not be
        drawn once more."""
        for trial in self.trials:
            try:
                with warnings.catch_warnings(action="error"):  # Optuna warns of what does not fit
                    fits = _fits(trial, ranges)
            except (LookupError, TypeError, ValueError, RuntimeError, Warning):
                fits = False
            if not fits:
                raise damaged(self._path, f"trial {trial.number} is not of this search")

    @property
    def trials(self) -> list[FrozenTrial]:
        return self._study.get_trials(deepcopy=False)

    def under_way(self) -> list[Trial]:
        """Those that had begun when the search was interrupted."""
        running = [x for x in self.trials if x.state == TrialState.RUNNING]
        return [Trial(self._study, x._trial_id) for x in running]

    def begin(self) -> Trial:
        return self._study.ask()

    def suggester(self, trial: Trial) -> Callable[[str, Range], Any]:
        """What draws settings for a trial; the same ones if it is asked again."""

        def suggest(name: str, range_: Range) -> Any:
            # A generator per trial and setting, so that none depends on what was drawn before.
            seed = zlib.crc32(f"{self._seed} {trial.number} {name}".encode())
            self._study.sampler = TPESampler(n_startup_trials=STARTUP_TRIALS, seed=seed)
            return suggested(trial, name, range_)

        return suggest

    def is_hopeless(self, trial: Trial, rung: int, score: float) -> bool:
        """Whether a trial with this score at a rung is worse than most others were there."""
        if rung not in self.trials[trial.number].intermediate_values:
            trial.report(score, rung)
        return bool(trial.should_prune())

    def end(self, candidate: Candidate) -> None:
        """Takes note of how a trial ended."""
        trial = candidate.trial
        if trial is None:
            return
        if candidate.failure:
            trial.set_user_attr(WHY, candidate.failure)
            self._study.tell(trial, state=TrialState.FAIL)
        elif candidate.pruned:
            self._study.tell(trial, state=TrialState.PRUNED)
        else:
            self._study.tell(trial, candidate.score)

    def best(self, number: int) -> list[FrozenTrial]:
        """The best ones, the best first; of equal ones the first."""
        done = [x for x in self.trials if x.state == TrialState.COMPLETE]
        return sorted(done, key=lambda x: -_score(x))[:number]

    def importances(self) -> dict[str, float]:
        """How much of what sets good trials apart is due to each setting (PED-ANOVA, arXiv
        2304.10255), the most important first; none if there are too few trials to tell."""
        done = [x for x in self.trials if x.state == TrialState.COMPLETE]
        if len(done) < STARTUP_TRIALS or len({x.value for x in done}) < 2:
            return {}
        evaluator = optuna.importance.PedAnovaImportanceEvaluator()
        return dict(optuna.importance.get_param_importances(self._study, evaluator=evaluator))


def _fits(trial: FrozenTrial, ranges: Ranges) -> bool:
    """Whether a trial may be of a search in these ranges; if not, it may also raise an error."""
    told = [*trial.intermediate_values.values(), trial.value or 0.0]
    for name in trial.params:
        suggested(trial, name, ranges[name])
    is_told = trial.value is not None or trial.state != TrialState.COMPLETE
    return (
        is_told and not misfit(told, list[float]) and isinstance(trial.user_attrs.get(WHY, ""), str)
    )


def _score(trial: FrozenTrial) -> float:
    assert trial.value is not None
    return trial.value


def suggested(trial: BaseTrial, name: str, range_: Range) -> Any:
    """A value from a range. Numbers have three digits, which is more than one can tell apart."""
    if isinstance(range_, Choice):
        values = {as_text(x): x for x in range_.values}
        return values[trial.suggest_categorical(name, list(values))]
    if isinstance(range_.low, int) and isinstance(range_.high, int):
        return trial.suggest_int(name, range_.low, range_.high, log=range_.log)
    return float(f"{trial.suggest_float(name, range_.low, range_.high, log=range_.log):.3g}")
