"""A run of learning to adapt, from start to end: what is asked for, its folder, what came out."""

import dataclasses
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import jax
import numpy as np
from jaxtyping import Array, Int

from etude import envs, stats
from etude.adaptation.by_gradient import ByGradient
from etude.adaptation.config import AdaptConfig
from etude.adaptation.method import AdaptState, Method, Scores, draw_tasks
from etude.adaptation.rl2 import Recurrent
from etude.adaptation.saved import read_config
from etude.core.types import Metrics
from etude.envs import JaxTask
from etude.envs.trials import as_distribution
from etude.runs import estimates
from etude.runs.figures import draw_band, figure_file, tidy
from etude.runs.folder import RunFolder
from etude.runs.run import Outcome, Record, Result
from etude.runs.storage import sha256_of
from etude.training.config import updates_per_line
from etude.training.iteration import OBSERVATION, repeat, seed_keys
from etude.training.side_by_side import ByUpdate, SideBySide

TRAIN, TEST, FRESH = 2**31 + 1, 2**31 + 2, 2**31 + 3
"""Folded into the seed's key for tasks to learn from, to test on, and to judge the result by. The
numbers of the seeds, which are folded in as well, do not go so far."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class AdaptResult(Result):
    """What learning to adapt has come to."""

    config: AdaptConfig
    policies: Any
    """Each leaf has the seeds as its first axis."""


def make_method(tasks: JaxTask, config: AdaptConfig) -> Method:
    return (ByGradient if config.by_gradient else Recurrent)(tasks, config)


@dataclasses.dataclass(frozen=True)
class AdaptRun(SideBySide[AdaptState, AdaptResult]):
    """Policies that learn to adapt, side by side, each from its own seed."""

    kind: ClassVar[str] = "adapt"
    impossible: ClassVar[str] = "{algo} cannot be trained on {tasks}"

    config: AdaptConfig
    method: Method

    @classmethod
    def untraced(cls, config: AdaptConfig) -> "AdaptRun":
        config = config.filled()
        task = envs.make_jax(config.tasks)
        as_distribution(task.env, config.tasks)
        return cls(config, make_method(task, config))

    @classmethod
    def reopened(cls, folder: RunFolder, end: int | None = None) -> "AdaptRun":
        return cls.create(read_config(folder, end))

    @property
    def updates(self) -> int:
        return self.method.updates

    @property
    def log_every(self) -> int:
        return self.config.log_every or updates_per_line(self.updates)

    def steps_after(self, updates: int) -> int:
        return updates * self.method.steps_per_update

    def given(self) -> tuple[Any, Any]:
        return self._pools

    def given_form(self) -> tuple[Any, Any]:
        return jax.eval_shape(self._draw_pools)

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

    def _init(self) -> AdaptState:
        return jax.vmap(self.method.init)(seed_keys(self.config.seed, self.config.seeds))

    def updated(
        self, given: tuple[Any, Any], state: AdaptState, number: Int[Array, ""]
    ) -> tuple[AdaptState, Metrics]:
        iterate = lambda state: self.method.iterate(state, given)  # noqa: E731
        return repeat(iterate, state, number, self.log_every)

    def record(self, state: AdaptState, metrics: ByUpdate, done: int) -> Record:
        """Means over the updates since the last record; returns on test tasks by seed."""
        by_seed = {name: x.mean(axis=0) for name, x in metrics.items() if name != OBSERVATION}
        return {
            "steps": self.steps_after(done),
            "return": float(by_seed["test_after"].mean()),
            "returns": by_seed["test_after"].tolist(),
            "returns_before": by_seed["test_before"].tolist(),
            **{name: float(x.mean()) for name, x in by_seed.items()},
        }

    def learned(self, state: AdaptState) -> Any:
        return state.policy

    @property
    def name(self) -> str:
        return f"{self.config.algo}-{self.config.tasks}"

    def default_settings(self) -> Record:
        return AdaptConfig(algo=self.config.algo).filled().settings()

    def describe(self, record: Record) -> str:
        return (
            f"{record['steps']:,} of {self.steps_after(self.updates):,} steps · "
            f"return on test tasks {record['test_before']:.3g} → {record['test_after']:.3g}"
        )

    def summary(self, outcome: Outcome[AdaptState]) -> dict[str, Any]:
        found = {
            "algo": self.config.algo,
            "tasks": self.config.tasks,
            "seeds": self.config.seeds,
            **self.work_done(outcome),
            "policy_sha256": sha256_of(outcome.state.policy),
        }
        if outcome.done < self.updates:
            return found
        return found | judged(self, outcome.state.policy, JUDGED_ON)

    def result(self, outcome: Outcome[AdaptState], summary: dict[str, Any]) -> AdaptResult:
        return AdaptResult(
            done=outcome.done,
            curve=outcome.curve,
            summary=summary,
            config=self.config,
            policies=outcome.state.policy,
        )

    def draw(self, folder: RunFolder) -> None:
        plot(folder.metrics(), folder.path / "curve.png")

    def judge(self, policies: Any, number: int, again: int = 0) -> Scores:
        """Each seed's policy on fresh tasks of its own, which had no part in the run (seeds ×
        tasks); on others for another number `again`."""
        root = jax.random.fold_in(jax.random.key(self.config.seed), FRESH)
        keys = jax.random.split(jax.random.fold_in(root, again), self.config.seeds)

        def judge(policy, key):
            task_key, play_key = jax.random.split(key)
            tasks = draw_tasks(self.method.env, task_key, number)
            return self.method.score(policy, tasks, play_key)

        program = jax.jit(jax.vmap(judge)).lower(policies, keys)
        estimates.require_room(estimates.needs_of(program).memory, f"--test-tasks {number}")
        return jax.device_get(program.compile()(policies, keys))


JUDGED_ON = 256
"""Fresh tasks that the result of a run is judged by."""


def read_folder(folder: RunFolder) -> AdaptRun:
    """A run whose policies are to be used."""
    return AdaptRun.untraced(read_config(folder))


def kept_policies(work: AdaptRun, folder: RunFolder) -> Any:
    """Those of the last checkpoint. Nothing in the folder changes, so that it may be running."""
    return folder.kept(work.shapes().policy, "policy")


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
