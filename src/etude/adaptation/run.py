"""A run of learning to adapt, from start to end: what is asked for, its folder, what came out."""

import dataclasses
import os
import sys
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import jax
import numpy as np

from etude import envs, stats
from etude.adaptation.algorithms import make_method
from etude.adaptation.config import AdaptConfig
from etude.adaptation.method import AdaptState, Method, Scores, draw_tasks
from etude.adaptation.saved import read_config
from etude.envs.trials import TaskDistribution
from etude.errors import UserError
from etude.runs import loop
from etude.runs.figures import draw_band, figure_file, tidy
from etude.runs.folder import IMPORT_FROM, RunFolder
from etude.runs.loop import Record
from etude.runs.storage import from_arrays, sha256_of
from etude.training.iteration import repeat, seed_keys

TRAIN, TEST, FRESH = 2**31 + 1, 2**31 + 2, 2**31 + 3
"""Folded into the seed's key for tasks to learn from, to test on, and to judge the result by. The
numbers of the seeds, which are folded in as well, do not go so far."""


@dataclasses.dataclass(frozen=True)
class AdaptRun(loop.Work[AdaptState]):
    """A run. Those that `create` makes have had all their mistakes surface, before anything is
    compiled."""

    config: AdaptConfig
    method: Method

    @staticmethod
    def create(config: AdaptConfig) -> "AdaptRun":
        run = AdaptRun.untraced(config)
        loop.require_traceable(run, f"{config.algo} cannot be trained on {config.tasks}")
        return run

    @staticmethod
    def untraced(config: AdaptConfig) -> "AdaptRun":
        """Tracing takes seconds, which are lost where a run is only to be read."""
        config = config.filled()
        task = envs.make(config.tasks)
        if not isinstance(task.env, TaskDistribution):
            raise UserError(
                f"{config.tasks} is one task, not a distribution of tasks: it lacks `sample_task` "
                "or `horizon`."
            )
        return AdaptRun(config, make_method(task, config))

    @property
    def updates(self) -> int:
        return self.method.updates

    @property
    def log_every(self) -> int:
        return self.config.log_every or max(1, self.updates // 100)

    def init(self) -> AdaptState:
        return jax.jit(self._init)()

    def shapes(self) -> AdaptState:
        return jax.eval_shape(self._init)

    def trace(self) -> None:
        self._traced  # noqa: B018

    def prepare(self) -> None:
        self._compiled  # noqa: B018

    def advance(self, state: AdaptState, done: int, number: int) -> tuple[AdaptState, Any]:
        state, metrics = self._compiled(state, self._pools, np.int32(number))
        metrics = {name: x[:, :number].T for name, x in jax.device_get(metrics).items()}
        for name, x in metrics.items():
            if not np.isfinite(x).all():
                raise UserError(
                    f"Training stopped after update {done + number}: {name.replace('_', ' ')} is "
                    "not finite."
                )
        return state, metrics

    def record(self, state: AdaptState, metrics: dict[str, np.ndarray], done: int) -> Record:
        """Means over the updates since the last record; returns on test tasks by seed."""
        by_seed = {name: x.mean(axis=0) for name, x in metrics.items()}
        return {
            "steps": done * self.method.steps_per_update,
            "return": float(by_seed["test_after"].mean()),
            "returns": by_seed["test_after"].tolist(),
            "returns_before": by_seed["test_before"].tolist(),
            **{name: float(x.mean()) for name, x in by_seed.items()},
        }

    def learned(self, state: AdaptState) -> Any:
        return state.policy

    def judge(self, policies: Any, number: int, again: int = 0) -> Scores:
        """Each seed's policy on fresh tasks of its own, which had no part in the run (seeds ×
        tasks); on others for another number `again`."""
        root = jax.random.fold_in(jax.random.key(self.config.seed), FRESH)
        keys = jax.random.split(jax.random.fold_in(root, again), self.config.seeds)

        def judge(policy, key):
            task_key, play_key = jax.random.split(key)
            tasks = draw_tasks(self.method.env, task_key, number)
            return self.method.score(policy, tasks, play_key)

        return jax.device_get(jax.jit(jax.vmap(judge))(policies, keys))

    def _init(self) -> AdaptState:
        return jax.vmap(self.method.init)(seed_keys(self.config.seed, self.config.seeds))

    @cached_property
    def _pools(self) -> tuple[Any, Any]:
        return jax.jit(self._draw_pools)()

    def _draw_pools(self) -> tuple[Any, Any]:
        """Tasks to learn from (none if they are drawn as one goes) and tasks to test on."""
        root, config = jax.random.key(self.config.seed), self.config

        def draw(which: int, number: int) -> Any:
            return draw_tasks(self.method.env, jax.random.fold_in(root, which), number)

        train = draw(TRAIN, config.train_tasks) if config.train_tasks else None
        return train, draw(TEST, config.test_tasks)

    @cached_property
    def _traced(self) -> Any:
        def piece(state, pools, number):
            return repeat(
                lambda state: self.method.iterate(state, pools), state, number, self.log_every
            )

        program = jax.jit(jax.vmap(piece, in_axes=(0, None, None)), donate_argnums=0)
        pools = jax.eval_shape(self._draw_pools)
        return program.lower(self.shapes(), pools, jax.ShapeDtypeStruct((), np.int32))

    @cached_property
    def _compiled(self) -> Any:
        return self._traced.compile()


def new_folder(run: AdaptRun, out: str | None) -> RunFolder:
    folder = RunFolder.create(out, f"{run.config.algo}-{run.config.tasks}")
    folder.write_config({**dataclasses.asdict(run.config), IMPORT_FROM: os.getcwd()})
    return folder


def open_folder(path: str, steps: int | None = None) -> tuple[AdaptRun, RunFolder]:
    """A run to be continued, by default to its own end, or to a later one."""
    config, folder = read_config(path, steps)
    _import_from(folder)
    return AdaptRun.create(config), folder


def read_folder(path: str) -> tuple[AdaptRun, RunFolder]:
    """A run whose policies are to be used."""
    config, folder = read_config(path)
    _import_from(folder)
    return AdaptRun.untraced(config), folder


def _import_from(folder: RunFolder) -> None:
    """Environments named module:Class are where they were when the run was started."""
    sys.path.insert(0, str(folder.config().get(IMPORT_FROM, os.getcwd())))


JUDGED_ON = 256
"""Fresh tasks that the result of a run is judged by."""


def run(work: AdaptRun, folder: RunFolder | None = None, **options: Any) -> dict[str, Any]:
    """Runs to the end, or from the folder's last checkpoint; `options` are those of `loop.run`."""
    if folder:
        folder.extend("steps", work.config.steps or 0)
    outcome = loop.run(work, folder, **options)
    summary = {
        "algo": work.config.algo,
        "tasks": work.config.tasks,
        "seeds": work.config.seeds,
        "environment_steps": outcome.done * work.method.steps_per_update,
        "updates": outcome.done,
        "seconds": outcome.curve[-1]["seconds"] if outcome.curve else 0.0,
        "steps_per_second": round(outcome.steps_per_second * work.config.seeds, 1),
        "policy_sha256": sha256_of(outcome.state.policy),
    }
    if outcome.done >= work.updates:
        summary |= judged(work, outcome.state.policy, JUDGED_ON)
        if folder:
            folder.write_summary(summary)
    return summary


def kept_policies(work: AdaptRun, folder: RunFolder) -> Any:
    """Those of the last checkpoint. Nothing in the folder changes, so that it may be running."""
    if not folder.has_checkpoint:
        raise UserError(f"{folder.path} holds no checkpoint yet.")
    what = f"The checkpoint in {folder.path}"
    return from_arrays(work.shapes().policy, folder.arrays("policy"), what)


def judged(work: AdaptRun, policies: Any, number: int, again: int = 0) -> dict[str, Any]:
    """Mean returns before and after adapting to fresh tasks, with intervals over seeds or, of one
    seed, over tasks."""
    scores = work.judge(policies, number, again)
    found: dict[str, Any] = {"fresh_tasks": number}
    for name in ("before", "after"):
        by_seed = np.asarray(getattr(scores, name), float)
        means = by_seed.mean(axis=1)
        mean, low, high = map(float, stats.t_interval(means))
        if len(means) == 1:
            low, high = stats.bootstrap_interval(list(by_seed))
        found[name] = {"mean": mean, "low": low, "high": high, "per_seed": means.tolist()}
    return found


def plot(records: Sequence[Record], path: Path) -> None:
    """Returns on test tasks, before adapting to them and after."""
    steps = np.array([r["steps"] for r in records], float)
    with figure_file(path) as ax:
        for label, name in (("before adapting", "returns_before"), ("after", "returns")):
            draw_band(ax, steps, np.array([r[name] for r in records], float), label)
        tidy(ax, "environment steps", "return on test tasks")
