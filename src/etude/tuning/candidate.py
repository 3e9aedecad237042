"""A candidate: settings that are trained on one environment after the other, and scored."""

import dataclasses
import math
import time
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from etude import plugins
from etude.errors import UserError
from etude.placing.crew import SAVING
from etude.placing.job import Job
from etude.runs.arrays import as_json, write_atomically
from etude.runs.folder import CHECKPOINT, CONFIG, Record, RunFolder
from etude.runs.reading import is_file
from etude.settings import as_text, flag, split_spec
from etude.training.presets.files import FORMAT, LAPTOP, LayerForm, PresetForm, held_by, path_of
from etude.tuning.config import Goal, TuneConfig
from etude.tuning.objective import RUNGS, curve_score

if TYPE_CHECKING:
    from optuna.trial import Trial

SETTINGS = "settings.json"
"""In the folder of a candidate: its settings, as a preset."""


@dataclasses.dataclass
class Candidate:
    """Settings in a folder of their own, with a training run per environment beside them."""

    config: TuneConfig
    folder: Path
    layer: LayerForm
    seed: int
    trial: "Trial | None" = None
    """Of the study, if it is a part of that."""
    scores: list[float] = dataclasses.field(default_factory=list)
    """Of the environments that are done."""
    steps: int = 0
    """That all seeds took on them."""
    next_rung: int = 0
    """Of those on the present environment, the first that the study has not been told of."""
    failure: str = ""
    """Why it was not finished, if it could not be."""
    pruned: bool = False

    def write(self) -> None:
        """Puts the settings down, for the processes that train them, and for readers."""
        preset = self.config.preset
        base = [] if preset == LAPTOP else held_by(path_of(preset))["layers"]
        fixed = LayerForm(envs=["*"], training=self.config.fixed)
        rule, _ = split_spec(self.config.rule)
        form = PresetForm(format=FORMAT, rule=rule, layers=[*base, fixed, self.layer])
        self.folder.mkdir(parents=True, exist_ok=True)
        text = as_json(form, indent=2) + b"\n"
        write_atomically(self.folder / SETTINGS, lambda file: file.write(text))

    @property
    def goal(self) -> Goal:
        """That which is next, or under way."""
        return self.config.goals[len(self.scores)]

    @property
    def run(self) -> RunFolder:
        """The training on that environment."""
        safe = "".join(c if c.isalnum() or c in "-_=." else "-" for c in self.goal.env)
        return RunFolder(self.folder / f"{len(self.scores)}-{safe}"[:80])

    @property
    def over(self) -> bool:
        return self.pruned or bool(self.failure) or len(self.scores) == len(self.config.goals)

    @property
    def score(self) -> float | None:
        """The mean over all environments; None if it was not finished."""
        finished = self.over and not self.pruned and not self.failure
        return sum(self.scores) / len(self.scores) if finished else None

    @property
    def share(self) -> float:
        """How much of it is done."""
        if self.over:
            return 1.0
        return (len(self.scores) + self._share_here()) / len(self.config.goals)

    def _share_here(self) -> float:
        return min(1.0, self.steps_here() / self.config.steps)

    def steps_here(self) -> int:
        """Steps that each seed has taken on the present environment."""
        records = [] if self.over else self._records()
        return records[-1]["steps"] if records else 0

    def _records(self) -> list[Record]:
        return self.run.metrics() if is_file(self.run.path / CONFIG) else []

    def new_rungs(self) -> Iterator[tuple[int, float]]:
        """The rungs that were passed since this was last asked, numbered through all environments,
        and the score as far as it was known there. What is to come counts as 0, so that the score
        does not fall from one environment to the next."""
        records, steps = self._records(), self.config.steps
        passed = records[-1]["steps"] * RUNGS // steps if records else 0
        so_far, total, first = sum(self.scores), len(self.config.goals), len(self.scores) * RUNGS
        for rung in range(self.next_rung, min(passed, RUNGS - 1) + 1):
            self.next_rung = rung + 1
            score = curve_score(records, rung * steps / RUNGS) if rung else self.goal.random
            if score is not None and first + rung:
                yield first + rung, (so_far + self.goal.weigh(score)) / total

    def take_score(self) -> None:
        """After a training that is finished. Its checkpoint is not needed any more."""
        score, steps = curve_score(self._records(), math.inf), self.steps_here()
        self.drop_checkpoint()
        if score is None:
            self.failure = f"No episode ended on {self.goal.env}."
            return
        self.steps, self.next_rung = self.steps + steps * self.config.seeds, 0
        self.scores.append(self.goal.weigh(score))

    def drop_checkpoint(self) -> None:
        """Of a training that does not go on: there may be hundreds."""
        (self.run.path / CHECKPOINT).unlink(missing_ok=True)

    def is_trained(self) -> bool:
        """On the present environment."""
        return is_file(self.run.path / CONFIG) and self.run.summary() is not None

    @cached_property
    def _trust(self) -> tuple[str, ...]:
        """Whoever may search with code of the user's may train with it."""
        named = [dataclasses.asdict(self.config), [goal.env for goal in self.config.goals]]
        return ("--trust",) if plugins.code_in(named) else ()

    def job(self) -> Job:
        """The training on the present environment, from where it was left."""
        run, config = self.run.path, self.config
        if is_file(run / CONFIG):
            _wait_for(self.run)
            command = ("train", "--resume", str(run), *self._trust)
        else:
            command = ("train", "--env", self.goal.env, "--rule", config.rule, "--out", str(run))
            command += ("--preset", str(self.folder / SETTINGS), "--steps", str(config.steps))
            command += ("--seeds", str(config.seeds), "--seed", str(self.seed), *self._trust)
            for setting, value in self.goal.settings.items():
                command += (flag(setting), as_text(value))
        name = f"{self.folder.name} on {self.goal.env}"
        return Job(name, command, self.folder, self.is_trained, self._share_here)


def _wait_for(run: RunFolder) -> None:
    """The process of a search that was killed may still be saving what it has."""
    until = time.monotonic() + SAVING
    while True:
        try:
            with run.locked():
                return
        except UserError:
            if time.monotonic() > until:
                raise
            time.sleep(0.2)
