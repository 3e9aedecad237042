"""The held-out check: fresh agents, trained from scratch under the rule as it is now."""

import abc
import dataclasses
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import cached_property

import jax
import numpy as np
from jaxtyping import Array, Key, PRNGKeyArray

from etude import stats
from etude.core.rule import Rule
from etude.envs import HostTask, Task
from etude.meta.discovery.config import DiscoverConfig
from etude.meta.discovery.lives import draw_task, family_of, life_keys
from etude.rules.actor_critic import ActorCritic, ActorCriticConfig
from etude.runs.loop import advance_to_end
from etude.training.config import TrainPlan
from etude.training.host_run import HostRun
from etude.training.iteration import EpisodeLog, Training

LEAST_SPAN = 0.1
"""Where the baseline hardly learns, its gain counts as this share of the returns' size."""


@dataclasses.dataclass(frozen=True)
class Outcome:
    """How fresh agents did in one environment."""

    returns: np.ndarray
    """The mean return of each seed's last episodes; NaN if none ended."""

    @property
    def _seen(self) -> np.ndarray:
        return self.returns[np.isfinite(self.returns)]

    @property
    def mean(self) -> float:
        """Over the seeds that saw an episode end; NaN if none did."""
        return float(self._seen.mean()) if len(self._seen) else float("nan")

    def minus(self, other: "Outcome") -> "Outcome":
        """How much better agents did than others, seed by seed: of the same rule, exactly 0."""
        return Outcome(self.returns - other.returns)

    def describe(self) -> dict[str, float | None]:
        if not len(self._seen):
            return {"mean": None, "low": None, "high": None}
        low, high = stats.bootstrap_interval([np.array([x]) for x in self._seen])
        return {"mean": self.mean, "low": low, "high": high}


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
    def train(self, rule: Rule, fresh: bool) -> EpisodeLog: ...

    @abc.abstractmethod
    def play(self, rule: Rule, fresh: bool) -> EpisodeLog:
        """Without learning anything."""


Program = Callable[[Rule, Key[Array, " seeds"]], EpisodeLog]


class JaxTrials(Trials):
    def trace(self, rule: Rule) -> None:
        jax.eval_shape(self._train, rule, self._keys())

    def train(self, rule: Rule, fresh: bool) -> EpisodeLog:
        return self._train(rule, self._keys(fresh))

    def play(self, rule: Rule, fresh: bool) -> EpisodeLog:
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

        def train(rule: Rule, key: PRNGKeyArray) -> EpisodeLog:
            training = self.training
            if family is not None:
                training = training.with_params(draw_task(family, life_keys(key)[0]))
            state = training.init(rule, key)
            if learn:
                return training.run(rule, state, updates, updates)[0].world.episodes

            def play(world, key):
                return training.play(state.learner.player(rule), world, key)[0], None

            world, _ = jax.lax.scan(play, state.world, jax.random.split(key, updates))
            return world.episodes

        return jax.jit(jax.vmap(train, in_axes=(None, 0)))


class HostTrials(Trials):
    """By ordinary training runs."""

    def trace(self, rule: Rule) -> None:
        self._run_like(rule).trace()

    def train(self, rule: Rule, fresh: bool) -> EpisodeLog:
        with closing(self._run(rule, fresh)) as run:
            return advance_to_end(run).state.world.episodes

    def play(self, rule: Rule, fresh: bool) -> EpisodeLog:
        with closing(self._run(rule, fresh)) as run:
            return run.played(self.config.check_updates)

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


def _outcome(log: EpisodeLog) -> Outcome:
    return Outcome(np.array([x.mean() if len(x) else np.nan for x in log.last()], float))


def score(outcomes: Outcomes, baseline: Outcomes, untrained: Outcomes, names: list[str]) -> float:
    """The mean return over environments, scaled: 0 is an untrained agent, 1 the baseline.

    An environment in which no episode ends says nothing and is left out.
    """
    shares = []
    for name in names:
        floor, top = untrained[name].mean, baseline[name].mean
        span = max(top - floor, LEAST_SPAN * max(abs(floor), abs(top), 1.0))
        shares.append((outcomes[name].mean - floor) / span)
    shares = [x for x in shares if np.isfinite(x)]
    return float(np.mean(shares)) if shares else -np.inf
