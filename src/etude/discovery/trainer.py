"""A discovery run from start to end: the population, the rule that learns, checks, the folder."""

import dataclasses
import os
import sys
from functools import cached_property
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from etude import envs, loop, rules
from etude.config import from_json
from etude.discovery.check import Check, Outcome, score
from etude.discovery.config import SIZES, DiscoverConfig
from etude.discovery.population import Group, Seat, apply_updates
from etude.errors import UserError, reason
from etude.loop import Record
from etude.rules import Rule
from etude.rules.disco import Disco
from etude.runs import IMPORT_FROM, RunFolder


class DiscoveryState(eqx.Module):
    """All that a run must not lose: this tree is the checkpoint."""

    rule: Rule
    seats: tuple[Seat, ...]
    """One tree for each environment; its agents are along the first axis."""
    best: Rule
    """The rule of the best check so far; without checks, the latest."""
    best_score: Float[Array, ""]
    best_step: Int[Array, ""]


@dataclasses.dataclass(frozen=True)
class DiscoveryRun(loop.Work[DiscoveryState]):
    """A discovery run, all of whose mistakes have surfaced, before anything is compiled."""

    config: DiscoverConfig
    start: Rule
    groups: tuple[Group, ...]
    check: Check | None

    @staticmethod
    def create(config: DiscoverConfig, start: Rule | None = None) -> "DiscoveryRun":
        """Finds environments and the rule to start from (unless it is given)."""
        start = starting_rule(config) if start is None else start
        if not jax.tree.leaves(start):
            raise UserError(f"{rules.kind_of(start)} has no parameters, so nothing to discover.")
        names = dict.fromkeys(config.env_names)
        groups = tuple(Group.create(envs.make(name), config) for name in names)
        extra = [envs.make(name) for name in config.held_out_names if name not in names]
        tasks = [group.task for group in groups] + extra
        check = Check(tasks, config) if config.check_every else None
        discovery = DiscoveryRun(config, start, groups, check)
        try:
            discovery._traced  # noqa: B018
        except UserError:
            raise
        except Exception as error:  # an environment of the user's may raise anything
            raise UserError(
                f"No rule can be discovered on {config.envs}: {reason(error)}"
            ) from error
        return discovery

    # --- What the loop asks ----------------------------------------------------------------------

    @property
    def updates(self) -> int:
        return self.config.total

    @property
    def log_every(self) -> int:
        return self.config.log_every

    def shapes(self) -> DiscoveryState:
        return jax.eval_shape(self._init)

    def init(self) -> DiscoveryState:
        return jax.jit(self._init)()

    def prepare(self) -> None:
        self._compiled  # noqa: B018

    def advance(
        self, state: DiscoveryState, done: int, number: int
    ) -> tuple[DiscoveryState, dict[str, Any]]:
        rows = []
        for meta_step in range(done, done + number):
            state, metrics = self._meta_step(state, self.config.meta_learning_rate_at(meta_step))
            rows.append(metrics)
        rows = jax.device_get(rows)
        metrics = {
            name: {key: np.stack([row[name][key] for row in rows]) for key in rows[0][name]}
            for name in rows[0]
        }
        return self._checked(state, metrics, done, done + number)

    def joined(self, pieces: list[dict[str, Any]]) -> dict[str, Any]:
        checked = [piece["check"] for piece in pieces if "check" in piece]
        played = [{k: v for k, v in piece.items() if k != "check"} for piece in pieces]
        return super().joined(played) | ({"check": checked[-1]} if checked else {})

    def record(self, state: DiscoveryState, metrics: dict[str, Any], done: int) -> Record:
        metrics = dict(metrics)
        checked = metrics.pop("check", None)
        means = {
            name: {key: float(np.nanmean(x)) for key, x in values.items()}
            for name, values in metrics.items()
        }
        episodes = {name: values["episodes"].sum() for name, values in metrics.items()}
        returns = {
            name: float(values["episode_return"].sum() / episodes[name]) if episodes[name] else None
            for name, values in metrics.items()
        }
        last = {
            key: sum(v[key][-1].sum() for v in metrics.values()) for key in ("resets", "skipped")
        }
        overall = [key for key in next(iter(means.values())) if key not in HIDDEN]
        record = {
            "steps": done * sum(g.steps_per_meta_step * n for g, n in self._seating),
            "returns": returns,
            **{key: float(np.mean([m[key] for m in means.values()])) for key in overall},
            **{key: int(value) for key, value in last.items()},
        }
        return record if checked is None else record | {"check": checked}

    def learned(self, state: DiscoveryState) -> Any:
        return state.rule, [seats.member.lifetime for seats in state.seats]

    def saved(self, state: DiscoveryState, folder: RunFolder) -> None:
        rules.save(folder.path / rules.RULE_FILE, state.best, training=self.config.suggested)

    # --- One meta-step ---------------------------------------------------------------------------

    @property
    def _seating(self) -> list[tuple[Group, int]]:
        """How many agents each environment has."""
        share, rest = divmod(self.config.agents, len(self.groups))
        return [(group, share + (i < rest)) for i, group in enumerate(self.groups)]

    def _init(self) -> DiscoveryState:
        root = jax.random.key(self.config.seed)
        seats = []
        for i, (group, number) in enumerate(self._seating):
            keys = jax.random.split(jax.random.fold_in(root, i), number)
            seats.append(jax.vmap(group.new_seat, in_axes=(None, 0))(self.start, keys))
        copy = jax.tree.map(jnp.copy, self.start)
        nothing = jnp.asarray(-jnp.inf), jnp.zeros((), jnp.int32)
        return DiscoveryState(jax.tree.map(jnp.copy, self.start), tuple(seats), copy, *nothing)

    @cached_property
    def _traced(self) -> list[Any]:
        seats = self.shapes().seats
        return [
            jax.jit(group.advance, donate_argnums=1).lower(self.start, shape)
            for group, shape in zip(self.groups, seats, strict=True)
        ]

    @cached_property
    def _compiled(self) -> list[Any]:
        return [program.compile() for program in self._traced]

    @cached_property
    def _replace(self) -> list[Any]:
        return [jax.jit(group.replace, donate_argnums=1) for group in self.groups]

    @cached_property
    def _apply(self) -> Any:
        return jax.jit(apply_updates)

    def _meta_step(
        self, state: DiscoveryState, learning_rate: float
    ) -> tuple[DiscoveryState, dict[str, Any]]:
        updates, after, metrics = [], [], {}
        programs = zip(self.groups, self._compiled, self._replace, state.seats, strict=True)
        for group, advance, replace, seats in programs:
            update, seats, logged = advance(state.rule, seats)
            if jnp.any(logged["over"]):
                seats = replace(state.rule, seats, logged["over"])
            updates.append(update)
            after.append(seats)
            metrics[group.task.name] = logged
        rule = self._apply(state.rule, updates, learning_rate)
        if self.check is None:
            best = (rule, state.best_score, state.best_step + 1)
        else:
            best = (state.best, state.best_score, state.best_step)
        return DiscoveryState(rule, tuple(after), *best), metrics

    # --- Checks ----------------------------------------------------------------------------------

    @cached_property
    def baseline(self) -> dict[str, Outcome]:
        assert self.check is not None
        return self.check.baseline()

    @cached_property
    def at_start(self) -> dict[str, Outcome]:
        assert self.check is not None
        return self.check(self.start)

    def _checked(
        self, state: DiscoveryState, metrics: dict[str, Any], before: int, done: int
    ) -> tuple[DiscoveryState, dict[str, Any]]:
        """Checks the rule every so often, and at the end; the best one is kept."""
        every = self.config.check_every
        if self.check is None or (before // every == done // every and done < self.updates):
            return state, metrics
        outcomes = self.check(state.rule)
        value = score(outcomes, self.baseline, [group.task.name for group in self.groups])
        if value > float(state.best_score):
            best = (state.rule, jnp.asarray(value), jnp.asarray(done, jnp.int32))
            state = DiscoveryState(state.rule, state.seats, *best)
        described = {
            "score": value,
            "best": float(state.best_score),
            "returns": {name: outcome.describe() for name, outcome in outcomes.items()},
            "start": {name: outcome.describe() for name, outcome in self.at_start.items()},
            "baseline": {name: outcome.describe() for name, outcome in self.baseline.items()},
            "floor": {name: outcome.early for name, outcome in self.baseline.items()},
        }
        return state, metrics | {"check": described}


HIDDEN = ("episodes", "episode_return", "resets", "skipped", "over")
"""Metrics that are shown in another form than their mean."""


def starting_rule(config: DiscoverConfig) -> Rule:
    if config.from_ is not None:
        return rules.load(config.from_, seed=config.seed)
    return Disco(SIZES[config.size], key=jax.random.key(config.seed))


def new_folder(discovery: DiscoveryRun, out: str | None) -> RunFolder:
    """A folder that holds all that a run starts from: its settings and its rule."""
    folder = RunFolder.create(out, f"discover-{discovery.config.env_names[0]}")
    rules.save(folder.path / rules.START_FILE, discovery.start)
    config = {**dataclasses.asdict(discovery.config), IMPORT_FROM: os.getcwd()}
    folder.write_config(config)
    return folder


def open_folder(path: str, meta_steps: int | None = None) -> tuple[DiscoveryRun, RunFolder]:
    """A run to be continued, by default to its own end, or to a later one."""
    folder = RunFolder.open(path)
    saved = folder.config()
    sys.path.insert(0, str(saved.pop(IMPORT_FROM, os.getcwd())))
    config = from_json(DiscoverConfig, saved)
    if meta_steps is not None:
        config = config.extended(meta_steps)
    return DiscoveryRun.create(config, rules.load_kept(folder.path / rules.START_FILE)), folder


def run(discovery: DiscoveryRun, folder: RunFolder | None = None, **options: Any) -> dict[str, Any]:
    """Runs to the end, or from the folder's last checkpoint; the summary."""
    if folder:
        folder.extend("meta_steps", discovery.config.total)
    outcome = loop.run(discovery, folder, **options)
    summary = _summary(discovery, outcome)
    if folder and outcome.done >= discovery.updates:
        folder.write_summary(summary)
    return summary


def _summary(discovery: DiscoveryRun, outcome: loop.Outcome[DiscoveryState]) -> dict[str, Any]:
    state, last = outcome.state, outcome.curve[-1] if outcome.curve else {}
    checks = {r["updates"]: r["check"] for r in outcome.curve if "check" in r}
    return {
        "envs": discovery.config.env_names,
        "agents": discovery.config.agents,
        "meta_steps": outcome.done,
        "environment_steps": last.get("steps", 0),
        "seconds": last.get("seconds", 0.0),
        "steps_per_second": round(outcome.steps_per_second, 1),
        "resets": last.get("resets", 0),
        "skipped": last.get("skipped", 0),
        "best_score": float(state.best_score) if checks else None,
        "best_meta_step": int(state.best_step),
        "best_check": checks.get(int(state.best_step)),
        "last_check": next(reversed(checks.values()), None),
        "rule_sha256": rules.digest(state.best),
    }
