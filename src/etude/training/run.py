"""A training run: agents that learn under a rule which stays as it is."""

import dataclasses
import math
from functools import cached_property
from typing import ClassVar, Protocol, TypeVar, runtime_checkable

import jax
import numpy as np
from jaxtyping import Array, Int, PRNGKeyArray, PyTree

from etude import envs, rules, stats
from etude.core.agent import Agent
from etude.core.torso import image_notes
from etude.core.types import Metrics
from etude.envs import HostTask, JaxTask, Task, catalogue
from etude.errors import UserError
from etude.placing import devices
from etude.rules import Rule
from etude.runs.figures import has_curve, label_of, plot_curves
from etude.runs.folder import RunFolder
from etude.runs.run import Outcome, Record, Result
from etude.runs.storage import sha256_of
from etude.settings import split_spec
from etude.training.config import BASE, MOST_PER_LINE, ONLINE, TrainPlan
from etude.training.evaluation import evaluate
from etude.training.iteration import (
    LAST_EPISODES,
    OBSERVATION,
    Training,
    TrainState,
    seed_keys,
)
from etude.training.planning import read_plan
from etude.training.sharing import SharedBatch, Sharing
from etude.training.side_by_side import ByUpdate, SideBySide
from etude.training.trained import TrainedAgent

State = TypeVar("State", bound=TrainState)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainResult(Result):
    """What training has come to."""

    task: Task
    rule: Rule
    """That of the run; of several that have learned, the one whose agent did best in the end."""
    config: TrainPlan
    agents: Agent
    """The trained agents; each leaf has the seeds as its first axis."""

    def agent(self, index: int = 0) -> Agent:
        """One of the trained agents."""
        return jax.tree.map(lambda x: x[index], self.agents)


@runtime_checkable
class AgentTraining(Protocol[State]):
    """How one agent is trained: as in `Training`, by pure functions."""

    def init(self, rule: Rule, key: PRNGKeyArray) -> State: ...

    def run(
        self, rule: Rule, state: State, number: int | Int[Array, ""], room: int
    ) -> tuple[State, Metrics]: ...


