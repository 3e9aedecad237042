"""A training run from start to end: what is asked for, the folder it lives in, what came out."""

import dataclasses
import os
import sys
from functools import cached_property
from typing import Any

import jax
import numpy as np

from etude import envs, loop, rules, stats
from etude.agent import Agent
from etude.config import TrainConfig, from_json, lists_to_tuples
from etude.envs import Task
from etude.errors import UserError, reason
from etude.loop import Record
from etude.presets import resolve
from etude.rules import Rule
from etude.runs import IMPORT_FROM, RunFolder
from etude.storage import sha256_of
from etude.training import (
    LAST_EPISODES,
    Training,
    TrainState,
    first_non_finite,
    seed_keys,
)


@dataclasses.dataclass(frozen=True)
class Result:
    """A finished run."""

    task: Task
    rule: Rule
    config: TrainConfig
    agents: Agent
    """The trained agents; each leaf has the seeds as its first axis."""
    curve: list[Record]
    """One record for each `log_every` updates."""
    summary: dict[str, Any]

    def agent(self, index: int = 0) -> Agent:
        """One of the trained agents."""
        return jax.tree.map(lambda x: x[index], self.agents)


@dataclasses.dataclass(frozen=True)
class Setup(loop.Work[TrainState]):
    """A training run, all of whose mistakes have surfaced, before anything is compiled."""

    task: Task
    rule: Rule
    config: TrainConfig
    training: Training

    @staticmethod
    def create(
        config: TrainConfig, *, task: Task | None = None, rule: Rule | None = None
    ) -> "Setup":
        """Finds environment and rule (unless they are given) and fills in the presets."""
        if rule is None:
            config = resolve(config, rules.kind_named(config.rule), rules.suggested(config.rule))
        else:
            config = resolve(config, rules.kind_of(rule), rule_is_made=True)
        task = envs.make(config.env) if task is None else task
        rule = rules.load(config.rule, seed=config.seed) if rule is None else rule
        setup = Setup(task, rule, config, Training.create(task, config))
        try:
            setup._traced  # noqa: B018
        except UserError:
            raise
        except Exception as error:  # an environment or a rule of the user's may raise anything
            raise UserError(
                f"{config.rule} cannot be trained on {config.env}: {reason(error)}"
            ) from error
        return setup

    @property
    def updates(self) -> int:
        return self.config.updates

    @property
    def log_every(self) -> int:
        return self.config.log_every or 1

    def init(self) -> TrainState:
        return jax.jit(self._init)()

    def shapes(self) -> TrainState:
        return jax.eval_shape(self._init)

    def prepare(self) -> None:
        self._compiled  # noqa: B018

    def advance(
        self, state: TrainState, done: int, number: int
    ) -> tuple[TrainState, dict[str, np.ndarray]]:
        state, metrics = self._compiled(self.rule, state, np.int32(number))
        metrics = {name: x[:, :number].T for name, x in jax.device_get(metrics).items()}
        self._require_finite(metrics, done)
        return state, metrics

    def record(self, state: TrainState, metrics: dict[str, np.ndarray], done: int) -> Record:
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
        }

    def learned(self, state: TrainState) -> Any:
        return state.learner

    def _init(self) -> TrainState:
        """Fresh agents, one for each seed along the first axis."""
        return jax.vmap(self.training.init, in_axes=(None, 0))(self.rule, seed_keys(self.config))

    @cached_property
    def _traced(self) -> Any:
        """One piece of work as a program of any number of updates up to `log_every`."""
        program = jax.jit(
            jax.vmap(
                lambda rule, state, number: self.training.run(rule, state, number, self.log_every),
                in_axes=(None, 0, None),
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
    """Trains agents and returns them; `settings` are the fields of `TrainConfig`.

    With `out`, the run is kept in that folder, as by `etude train --out`.
    """
    if not isinstance(env, (str, Task)):
        raise UserError("An environment is a name, or what `etude.envs.make` returns.")
    config = TrainConfig(
        env=env if isinstance(env, str) else env.name,
        rule=rule if isinstance(rule, str) else rules.spec_of(rule),
        **lists_to_tuples(settings),
    )
    setup = Setup.create(
        config,
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
    config = {**dataclasses.asdict(setup.config), IMPORT_FROM: os.getcwd()}
    name = f"{setup.config.env}-{setup.config.rule.split(':')[0]}"
    folder = RunFolder.create(out, name)
    rules.save(folder.path / rules.RULE_FILE, setup.rule)
    folder.write_config(config)  # last, so that whatever has a config has all it starts from
    return folder


def open_folder(path: str, steps: int | None = None) -> tuple[Setup, RunFolder]:
    """A run to be continued, by default to its own end, or to a later one."""
    folder = RunFolder.open(path)
    saved = folder.config()
    sys.path.insert(0, str(saved.pop(IMPORT_FROM, os.getcwd())))
    config = from_json(TrainConfig, saved)
    if steps is not None:
        if config.schedule == "cosine" and steps != config.steps:
            raise UserError("A cosine schedule ends where it ends: --steps cannot be changed.")
        if steps < (config.steps or 0):
            raise UserError(f"{path} is a run of {config.steps} steps; --steps can only add to it.")
        config = dataclasses.replace(config, steps=steps)
    rule = rules.load_kept(folder.path / rules.RULE_FILE)
    return Setup.create(config, rule=rule), folder


def run(setup: Setup, folder: RunFolder | None = None, **options: Any) -> Result:
    """Runs to the end, or from the folder's last checkpoint; `options` are those of `loop.run`."""
    if folder:
        folder.extend("steps", setup.config.steps or 0)
    outcome = loop.run(setup, folder, **options)
    summary = _summary(setup, outcome)
    if folder and outcome.done >= setup.updates:
        folder.write_summary(summary)
    agents = outcome.state.learner.agent
    return Result(setup.task, setup.rule, setup.config, agents, outcome.curve, summary)


def _mean(x: np.ndarray) -> float:
    return float(np.mean(x[np.isfinite(x)])) if np.isfinite(x).any() else float("nan")


def last_returns(state: TrainState) -> list[np.ndarray]:
    """The returns of each seed's last 100 episodes (fewer if there were fewer)."""
    log = state.world.episodes
    returns, counts = jax.device_get((log.returns, log.count))
    return [row[: min(n, LAST_EPISODES)] for row, n in zip(returns, counts, strict=True)]


def _summary(setup: Setup, outcome: loop.Outcome[TrainState]) -> dict[str, Any]:
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
        "rule_sha256": rules.digest(setup.rule),
        "params_sha256": sha256_of(outcome.state.learner.agent),
    }
