"""The held-out check: fresh agents, trained from scratch under the rule as it is now."""

import abc
import dataclasses
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import cached_property
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Key, PRNGKeyArray

from etude import stats
from etude.core.rule import Rule
from etude.core.types import Metrics
from etude.envs import HostTask, Task
from etude.meta.discovery.config import DiscoverConfig
from etude.meta.discovery.lives import draw_task, family_of, life_keys
from etude.rules.actor_critic import ActorCritic, ActorCriticConfig
from etude.runs.loop import advance_to_end
from etude.training.config import TrainPlan
from etude.training.host_run import HostRun
from etude.training.iteration import EpisodeLog, Training

CURVE = ("episodes", "episode_return")
LEAST_SPAN = 0.1
"""Where the baseline hardly learns, its gain counts as this share of the returns' size."""


@dataclasses.dataclass(frozen=True)
class Outcome:
    """How fresh agents did in one environment."""

    returns: np.ndarray
    """The mean return of each seed's last episodes; NaN if none ended."""
    area: np.ndarray | None = None
    """The mean of each seed's learning curve, if that is known; NaN if no episode ended."""

    @property
    def _seen(self) -> np.ndarray:
        return self.returns[np.isfinite(self.returns)]

    @property
    def mean(self) -> float:
        """Over the seeds that saw an episode end; NaN if none did."""
        return _mean_of_finite(self.returns)

    @property
    def mean_area(self) -> float:
        """The same of whole lives; of agents that never change, their last episodes will do."""
        return self.mean if self.area is None else _mean_of_finite(self.area)

    def minus(self, other: "Outcome") -> "Outcome":
        """How much better agents did than others, seed by seed: of the same rule, exactly 0."""
        returns = self.returns - other.returns
        if self.area is None or other.area is None:
            return Outcome(returns)
        return Outcome(returns, self.area - other.area)

    def describe(self) -> dict[str, float | None]:
        if not len(self._seen):
            return {"mean": None, "low": None, "high": None}
        low, high = stats.bootstrap_interval([np.array([x]) for x in self._seen])
        found: dict[str, float | None] = {"mean": self.mean, "low": low, "high": high}
        return found if self.area is None else found | {"area": _mean_of_finite(self.area)}


def _mean_of_finite(x: np.ndarray) -> float:
    finite = x[np.isfinite(x)]
    return float(finite.mean()) if len(finite) else float("nan")


Outcomes = dict[str, Outcome]
"""By the environment's name."""


class Check:
    """Trains agents of the population's kind in each environment, on the same seeds every time,
    which draw the same tasks. All have the same habits, however lives differ."""

    def __init__(self, tasks: Sequence[Task], config: DiscoverConfig):
        self._config = config
        self._actor_critic = ActorCritic(ActorCriticConfig(discount=config.value_discount))
        trainings = {t.name: Training.create(t, _plan(config, t.name)) for t in tasks}
        self._trials = {name: self._trials_in(x) for name, x in trainings.items()}

    @property
    def names(self) -> list[str]:
        return list(self._trials)

    def trace(self, rule: Rule) -> None:
        """Lets mistakes surface without running anything."""
        for trials in self._trials.values():
            for any_rule in (rule, self._actor_critic):
                trials.trace(any_rule)

    def __call__(self, rule: Rule, fresh: bool = False) -> Outcomes:
        """How agents do under the rule; if `fresh`, on seeds that no rule was chosen by."""
        return {name: _outcome(trials.train(rule, fresh)) for name, trials in self._trials.items()}

    def baseline(self, fresh: bool = False) -> Outcomes:
        """How the actor-critic does with the same network, batches and step size."""
        return self(self._actor_critic, fresh)

    def untrained(self, fresh: bool = False) -> Outcomes:
        """How agents do that never learn."""
        critic = self._actor_critic
        return {name: _outcome(trials.play(critic, fresh)) for name, trials in self._trials.items()}

    def _trials_in(self, training: Training) -> "Trials":
        kind = HostTrials if isinstance(training.task, HostTask) else JaxTrials
        return kind(training, self._config)


@dataclasses.dataclass(frozen=True)
class Trials(abc.ABC):
    """How episodes end for fresh agents in one environment."""

    training: Training
    config: DiscoverConfig

    @abc.abstractmethod
    def trace(self, rule: Rule) -> None: ...

    @abc.abstractmethod
    def train(self, rule: Rule, fresh: bool) -> "Lived": ...

    @abc.abstractmethod
    def play(self, rule: Rule, fresh: bool) -> "Lived":
        """Without learning anything."""


class Lived(NamedTuple):
    """The lives of fresh agents, one per seed."""

    episodes: EpisodeLog
    """The last of them."""
    curve: Metrics | None = None
    """Of every update: how many episodes ended, and the sum of their returns."""


Program = Callable[[Rule, Key[Array, " seeds"]], Lived]