@dataclasses.dataclass(frozen=True)
class TrainRun(SideBySide[State, TrainResult]):
    """Agents trained side by side, each from its own seed, under one rule."""

    kind: ClassVar[str] = "train"
    impossible: ClassVar[str] = "{rule} cannot be trained on {env}"
    must_be_finite: ClassVar[tuple[str, ...]] = (OBSERVATION, "reward", "loss", "gradient_norm")

    task: Task
    rule: Rule
    config: TrainPlan
    training: AgentTraining

    @classmethod
    def untraced(
        cls, config: TrainPlan, *, task: Task | None = None, rule: Rule | None = None
    ) -> "TrainRun":
        """Finds environment and rule, unless they are given."""
        task = envs.make(config.env) if task is None else task
        if rule is None:
            rule = rules.maker(config.rule, task.observation)(jax.random.key(config.seed))
        training = Training.create(task, config)
        if isinstance(task, HostTask):
            from etude.training.host_run import HostRun

            require_one_device(config)
            return HostRun(task, rule, config, training)
        if config.workers:
            raise UserError(f"--workers is for simulators outside JAX; {config.env} runs in it.")
        if config.seeds == 1:
            training = training.shared_out(devices.mesh())
        return cls(task, rule, config, training)

    @classmethod
    def reopened(cls, folder: RunFolder, end: int | None = None) -> "TrainRun":
        return cls.create(read_plan(folder, end), rule=cls.kept_start(folder))

    @classmethod
    def kept_start(cls, folder: RunFolder) -> Rule | None:
        """The rule that a folder starts from; None if its name makes it."""
        return rules.load_kept(folder, rules.RULE_FILE)

    @property
    def updates(self) -> int:
        return self.config.updates

    @property
    def max_seconds(self) -> float:
        return self.config.max_seconds or math.inf

    def steps_after(self, updates: int) -> int:
        return self.config.steps_after(updates)

    def given(self) -> Rule:
        return self.rule

    @property
    def part(self) -> int:
        return self.config.part

    @cached_property
    def sharing(self) -> Sharing[State]:
        training = self.training
        if isinstance(training, Training) and (mesh := training.mesh) is not None:
            return SharedBatch(mesh, training.layout(self.shapes(), mesh))
        return super().sharing

    def _init(self) -> State:
        """Fresh agents."""
        init = jax.vmap(self.training.init, in_axes=(self.given_axis, 0))
        return init(self.rule, seed_keys(self.config.seed, self.config.seeds))

    def updated(self, given: Rule, state: State, number: Int[Array, ""]) -> tuple[State, Metrics]:
        return self.training.run(given, state, number, self.log_every)

    def record(self, state: State, metrics: ByUpdate, done: int) -> Record:
        """Means over the updates since the last record, and over seeds."""
        metrics, last = dict(metrics), state.world.episodes.last()
        metrics.pop(OBSERVATION, None)  # it is finite
        ended = metrics.pop("episodes").sum(axis=0)
        totals = {name: metrics.pop(f"episode_{name}").sum(axis=0) for name in ("return", "length")}
        returns, lengths = (
            np.divide(total, ended, where=ended > 0, out=np.full(len(ended), np.nan))
            for total in totals.values()
        )
        return {
            "steps": self.steps_after(done),
            "return": _mean(returns),
            "returns": returns.tolist(),
            "last_returns": [float(x.mean()) if len(x) else np.nan for x in last],
            "episode_length": _mean(lengths),
            "episodes": int(ended.sum()),
            **{name: float(np.mean(x)) for name, x in metrics.items()},
        }

    def learned(self, state: State) -> PyTree:
        return state.learner

    def kept_rule(self, state: State) -> Rule:
        """The rule that the run has to show."""
        return self.rule

    # --- What is kept and told -------------------------------------------------------------------

    @property
    def name(self) -> str:
        return f"{self.config.env}-{split_spec(self.config.rule)[0]}"

    def settings(self) -> Record:
        return self.config.settings()

    def default_settings(self) -> Record:
        return BASE | ONLINE | {"log_every": MOST_PER_LINE}

    def require_keepable(self) -> None:
        rules.require_kind(self.rule)

    def write_start(self, folder: RunFolder) -> None:
        rules.save_kept(folder, rules.RULE_FILE, self.rule)

    @cached_property
    def rule_digest(self) -> str | None:
        return rules.digest(self.rule)

    def notes(self, resumed: bool = False) -> list[str]:
        assert isinstance(self.task, JaxTask)
        notes = image_notes(self.config.env, self.task.observation)
        if getattr(self.task.params, "max_steps_in_episode", None) == 1:
            notes.append(
                "Note: every episode is cut after 1 step, gymnax's default; if that is not meant, "
                "give the environment `default_params` with another max_steps_in_episode."
            )
        why = catalogue.caution(self.config.env, memory=self.config.memory != "none")
        return notes if why is None else [*notes, f"Note: this is known not to learn: {why}"]

    def describe(self, record: Record) -> str:
        total = self.steps_after(self.updates)
        last = [x for x in (record["return"], *record["last_returns"]) if np.isfinite(x)]
        told = f"return {last[0]:.3g}" if last else "no episode has ended yet"
        return f"{record['steps']:,} of {total:,} steps · {told}"

    def summary(self, outcome: Outcome[State]) -> Record:
        config, last = self.config, outcome.state.world.episodes.last()
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
            **self.work_done(outcome),
            **self._evaluation(outcome),
            "rule_sha256": rules.digest(self.kept_rule(outcome.state)),
            "params_sha256": sha256_of(outcome.state.learner.agent),
        }

    def _evaluation(self, outcome: Outcome[State]) -> Record:
        """For the summary of a run that was not stopped."""
        config, state = self.config, outcome.state
        if not config.eval_episodes or not outcome.is_over:
            return {}
        agents = state.learner.agent
        found = evaluate(self.task, self.acting_rule(state), agents, self.given_axis, config)
        return {"evaluation": found}

    def acting_rule(self, state: State) -> Rule:
        """The rule that trained agents act under; of rules that learn, that of each seed."""
        return self.rule

    def result(self, outcome: Outcome[State], summary: Record) -> TrainResult:
        return TrainResult(
            done=outcome.done,
            curve=outcome.curve,
            summary=summary,
            task=self.task,
            rule=self.kept_rule(outcome.state),
            config=self.config,
            agents=outcome.state.learner.agent,
        )

    def draw(self, folder: RunFolder) -> None:
        records = folder.metrics()
        if has_curve(records):
            plot_curves([(label_of(self.settings()), records)], folder.path / "curve.png")

    def trained_agents(self, folder: RunFolder) -> list[TrainedAgent]:
        """Those of the last checkpoint."""
        agents = folder.kept(self.shapes().learner.agent, "learner.agent")
        each = [jax.tree.map(lambda x, i=i: x[i], agents) for i in range(self.config.seeds)]
        return [TrainedAgent(*pair) for pair in zip(each, self._kept_rules(folder), strict=True)]

    def _kept_rules(self, folder: RunFolder) -> list[Rule]:
        """The rule of each seed, as of the last checkpoint."""
        return [self.rule] * self.config.seeds


def require_one_device(config: TrainPlan) -> None:
    """Refuses what is for environments in JAX alone."""
    for asked, name in ((devices.mesh().size > 1, "--devices"), (config.part, "--part")):
        if asked:
            raise UserError(f"{name} is for environments in JAX; {config.env} runs outside it.")


def _mean(x: np.ndarray) -> float:
    return float(np.mean(x[np.isfinite(x)])) if np.isfinite(x).any() else float("nan")
