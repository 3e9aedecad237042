"""A training run from start to end: what is asked for, the folder it lives in, what came out."""

import dataclasses
import os
import sys
from functools import cached_property
from typing import Any

import jax
import numpy as np

from etude import envs, rules, stats
from etude.core.agent import Agent
from etude.envs import Task
from etude.errors import UserError
from etude.meta.online import OnlineTraining
from etude.rules import Rule
from etude.runs import loop
from etude.runs.folder import IMPORT_FROM, RunFolder
from etude.runs.loop import Record
from etude.runs.storage import sha256_of
from etude.training.config import TrainPlan, TrainRequest, lists_to_tuples
from etude.training.iteration import (
    LAST_EPISODES,
    Training,
    first_non_finite,
    rule_keys,
    seed_keys,
)
from etude.training.planning import plan_named, read_plan
from etude.training.presets import resolve


@dataclasses.dataclass(frozen=True)
class Result:
    """A finished run."""

    task: Task
    rule: Rule
    """That of the run; of several that have learned, the one whose agent did best in the end."""
    config: TrainPlan
    agents: Agent
    """The trained agents; each leaf has the seeds as its first axis."""
    curve: list[Record]
    """One record for each `log_every` updates."""
    summary: dict[str, Any]

    def agent(self, index: int = 0) -> Agent:
        """One of the trained agents."""
        return jax.tree.map(lambda x: x[index], self.agents)


