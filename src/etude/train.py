"""A training run from start to end: chunks of compiled work, with logs and checkpoints between."""

import dataclasses
import time
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from etude import envs, rules, stats
from etude.agent import Agent
from etude.config import TrainConfig, from_json
from etude.envs import Task
from etude.errors import UserError
from etude.presets import resolve
from etude.rules import Rule
from etude.runs import RunFolder
from etude.storage import sha256_of
from etude.training import (
    LAST_EPISODES,
    Training,
    TrainState,
    first_non_finite,
    seed_keys,
)

Report = Callable[[dict[str, Any]], None]
"""Is given each record of metrics as it is made."""


@dataclasses.dataclass(frozen=True)
class Result:
    """A finished run."""

    task: Task
    rule: Rule
    config: TrainConfig
    agents: Agent
    """The trained agents; each leaf has the seeds as its first axis."""
    curve: list[dict[str, Any]]
    """One record for each chunk of updates."""
    summary: dict[str, Any]

    def agent(self, index: int = 0) -> Agent:
        """One of the trained agents."""
        return jax.tree.map(lambda x: x[index], self.agents)


@dataclasses.dataclass(frozen=True)
class Setup:
    """All that is known before anything is compiled."""

    task: Task
    rule: Rule
    config: TrainConfig
    training: Training

    @staticmethod
    def create(config: TrainConfig) -> "Setup":
        """Finds environment and rule and fills in the presets; mistakes surface here."""
        task = envs.make(config.env)
        rule = rules.load(config.rule, seed=config.seed)
        config = resolve(config, rules.kind_of(rule))
        training = Training.create(task, config)
        setup = Setup(task, rule, config, training)
        try:
            setup.shapes()
        except ValueError as error:
            raise UserError(str(error)) from None
        return setup

    def init(self) -> TrainState:
        """Fresh agents, one for each seed along the first axis."""
        return jax.vmap(self.training.init, in_axes=(None, 0))(self.rule, seed_keys(self.config))

    def shapes(self) -> TrainState:
        """The form of that state."""
        return jax.eval_shape(self.init)


def train(
    env: str = "catch", rule: str = "disco103", *, out: str | None = None, **settings: Any
) -> Result:
    """Trains agents and returns them; `settings` are the fields of `TrainConfig`.

    With `out`, the run is kept in that folder, as by `etude train --out`.
    """
    setup = Setup.create(TrainConfig(env=env, rule=rule, **settings))
    folder = new_folder(setup, out) if out else None
    return run(setup, folder)


def new_folder(setup: Setup, out: str | None) -> RunFolder:
    config = {**dataclasses.asdict(setup.config), "rule_sha256": sha256_of(setup.rule)}
    return RunFolder.create(out, f"{setup.config.env}-{setup.config.rule}", config)


def open_folder(path: str, steps: int | None = None) -> tuple[Setup, RunFolder]:
    """A run to be continued, by default to its own end, or to a later one."""
    folder = RunFolder.open(path)
    saved = folder.config()
    digest = saved.pop("rule_sha256", None)
    config = from_json(saved)
    if steps is not None:
        if config.schedule == "cosine" and steps != config.steps:
            raise UserError("A cosine schedule ends where it ends: --steps cannot be changed.")
        config = dataclasses.replace(config, steps=steps)
    setup = Setup.create(config)
    if sha256_of(setup.rule) != digest:
        raise UserError(f"Rule {config.rule} is no longer the one that {path} was started with.")
    return setup, folder


def run(
    setup: Setup,
    folder: RunFolder | None = None,
    *,
    report: Report = lambda record: None,
    should_stop: Callable[[], bool] = lambda: False,
    checkpoint_seconds: float = 30.0,
) -> Result:
    """Runs to the end, from the folder's last checkpoint if there is one."""
    config, training = setup.config, setup.training
    state, done, seconds = _start(setup, folder)
    chunk = jax.jit(
        jax.vmap(training.run, in_axes=(None, 0, None)), static_argnums=2, donate_argnums=1
    )
    curve = folder.metrics() if folder else []
    saved, saved_at = done, time.monotonic()
    while done < config.updates and not should_stop():
        length = min(config.log_every or 1, config.updates - done)
        started = time.monotonic()
        state, metrics = chunk(setup.rule, state, length)
        metrics = jax.device_get(metrics)
        seconds += time.monotonic() - started
        _check_finite(metrics, done, config, folder)
        done += length
        curve.append(_record(metrics, state, done, seconds, config))
        report(curve[-1])
        if folder:
            folder.log(curve[-1])
            if time.monotonic() - saved_at >= checkpoint_seconds:
                folder.save(state, {"updates": done, "seconds": seconds})
                saved, saved_at = done, time.monotonic()
    if folder and saved < done:
        folder.save(state, {"updates": done, "seconds": seconds})
    summary = _summary(setup, state, curve, done)
    if folder and done >= config.updates:
        folder.write_summary(summary)
    return Result(setup.task, setup.rule, config, state.learner.agent, curve, summary)


