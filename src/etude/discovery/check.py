"""The held-out check: fresh agents, trained from scratch under the rule as it is now."""

import dataclasses
from typing import Any

import jax
import numpy as np

from etude import stats
from etude.discovery.config import DiscoverConfig
from etude.envs import Task
from etude.rules.actor_critic import ActorCritic, ActorCriticConfig
from etude.rules.base import Rule
from etude.training import LAST_EPISODES, Training, TrainState

FLOOR_SHARE = 0.1
"""The returns of this first part of the baseline's updates stand for an untrained agent."""


@dataclasses.dataclass(frozen=True)
class Outcome:
    """How fresh agents did in one environment."""

    returns: np.ndarray
    """The mean return of each seed's last episodes."""
    early: float
    """The mean return over the first updates."""

    def describe(self) -> dict[str, Any]:
        low, high = stats.bootstrap_interval([np.array([x]) for x in self.returns])
        return {"mean": float(self.returns.mean()), "low": low, "high": high}


class Check:
    """Trains agents of the population's kind in each environment. The same seeds every time."""

    def __init__(self, tasks: list[Task], config: DiscoverConfig):
        self._config = config
        self._programs = {
            task.name: jax.jit(self._program(Training.create(task, config.training(task.name))))
            for task in tasks
        }

    def __call__(self, rule: Rule) -> dict[str, Outcome]:
        return {name: self._outcome(program(rule)) for name, program in self._programs.items()}

    def baseline(self) -> dict[str, Outcome]:
        """How the actor-critic does with the same network, batches and step size."""
        return self(ActorCritic(ActorCriticConfig(discount=self._config.value_discount)))

    def _program(self, training: Training):
        updates, seeds = self._config.check_updates, self._config.check_seeds

        def train(rule: Rule, key: Any):
            return training.run(rule, training.init(rule, key), updates, updates)

        def program(rule: Rule):
            keys = jax.random.split(jax.random.key(self._config.seed), seeds)
            return jax.vmap(train, in_axes=(None, 0))(rule, keys)

        return program

    def _outcome(self, result: tuple[TrainState, dict[str, jax.Array]]) -> Outcome:
        state, metrics = result
        log, episodes, totals = jax.device_get(
            (state.world.episodes, metrics["episodes"], metrics["episode_return"])
        )
        first = max(1, round(FLOOR_SHARE * episodes.shape[1]))
        early = totals[:, :first].sum() / max(episodes[:, :first].sum(), 1)
        counts = np.minimum(log.count, LAST_EPISODES)
        returns = [
            row[:n].mean() if n else early for row, n in zip(log.returns, counts, strict=True)
        ]
        return Outcome(np.array(returns, float), float(early))


def score(outcomes: dict[str, Outcome], baseline: dict[str, Outcome], names: list[str]) -> float:
    """The mean return over environments, scaled: 0 is an untrained agent, 1 the baseline."""
    shares = []
    for name in names:
        floor, top = baseline[name].early, float(baseline[name].returns.mean())
        shares.append((float(outcomes[name].returns.mean()) - floor) / max(abs(top - floor), 1e-6))
    return float(np.mean(shares))