class JaxTrials(Trials):
    def trace(self, rule: Rule) -> None:
        jax.eval_shape(self._train, rule, self._keys())

    def train(self, rule: Rule, fresh: bool) -> Lived:
        return self._train(rule, self._keys(fresh))

    def play(self, rule: Rule, fresh: bool) -> Lived:
        return self._play(rule, self._keys(fresh))

    @cached_property
    def _train(self) -> Program:
        return self._program()

    @cached_property
    def _play(self) -> Program:
        return self._program(learn=False)

    def _keys(self, fresh: bool = False) -> Key[Array, " seeds"]:
        seeds = self.config.check_seeds
        keys = jax.random.split(jax.random.key(self.config.seed), 2 * seeds if fresh else seeds)
        return keys[-seeds:]

    def _program(self, learn: bool = True) -> Program:
        updates = self.config.check_updates
        family = family_of(self.training.task, self.config)

        def train(rule: Rule, key: PRNGKeyArray) -> Lived:
            training = self.training
            if family is not None:
                training = training.with_params(draw_task(family, life_keys(key)[0]))
            state = training.init(rule, key)
            if learn:
                state, logs = training.run(rule, state, updates, updates)
                return Lived(state.world.episodes, {name: logs[name] for name in CURVE})

            def play(world, key):
                return training.play(state.learner.player(rule), world, key)[0], None

            world, _ = jax.lax.scan(play, state.world, jax.random.split(key, updates))
            return Lived(world.episodes)

        return jax.jit(jax.vmap(train, in_axes=(None, 0)))


class HostTrials(Trials):
    """By ordinary training runs."""

    def trace(self, rule: Rule) -> None:
        self._run_like(rule).trace()

    def train(self, rule: Rule, fresh: bool) -> Lived:
        with closing(self._run(rule, fresh)) as run:
            return Lived(advance_to_end(run).state.world.episodes)

    def play(self, rule: Rule, fresh: bool) -> Lived:
        with closing(self._run(rule, fresh)) as run:
            return Lived(run.played(self.config.check_updates))

    @cached_property
    def _runs(self) -> dict[object, HostRun]:
        """One for each form of rule, with programs that serve all others of the form."""
        return {}

    def _run(self, rule: Rule, fresh: bool) -> HostRun:
        seed = np.random.SeedSequence([self.config.seed, fresh]).generate_state(1)[0] // 2
        return self._run_like(rule).again(rule, int(seed))

    def _run_like(self, rule: Rule) -> HostRun:
        config, form = self.config, jax.tree.structure(rule)
        if form not in self._runs:
            plan = dataclasses.replace(
                self.training.config,
                seeds=config.check_seeds,
                steps=self.training.config.steps_after(config.check_updates),
                log_every=config.check_updates,
            )
            assert isinstance(self.training.task, HostTask)
            self._runs[form] = HostRun(self.training.task, rule, plan, self.training)
        return self._runs[form]


def _plan(config: DiscoverConfig, env: str) -> TrainPlan:
    """How an agent of the population learns whose life is as long as a check."""
    plan = config.training(env)
    return dataclasses.replace(plan, steps=plan.steps_after(config.check_updates))


def _outcome(lived: Lived) -> Outcome:
    last = lived.episodes.last()
    returns = np.array([x.mean() if len(x) else np.nan for x in last], float)
    if lived.curve is None:
        return Outcome(returns)
    return Outcome(returns, area(*(np.asarray(lived.curve[name], float) for name in CURVE)))


def area(episodes: np.ndarray, total: np.ndarray) -> np.ndarray:
    """The mean over updates (the last axis) of the mean return of the episodes that ended at each.
    Where none ended, the last ones before count on, or to begin with the first."""
    ended = episodes > 0
    latest = np.maximum.accumulate(np.where(ended, np.arange(ended.shape[-1]), -1), axis=-1)
    first = np.argmax(ended, axis=-1)[..., None]
    known = np.where(latest < 0, first, latest)
    with np.errstate(invalid="ignore"):
        curve = np.where(ended, total / np.maximum(episodes, 1), np.nan)
    return np.take_along_axis(curve, known, axis=-1).mean(axis=-1)


def score(
    outcomes: Outcomes,
    baseline: Outcomes,
    untrained: Outcomes,
    names: list[str],
    whole_lives: bool = False,
) -> float:
    """The mean return over environments, scaled: 0 is an untrained agent, 1 the baseline. It is
    that of agents' last episodes or, if `whole_lives` count, the area under their curves.

    An environment in which no episode ends says nothing and is left out.
    """
    shares = []

    def worth(of: Outcome) -> float:
        return of.mean_area if whole_lives else of.mean

    for name in names:
        floor, top = worth(untrained[name]), worth(baseline[name])
        span = max(top - floor, LEAST_SPAN * max(abs(floor), abs(top), 1.0))
        shares.append((worth(outcomes[name]) - floor) / span)
    shares = [x for x in shares if np.isfinite(x)]
    return float(np.mean(shares)) if shares else -np.inf
