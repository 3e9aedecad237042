"""Long trainings that experiments share: run folders of their own, found again by their settings.

Each seed is an `etude adapt` of its own, one on each core: products as small as these do not gain
from more, and lose by being done for several seeds at once. A training that was cut short goes on
where it was, and one that is done by the same code with the same settings is not done again.
"""

import dataclasses
import hashlib
import itertools
import json
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import PyTree

from etude.adaptation.config import AdaptConfig
from etude.adaptation.run import AdaptRun, kept_policies
from etude.errors import UserError
from etude.experiments.base import APART, Say
from etude.placing.job import Job
from etude.placing.pace import Progress
from etude.placing.places import places
from etude.placing.running import run_jobs
from etude.runs.figures import column
from etude.runs.folder import CONFIG, RunFolder
from etude.runs.lifecycle import start
from etude.text import duration

SAY_EVERY = 60.0
"""Seconds between two lines of progress."""


class Training(NamedTuple):
    """A run of one seed, and where it is."""

    run: AdaptRun
    folder: RunFolder

    @property
    def policies(self) -> PyTree:
        return kept_policies(self.run, self.folder)

    @property
    def share(self) -> float:
        """How much of it is done."""
        return self.folder.updates_done / self.run.updates

    @property
    def job(self) -> Job:
        path = self.folder.path
        return Job(
            name=str(path),
            command=("adapt", "--resume", str(path)),
            folder=path,
            is_done=lambda: self.folder.summary() is not None,
            share=lambda: self.share,
            like=self.run.config.algo,
        )


@dataclasses.dataclass(frozen=True)
class Trained:
    """What was trained under the same settings, once with each seed."""

    parts: list[Training]

    @property
    def config(self) -> AdaptConfig:
        return self.parts[0].run.config

    @property
    def steps(self) -> int:
        """Of each seed."""
        run = self.parts[0].run
        return run.updates * run.method.steps_per_update

    def curve(self) -> tuple[np.ndarray, np.ndarray]:
        """Steps, and the return on test tasks after adapting, a column for each seed."""
        records = [part.folder.metrics() for part in self.parts]
        points = [(column(x, "steps"), column(x, "return")) for x in records]
        first, last = (max(x[i] for x, _ in points) for i in (0, -1))
        steps = np.linspace(first, last, min(len(x) for x, _ in points))
        return steps, np.stack([np.interp(steps, *line) for line in points], axis=1)

    def judge(self, number: int) -> tuple[np.ndarray, np.ndarray]:
        """Mean returns on fresh tasks before adapting and after, of each seed."""
        scores = [part.run.judge(part.policies, number) for part in self.parts]
        before, after = ([x.before.mean() for x in scores], [x.after.mean() for x in scores])
        return np.array(before, float), np.array(after, float)

    def judge_untrained(self, number: int) -> np.ndarray:
        """After adapting, of policies that have learned nothing: what adaptation alone is worth."""
        scores = [part.run.judge(part.run.init().policy, number) for part in self.parts]
        return np.array([x.after.mean() for x in scores], float)


def train_all(configs: dict[str, AdaptConfig], say: Say) -> dict[str, Trained]:
    """All of the trainings, by label."""
    found = {label: Trained(_find(config)) for label, config in configs.items()}
    for label, trained in found.items():
        done = sum(part.folder.summary() is not None for part in trained.parts)
        where = ", ".join(str(part.folder.path) for part in trained.parts)
        seeds = f"{len(trained.parts)} seeds, {done} of them done before"
        say(f"{label}: {trained.steps:,} steps, {seeds} → {where}")
    by_seed = zip(*(trained.parts for trained in found.values()), strict=True)
    parts = itertools.chain.from_iterable(by_seed)
    _run_all([part for part in parts if part.folder.summary() is None], say)
    say("All training is done; now it is judged, on fresh tasks.")
    return found


def _find(config: AdaptConfig) -> list[Training]:
    """The trainings of each of the config's seeds, which may be done, begun, or new."""
    found, first = [], config.seed * APART
    for seed in range(first, first + config.seeds):
        run = AdaptRun.untraced(dataclasses.replace(config, seed=seed, seeds=1))
        settings = json.dumps({"code": code(), **run.settings()}, sort_keys=True)
        digest = hashlib.sha256(settings.encode()).hexdigest()[:8]
        path = f"runs/{config.algo}-{config.tasks.replace(':', '-')}-{digest}"
        begun = Path(path, CONFIG).is_file()
        folder = RunFolder.open(path) if begun else start(run, path, works_here=False)
        found.append(Training(run, folder))
    return found


def code() -> str:
    """Of what a training's numbers depend on beside its settings: the modules it uses, and what
    they use of others."""
    import etude

    root = Path(etude.__path__[0])
    files = {path for room in ROOMS.split() for path in root.glob(f"{room}/*.py")}
    files |= {root / f"{name}.py" for name in MODULES.split()}
    files -= {root / "adaptation" / f"{name}.py" for name in OTHER.split()}
    versions = " ".join(f"{name} {version(name)}" for name in LIBRARIES.split())
    texts = [path.read_bytes() for path in sorted(files)]
    return hashlib.sha256(b"\0".join([versions.encode(), *texts])).hexdigest()


ROOMS = "core acting adaptation envs training"
MODULES = "meta/gradient meta/problem rules/linear_baseline rules/policy_gradient rules/ppo"
OTHER = "classics saved watch"
"""Of `adaptation`, what no training uses."""
LIBRARIES = "jax jaxlib optax equinox gymnax"


def _run_all(trainings: list[Training], say: Say) -> None:
    """Each in a process of its own, as many at once as there are cores. If one fails, all stop."""
    planned = code()

    def require_same_code() -> None:
        if code() != planned:
            raise UserError("Etude's code was changed while it was training.")

    def tell(progress: Progress) -> None:
        if progress.seconds_left:
            left = duration(progress.seconds_left)
            say(f"{progress.share:.0%} of the training is done, about {left} left.")

    run_jobs(
        [training.job for training in trainings],
        places(),
        before_each=require_same_code,
        report=tell,
        report_every=SAY_EVERY,
    )