@dataclasses.dataclass(frozen=True)
class Setup(loop.Work[Any]):
    """A training run, all of whose mistakes have surfaced, before anything is compiled.

    The rule either stays as it is, the same for all seeds, or each seed has its own, which learns.
    """

    task: Task
    rule: Rule
    """If it learns: where it starts, each leaf with the seeds as its first axis."""
    config: TrainPlan
    training: Training | OnlineTraining

    @staticmethod
    def create(
        request: TrainRequest, *, task: Task | None = None, rule: Rule | None = None
    ) -> "Setup":
        """Fills the request's gaps, and finds environment and rule (unless they are given)."""
        if rule is None:
            return Setup.planned(plan_named(request).plan, task=task)
        plan = resolve(request, rules.kind_of(rule), rule_is_made=True)
        return Setup.planned(plan, task=task, rule=rule)

    @staticmethod
    def planned(
        config: TrainPlan, *, task: Task | None = None, rule: Rule | None = None
    ) -> "Setup":
        """Finds environment and rule, unless they are given."""
        task = envs.make(config.env) if task is None else task
        make = rules.maker(config.rule, task.observation) if rule is None else lambda key: rule
        if config.learn_rule:
            keys = rule_keys(seed_keys(config.seed, config.seeds))
            start = jax.vmap(make, axis_size=config.seeds)(keys)
            if not jax.tree.leaves(start):
                raise UserError(f"{config.rule} has no parameters, so nothing to learn online.")
            setup = Setup(task, start, config, OnlineTraining.create(task, config))
        else:
            start = make(jax.random.key(config.seed))
            setup = Setup(task, start, config, Training.create(task, config))
        loop.require_traceable(setup, f"{config.rule} cannot be trained on {config.env}")
        return setup

    @property
    def updates(self) -> int:
        return self.config.updates

    @property
    def log_every(self) -> int:
        return self.config.log_every

    def init(self) -> Any:
        return jax.jit(self._init)()

    def shapes(self) -> Any:
        return jax.eval_shape(self._init)

    def trace(self) -> None:
        self._traced  # noqa: B018

    def prepare(self) -> None:
        self._compiled  # noqa: B018

    def advance(self, state: Any, done: int, number: int) -> tuple[Any, dict[str, np.ndarray]]:
        state, metrics = self._compiled(self.rule, state, np.int32(number))
        metrics = {name: x[:, :number].T for name, x in jax.device_get(metrics).items()}
        self._require_finite(metrics, done)
        return state, metrics

    def record(self, state: Any, metrics: dict[str, np.ndarray], done: int) -> Record:
        """Means over the updates since the last record, and over seeds."""
        metrics = dict(metrics)
        ended = metrics.pop("episodes").sum(axis=0)
        totals = {name: metrics.pop(f"episode_{name}").sum(axis=0) for name in ("return", "length")}
        returns, lengths = (
            np.divide(total, ended, where=ended > 0, out=np.full(len(ended), np.nan))
            for total in totals.values()
        )
        return {
            "steps": self.config.steps_after(done),
            "return": _mean(returns),
            "returns": returns.tolist(),
            "last_returns": [float(x.mean()) if len(x) else np.nan for x in last_returns(state)],
            "episode_length": _mean(lengths),
            "episodes": int(ended.sum()),
            **{name: float(np.mean(x)) for name, x in metrics.items()},
            **self._watched(metrics),
        }

    def _watched(self, metrics: dict[str, np.ndarray]) -> dict[str, Any]:
        """What a rule that learns has come to, seed by seed: each has its own."""
        if not self.config.learn_rule:
            return {}
        by_seed = {name: metrics[name].mean(axis=0).tolist() for name in self.rule.watched}
        return {"learned": by_seed}

    def learned(self, state: Any) -> Any:
        return (state.rule, state.learner) if self.config.learn_rule else state.learner

    def before_saving(self, state: Any, folder: RunFolder) -> None:
        if self.config.learn_rule:
            rules.save(folder.path / rules.RULE_FILE, self.kept_rule(state), self._suggested)

    def kept_rule(self, state: Any) -> Rule:
        """The rule; of several that have learned, the one whose agent did best in the end."""
        if not self.config.learn_rule:
            return self.rule
        best = int(np.argmax([x.mean() if len(x) else -np.inf for x in last_returns(state)]))
        return jax.tree.map(lambda x: x[best], state.rule)

    @property
    def _suggested(self) -> dict[str, Any]:
        """The settings of training that a rule learned here is used to."""
        names = "batch rollout replay_share epochs minibatches learning_rate schedule max_update"
        names += " torso conv memory memory_size optimiser"
        return {name: getattr(self.config, name) for name in names.split()}

    @property
    def _rule_axis(self) -> int | None:
        return 0 if self.config.learn_rule else None

    def _init(self) -> Any:
        """Fresh agents, one for each seed along the first axis."""
        init = jax.vmap(self.training.init, in_axes=(self._rule_axis, 0))
        return init(self.rule, seed_keys(self.config.seed, self.config.seeds))

    @cached_property
    def _traced(self) -> Any:
        """One piece of work as a program of any number of updates up to `log_every`."""
        program = jax.jit(
            jax.vmap(
                lambda rule, state, number: self.training.run(rule, state, number, self.log_every),
                in_axes=(self._rule_axis, 0, None),
            ),
            donate_argnums=1,
        )
        return program.lower(self.rule, self.shapes(), jax.ShapeDtypeStruct((), np.int32))

    @cached_property
    def _compiled(self) -> Any:
        return self._traced.compile()

    def _require_finite(self, metrics: dict[str, np.ndarray], done: int) -> None:
        bad = first_non_finite(metrics)
        if bad is None:
            return
        seed, index, name = bad
        update = done + index + 1
        raise UserError(
            f"Training stopped at update {update} (environment step "
            f"{self.config.steps_after(update)}, seed number {seed}): the "
            f"{name.replace('_', ' ')} is {metrics[name][index, seed]}."
        )


def train(
    env: str | Task = "catch",
    rule: str | Rule = "disco103",
    *,
    out: str | None = None,
    **settings: Any,
) -> Result:
    """Trains agents and returns them; `settings` are the fields of `TrainRequest`.

    With `out`, the run is kept in that folder, as by `etude train --out`.
    """
    if not isinstance(env, (str, Task)):
        raise UserError("An environment is a name, or what `etude.envs.make` returns.")
    request = TrainRequest(
        env=env if isinstance(env, str) else env.name,
        rule=rule if isinstance(rule, str) else rules.spec_of(rule),
        **lists_to_tuples(settings),
    )
    setup = Setup.create(
        request,
        task=None if isinstance(env, str) else env,
        rule=None if isinstance(rule, str) else rule,
    )
    if out is None:
        return run(setup)
    folder = new_folder(setup, out)
    with folder.locked():
        return run(setup, folder)


