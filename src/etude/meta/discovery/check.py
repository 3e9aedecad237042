"""The held-out check: fresh agents, trained from scratch under the rule as it is now."""

import dataclasses
from collections.abc import Sequence

import jax
import numpy as np
from jaxtyping import Array, Key, PRNGKeyArray

from etude import stats
from etude.core.rule import Rule
from etude.envs import Task
from etude.meta.discovery.config import DiscoverConfig
from etude.rules.actor_critic import ActorCritic, ActorCriticConfig
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

    def describe(self) -> dict[str, float | None]:
        if not len(self._seen):
            return {"mean": None, "low": None, "high": None}
        low, high = stats.bootstrap_interval([np.array([x]) for x in self._seen])
        return {"mean": self.mean, "low": low, "high": high}


Outcomes = dict[str, Outcome]
"""By the environment's name."""


class Check:
    """Trains agents of the population's kind in each environment, on the same seeds every time."""

    def __init__(self, tasks: Sequence[Task], config: DiscoverConfig):
        self._config = config
        self._actor_critic = ActorCritic(ActorCriticConfig(discount=config.value_discount))
        trainings = {t.name: Training.create(t, config.training(t.name)) for t in tasks}
        self._train = {name: self._program(x) for name, x in trainings.items()}
        self._play = {name: self._program(x, learn=False) for name, x in trainings.items()}

    def trace(self, rule: Rule) -> None:
        """Lets mistakes surface without running anything."""
        for program in self._train.values():
            for any_rule in (rule, self._actor_critic):
                jax.eval_shape(program, any_rule, self._keys())

    def __call__(self, rule: Rule, fresh: bool = False) -> Outcomes:
        """How agents do under the rule; if `fresh`, on seeds that no rule was chosen by."""
        keys = self._keys(fresh)
        return {name: _outcome(train(rule, keys)) for name, train in self._train.items()}

    def baseline(self, fresh: bool = False) -> Outcomes:
        """How the actor-critic does with the same network, batches and step size."""
        return self(self._actor_critic, fresh)

    def untrained(self, fresh: bool = False) -> Outcomes:
        """How agents do that never learn."""
        keys = self._keys(fresh)
        return {name: _outcome(play(self._actor_critic, keys)) for name, play in self._play.items()}

    def _keys(self, fresh: bool = False) -> Key[Array, " seeds"]:
        seeds = self._config.check_seeds
        keys = jax.random.split(jax.random.key(self._config.seed), 2 * seeds if fresh else seeds)
        return keys[-seeds:]

    def _program(self, training: Training, learn: bool = True):
        updates = self._config.check_updates

        def train(rule: Rule, key: PRNGKeyArray) -> EpisodeLog:
            state = training.init(rule, key)
            if learn:
                return training.run(rule, state, updates, updates)[0].world.episodes

            def play(world, key):
                return training.play(state.learner.agent, world, key)[0], None

            world, _ = jax.lax.scan(play, state.world, jax.random.split(key, updates))
            return world.episodes

        return jax.jit(jax.vmap(train, in_axes=(None, 0)))


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
