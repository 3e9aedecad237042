"""A discovery run from start to end: the population, the rule that learns, checks, the folder."""

import dataclasses
import logging
from collections.abc import Callable
from functools import cached_property
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.stages import Lowered
from jaxtyping import Array, Float, Int, PyTree

from etude import envs, rules
from etude.core.torso import image_notes
from etude.envs import JaxTask
from etude.errors import UserError
from etude.meta.discovery.check import Check, Outcomes, score
from etude.meta.discovery.cluster.driver import OnCluster
from etude.meta.discovery.config import DiscoverConfig
from etude.meta.discovery.fitting import Fitting
from etude.meta.discovery.lives import shapes_of
from etude.meta.discovery.parts import Likeness, Part, Programs, is_outside, parts_of
from etude.meta.discovery.placement import InProcess, Placement, Seats
from etude.meta.discovery.population import Group
from etude.meta.discovery.report import describe, plot_discovery
from etude.meta.discovery.rule_optimiser import RuleOptimiser
from etude.meta.discovery.saved import read_config
from etude.meta.discovery.start import start_maker
from etude.placing.cluster import ClusterOptions
from etude.placing.local import cores
from etude.rules import Rule
from etude.runs.folder import RunFolder
from etude.runs.run import Outcome, Record, Result, Run
from etude.settings import as_bytes
from etude.training.host_run import HostRun


class DiscoveryState(eqx.Module):
    """All that a run must not lose: this tree is the checkpoint."""

    rule: Rule
    seats: Seats
    """None while they live elsewhere (see `Placement.gathered`); all are in the checkpoint."""
    best: Rule
    """The rule with the best check so far; the one that the run starts from competes."""
    best_score: Float[Array, ""]
    """Minus infinity before the first check."""
    best_step: Int[Array, ""]
    barren: Int[Array, ""]
    """Meta-steps in a row in which no agent's meta-gradient was finite."""
    optimiser_state: PyTree[Array]
    """Of the Adam that all agents share; None if each has its own."""