def new_folder(setup: Setup, out: str | None) -> RunFolder:
    """A folder that holds all that a run starts from: its settings and its rule."""
    rules.require_kind(setup.rule)
    config = {**setup.config.settings(), IMPORT_FROM: os.getcwd()}
    name = f"{setup.config.env}-{setup.config.rule.split(':')[0]}"
    folder = RunFolder.create(out, name)
    if not setup.config.learn_rule:
        rules.save(folder.path / rules.RULE_FILE, setup.rule)
    elif not rules.learns_online(setup.config.rule):  # or else its name tells where it starts
        rules.save(folder.path / rules.START_FILE, jax.tree.map(lambda x: x[0], setup.rule))
    folder.write_config(config)  # last, so that whatever has a config has all it starts from
    return folder


def open_folder(path: str, steps: int | None = None) -> tuple[Setup, RunFolder]:
    """A run to be continued, by default to its own end, or to a later one."""
    config, folder = read_plan(path, steps)
    sys.path.insert(0, str(folder.config().get(IMPORT_FROM, os.getcwd())))
    if config.learn_rule and rules.learns_online(config.rule):
        return Setup.planned(config), folder
    file = rules.START_FILE if config.learn_rule else rules.RULE_FILE
    return Setup.planned(config, rule=rules.load_kept(folder.path / file)), folder


def run(setup: Setup, folder: RunFolder | None = None, **options: Any) -> Result:
    """Runs to the end, or from the folder's last checkpoint; `options` are those of `loop.run`."""
    if folder:
        folder.extend("steps", setup.config.steps)
    outcome = loop.run(setup, folder, **options)
    summary = _summary(setup, outcome)
    if folder and outcome.done >= setup.updates:
        folder.write_summary(summary)
    agents, rule = outcome.state.learner.agent, setup.kept_rule(outcome.state)
    return Result(setup.task, rule, setup.config, agents, outcome.curve, summary)


def _mean(x: np.ndarray) -> float:
    return float(np.mean(x[np.isfinite(x)])) if np.isfinite(x).any() else float("nan")


def last_returns(state: Any) -> list[np.ndarray]:
    """The returns of each seed's last 100 episodes (fewer if there were fewer)."""
    log = state.world.episodes
    returns, counts = jax.device_get((log.returns, log.count))
    return [row[: min(n, LAST_EPISODES)] for row, n in zip(returns, counts, strict=True)]


def _summary(setup: Setup, outcome: loop.Outcome) -> dict[str, Any]:
    config, last = setup.config, last_returns(outcome.state)
    seen = [x for x in last if len(x)]
    low, high = stats.bootstrap_interval(seen) if seen else (float("nan"), float("nan"))
    return {
        "env": config.env,
        "rule": config.rule,
        "seeds": config.seeds,
        "final_return": {
            "mean": _mean(np.array([x.mean() for x in seen])) if seen else None,
            "low": low,
            "high": high,
            "per_seed": [float(x.mean()) if len(x) else None for x in last],
            "over": f"the last {LAST_EPISODES} episodes of each seed; 95% bootstrap interval",
        },
        "environment_steps": config.steps_after(outcome.done),
        "updates": outcome.done,
        "seconds": outcome.curve[-1]["seconds"] if outcome.curve else 0.0,
        "steps_per_second": round(outcome.steps_per_second * config.seeds, 1),
        "rule_sha256": rules.digest(setup.kept_rule(outcome.state)),
        "params_sha256": sha256_of(outcome.state.learner.agent),
    }