def _start(setup: Setup, folder: RunFolder | None) -> tuple[TrainState, int, float]:
    restored = folder.restore(setup.shapes()) if folder else None
    if restored is None:
        return jax.jit(setup.init)(), 0, 0.0
    state, progress = restored
    return state, int(progress["updates"]), float(progress["seconds"])


def _check_finite(
    metrics: dict[str, np.ndarray], done: int, config: TrainConfig, folder: RunFolder | None
) -> None:
    bad = first_non_finite(metrics)
    if bad is None:
        return
    seed, index, name = bad
    update = done + index + 1
    kept = f" The last good checkpoint is in {folder.path}." if folder else ""
    raise UserError(
        f"Training stopped at update {update} (environment step "
        f"{config.steps_after(update)}, seed number {seed}): the {name.replace('_', ' ')} "
        f"is {metrics[name][seed, index]}.{kept}"
    )


def _record(
    metrics: dict[str, np.ndarray],
    state: TrainState,
    done: int,
    seconds: float,
    config: TrainConfig,
) -> dict[str, Any]:
    """One line of the log: means over the chunk's updates and over seeds."""
    metrics = dict(metrics)
    ended = metrics.pop("episodes").sum(axis=1)
    totals = {name: metrics.pop(f"episode_{name}").sum(axis=1) for name in ("return", "length")}
    returns, lengths = (
        np.divide(total, ended, where=ended > 0, out=np.full(len(ended), np.nan))
        for total in totals.values()
    )
    return {
        "updates": done,
        "steps": config.steps_after(done),
        "seconds": round(seconds, 3),
        "return": _mean(returns),
        "returns": returns,
        "last_returns": [x.mean() if len(x) else np.nan for x in last_returns(state)],
        "episode_length": _mean(lengths),
        "episodes": int(ended.sum()),
        **{name: float(np.mean(x)) for name, x in metrics.items()},
    }


def _mean(x: np.ndarray) -> float:
    return float(np.mean(x[np.isfinite(x)])) if np.isfinite(x).any() else float("nan")


def last_returns(state: TrainState) -> list[np.ndarray]:
    """The returns of each seed's last 100 episodes (fewer if there were fewer)."""
    returns, counts = jax.device_get((state.episodes.returns, state.episodes.count))
    return [row[: min(n, LAST_EPISODES)] for row, n in zip(returns, counts, strict=True)]


def _summary(
    setup: Setup, state: TrainState, curve: list[dict[str, Any]], done: int
) -> dict[str, Any]:
    config, last = setup.config, last_returns(state)
    seen = [x for x in last if len(x)]
    low, high = stats.bootstrap_interval(seen) if seen else (float("nan"), float("nan"))
    # The first chunk holds the compilation, so that the speed is that of the others.
    nothing = {"steps": 0, "seconds": 0.0}
    first, end = curve[0] if len(curve) > 1 else nothing, curve[-1] if curve else nothing
    took = max(end["seconds"] - first["seconds"], 1e-9)
    return {
        "env": config.env,
        "rule": config.rule,
        "seeds": config.seeds,
        "final_return": {
            "mean": _mean(np.array([x.mean() for x in seen])) if seen else None,
            "low": low,
            "high": high,
            "per_seed": [x.mean() if len(x) else None for x in last],
            "over": f"the last {LAST_EPISODES} episodes of each seed; 95% bootstrap interval",
        },
        "environment_steps": config.steps_after(done),
        "updates": done,
        "seconds": end["seconds"],
        "steps_per_second": round((end["steps"] - first["steps"]) * config.seeds / took, 1),
        "params_sha256": sha256_of(state.learner.agent),
    }