BARREN = 10
"""After so many of those, a run stops."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class DiscoverResult(Result):
    """What discovery has come to."""

    rule: Rule
    """The best of the checks; without checks, the last."""
    config: DiscoverConfig


@dataclasses.dataclass(frozen=True)
class DiscoveryRun(Run[DiscoveryState, DiscoverResult]):
    """A rule that learns from the learning of a population of agents."""

    kind: ClassVar[str] = "discover"
    doing: ClassVar[str] = "Discovering"
    end: ClassVar[str] = "meta_steps"
    draws_on_the_way: ClassVar[bool] = True
    impossible: ClassVar[str] = "No rule can be discovered on {envs}"

    config: DiscoverConfig
    start: Rule
    parts: tuple[Part, ...]
    check: Check | None
    cluster: ClusterOptions = ClusterOptions()
    """Where agents live: in this process, unless it names a cluster."""
    tell: Callable[[str], None] = logging.getLogger("etude").warning
    """What happens to the cluster's workers is told so."""

    @classmethod
    def untraced(cls, config: DiscoverConfig, start: Rule | None = None) -> "DiscoveryRun":
        """Finds environments and the rule to start from (unless it is given)."""
        names = config.env_names
        tasks = {name: envs.make(name) for name in config.every_name}
        shaped = shapes_of([tasks[name] for name in names], config)
        groups = tuple(Group.create(task, own) for task, own in shaped)
        start = (
            start_maker(config, [*tasks.values()])(jax.random.key(config.seed))
            if start is None
            else start
        )
        if not jax.tree.leaves(start):
            raise UserError(f"{rules.kind_of(start)} has no parameters, so nothing to discover.")
        if config.estimator == "mixed" and not start.scheduled:
            raise UserError(
                f"{rules.kind_of(start)} has no schedule, which --estimator mixed is for; "
                "--estimator es perturbs all of a rule."
            )
        for name in config.select_on_names:
            if not isinstance(tasks[name], JaxTask):
                raise UserError(f"--select-on is for environments in JAX; {name} runs outside.")
        check = Check([*tasks.values()], config) if config.check_every else None
        return cls(config, start, parts_of(groups, config), check)

    @classmethod
    def create(cls, config: DiscoverConfig, start: Rule | None = None) -> "DiscoveryRun":
        if config.memory_limit and not config.part:
            ones = super().create(dataclasses.replace(config, part=(1,)), start)
            sizes = Fitting(config, ones.start, ones.parts).sizes()
            config, start = dataclasses.replace(config, part=sizes), ones.start
        return super().create(config, start)

    @classmethod
    def reopened(cls, folder: RunFolder, end: int | None = None) -> "DiscoveryRun":
        config = read_config(folder, end)
        return cls.create(config, rules.load_kept(folder, rules.START_FILE))

    def on(
        self, cluster: ClusterOptions, tell: Callable[[str], None] | None = None
    ) -> "DiscoveryRun":
        """The same run where a cluster works, if there is one; not what is saved, only where it is
        computed."""
        if cluster.cluster is not None and self.parts[0].device is not None:
            raise UserError("--devices are of this process: a cluster's workers ask for GPUs.")
        other = dataclasses.replace(self, cluster=cluster, tell=tell or self.tell)
        vars(other)["programs"] = self.programs  # what is traced stays traced
        return other

    # --- What the loop asks ----------------------------------------------------------------------

    @property
    def updates(self) -> int:
        return self.config.meta_steps

    def is_over(self, state: DiscoveryState, done: int, seconds: float) -> bool:
        """Also where patience has run out."""
        if super().is_over(state, done, seconds):
            return True
        wait = self.config.patience * self.config.check_every
        return bool(wait) and done - int(state.best_step) >= wait

    def next_record(self, done: int) -> int:
        """A check has its own record, wherever the machine's speed lets a piece of work end."""
        due = super().next_record(done)
        every = self.config.check_every
        return min(due, done + every - done % every) if every else due

    def trace(self) -> None:
        super().trace()
        if self.check is not None:
            self.check.trace(self.start)

    def advance(
        self, state: DiscoveryState, done: int, number: int
    ) -> tuple[DiscoveryState, dict[str, PyTree]]:
        rows = []
        for meta_step in range(done, done + number):
            state, row = self._meta_step(state, self.config.meta_learning_rate_at(meta_step))
            rows.append(row)
        if int(state.barren) >= BARREN:
            raise UserError(
                f"In {BARREN} meta-steps no agent had a finite meta-gradient, so that there is "
                "nothing to learn from: look at the environments' rewards, or lower "
                "--learning-rate."
            )
        metrics = jax.tree.map(lambda *xs: np.stack(xs), *jax.device_get(rows))
        state, checked = self._checked(state, done + number)
        return state, metrics | {"checked": checked}

    def joined(self, pieces: list[dict[str, PyTree]]) -> dict[str, PyTree]:
        by_step = [{k: x for k, x in piece.items() if k != "checked"} for piece in pieces]
        return pieces[-1] | super().joined(by_step)  # only the last can have been checked

    def record(self, state: DiscoveryState, metrics: dict[str, PyTree], done: int) -> Record:
        played: dict[str, dict[str, np.ndarray]] = metrics["played"]
        shown = [key for key in next(iter(played.values())) if key not in HIDDEN]
        means = {key: [_mean_of_finite(x[key]) for x in played.values()] for key in shown}
        return {
            "steps": self._steps(played, done),
            "returns": {name: _mean_return(x) for name, x in played.items()},
            **{key: float(np.mean(x)) for key, x in means.items()},
            "meta_update_norm": float(np.mean(metrics["moved"])),
            **{key: int(sum(x[key][-1].sum() for x in played.values())) for key in COUNTS},
            **metrics["checked"],
        }

    def _steps(self, played: dict[str, dict[str, np.ndarray]], done: int) -> int:
        """Environment steps of all agents that there were."""
        steps = 0
        for group in {part.place.env: part.group for part in self.parts}.values():
            last = jax.tree.map(lambda x: x[-1], played[group.task.name])
            seats = len(last["resets"])
            born = seats + int(np.sum(last["resets"] - last["over"]))  # and played since
            steps += seats * done * group.steps_per_meta_step + born * group.steps_of_newborns
        return steps

    def learned(self, state: DiscoveryState) -> PyTree:
        return state.rule, [seats.member.lifetime for seats in state.seats]

    # --- What is kept and told -------------------------------------------------------------------

    @property
    def name(self) -> str:
        return f"discover-{self.config.env_names[0]}"

    def require_keepable(self) -> None:
        rules.require_kind(self.start)

    def write_start(self, folder: RunFolder) -> None:
        rules.save_kept(folder, rules.START_FILE, self.start)

    @cached_property
    def rule_digest(self) -> str | None:
        return rules.digest(self.start)

    def before_saving(self, state: DiscoveryState, folder: RunFolder) -> None:
        rules.save_kept(folder, rules.RULE_FILE, kept_rule(state), self.config.suggested)

    def notes(self, resumed: bool = False) -> list[str]:
        tasks = {part.place.env: part.group.task for part in self.parts}.values()
        notes = [note for task in tasks for note in image_notes(task.name, task.observation)]
        hosts = (part.group.task.name for part in self.parts if is_outside(part))
        outside = list(dict.fromkeys(hosts)) if resumed else []
        notes += [HostRun.resumed_note.format(env=name) for name in outside]
        if self.config.ranges.entropy and not self.start.weighs_entropy:
            notes.append(
                f"{rules.kind_of(self.start)} has no entropy bonus of its own, so that lives do "
                "not differ in its weight (--lives entropy=…)."
            )
        return notes

    def describe(self, record: Record) -> str:
        standing = self.placement.standing
        return describe(record, self.updates) + (f" · {standing}" if standing else "")

    def draw(self, folder: RunFolder) -> None:
        plot_discovery(folder.metrics(), folder.path / "discovery.png")

    def result(self, outcome: Outcome[DiscoveryState], summary: Record) -> DiscoverResult:
        return DiscoverResult(
            done=outcome.done,
            curve=outcome.curve,
            summary=summary,
            rule=kept_rule(outcome.state),
            config=self.config,
        )

    def summary(self, outcome: Outcome[DiscoveryState]) -> dict[str, object]:
        state, last = outcome.state, outcome.curve[-1] if outcome.curve else {}
        checked = not np.isneginf(state.best_score)
        final_check = None
        if self.check is not None and checked and outcome.is_over:
            final_check = _described(self._judged(state.best))
        return {
            "envs": self.config.env_names,
            "agents": self.config.agents,
            "meta_steps": outcome.done,
            "environment_steps": last.get("steps", 0),
            "seconds": outcome.seconds,
            "steps_per_second": round(outcome.steps_per_second, 1),
            "resets": last.get("resets", 0),
            "skipped": last.get("skipped", 0),
            "best_score": float(state.best_score) if checked else None,
            "best_meta_step": int(state.best_step) if checked else outcome.done,
            "final_check": final_check,
            "rule_sha256": rules.digest(kept_rule(state)),
        }

    # --- One meta-step ---------------------------------------------------------------------------

    def _init(self) -> DiscoveryState:
        seats = tuple(part.new_seats(self.start, self.config.seed) for part in self.parts)
        rule, best = (jax.tree.map(jnp.copy, self.start) for _ in range(2))
        best_step, barren = (jnp.zeros((), jnp.int32) for _ in range(2))
        return DiscoveryState(
            rule=rule,
            seats=seats,
            best=best,
            best_score=jnp.asarray(-jnp.inf),
            best_step=best_step,
            barren=barren,
            optimiser_state=self._rule_optimiser.shared(self.start),
        )

    @cached_property
    def programs(self) -> Programs:
        return Programs(self.start)

    @cached_property
    def placement(self) -> Placement:
        if self.cluster.cluster is not None:
            return OnCluster(self.config, self.start, self.parts, self.cluster, self.tell)
        limited = as_bytes(self.config.memory_limit) if self.config.memory_limit else None
        threads = max(len(cores()), len({part.device for part in self.parts}))
        return InProcess(self.parts, self.programs, threads, limited)

    def _lower(self) -> dict[Likeness, dict[str, Lowered]]:
        return {part.likeness: self.programs.traced(part) for part in self.parts}

    def prepare(self) -> None:
        self.placement.prepare()

    def close(self) -> None:
        self.placement.close()

    def gathered(self, state: DiscoveryState) -> DiscoveryState:
        return dataclasses.replace(state, seats=self.placement.gathered(state.seats))

    @property
    def _rule_optimiser(self) -> RuleOptimiser:
        return RuleOptimiser.create(self.config)

    @cached_property
    def _step_rule(self) -> Callable[..., tuple[Rule, PyTree, Array]]:
        return jax.jit(self._rule_optimiser.step)

    def _meta_step(
        self, state: DiscoveryState, learning_rate: float
    ) -> tuple[DiscoveryState, dict[str, PyTree]]:
        """The state after a meta-step; what was played by environment, and how far the rule
        moved."""
        update, seats, played = self.placement.step(state.rule, state.seats)
        rule, optimiser_state, moved = self._step_rule(
            state.rule, update, state.optimiser_state, learning_rate
        )
        barren = jnp.where(update.agents > 0, 0, state.barren + 1)
        state = dataclasses.replace(
            state, rule=rule, seats=seats, barren=barren, optimiser_state=optimiser_state
        )
        return state, {"played": played, "moved": moved}

    # --- Checks ----------------------------------------------------------------------------------

    @cached_property
    def references(self) -> dict[str, Outcomes]:
        """What the rule is compared with."""
        return self._references()

    def _references(self, fresh: bool = False) -> dict[str, Outcomes]:
        assert self.check is not None
        start, baseline = self.check(self.start, fresh), self.check.baseline(fresh)
        return {"start": start, "baseline": baseline, "untrained": self.check.untrained(fresh)}

    def _judged(self, rule: Rule) -> dict[str, Outcomes]:
        """A rule and what it is compared with on fresh seeds, the same for all, and what has been
        gained since the start."""
        assert self.check is not None
        kept, others = self.check(rule, fresh=True), self._references(fresh=True)
        gain = {name: x.minus(others["start"][name]) for name, x in kept.items()}
        return {"returns": kept, "gain": gain} | others

    def score(self, outcomes: Outcomes) -> np.float32:
        """What rules are compared by: how their agents end in the population's environments, or
        all of their lives in those that are there to select by."""
        baseline, untrained = self.references["baseline"], self.references["untrained"]
        others, by = self.config.select_on_names, self.config.distinct_envs
        return np.float32(score(outcomes, baseline, untrained, others or by, bool(others)))

    def _checked(self, state: DiscoveryState, done: int) -> tuple[DiscoveryState, Record]:
        """Checks the rule every so often, and at the end; the best one is kept."""
        if self.check is None or (done % self.config.check_every and done < self.updates):
            return state, {}
        if np.isneginf(state.best_score):
            state = _with_best(state, self.start, self.score(self.references["start"]), 0)
        outcomes = self.check(state.rule)
        value = self.score(outcomes)
        if value > np.float32(state.best_score):
            state = _with_best(state, state.rule, value, done)
        scores = {"score": float(value), "best": float(state.best_score)}
        return state, {"check": scores | _described({"returns": outcomes} | self.references)}


def _described(found: dict[str, Outcomes]) -> Record:
    return {
        what: {name: outcome.describe() for name, outcome in outcomes.items()}
        for what, outcomes in found.items()
    }


def _with_best(state: DiscoveryState, rule: Rule, value: np.float32, step: int) -> DiscoveryState:
    best, at = jax.tree.map(jnp.copy, rule), jnp.asarray(step, jnp.int32)
    return dataclasses.replace(state, best=best, best_score=jnp.asarray(value), best_step=at)


def _mean_return(played: dict[str, np.ndarray]) -> float | None:
    episodes = played["episodes"].sum()
    return float(played["episode_return"].sum() / episodes) if episodes else None


def _mean_of_finite(x: np.ndarray) -> float:
    finite = x[np.isfinite(x)]
    return float(finite.mean()) if len(finite) else float("nan")


def kept_rule(state: DiscoveryState) -> Rule:
    """What a run has to show: the best rule, or before any check the latest."""
    return state.rule if np.isneginf(state.best_score) else state.best


COUNTS = ("resets", "skipped")
"""Metrics that count from the start of the run."""
HIDDEN = ("episodes", "episode_return", "over", *COUNTS)
"""Metrics that are shown in another form than their mean."""
