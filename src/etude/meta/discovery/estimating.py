"""How a discovery's settings choose an estimator, and what it is told of how well a rule does."""

import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from etude.core.rule import Rule
from etude.core.types import Rollout
from etude.meta.discovery.config import DiscoverConfig
from etude.meta.estimators import ByEvolution, ByGradient, Estimator, Mixed
from etude.meta.evolution import Evolution

LUCK_KEY = 1
"""Folded into the key of a window for all that evolution draws."""


def estimator_of(config: DiscoverConfig, rule: Rule) -> Estimator[Rule]:
    """What tells the rule where to go."""
    evolution = Evolution(config.es_pairs, config.es_deviation, config.es_fitness)
    if config.estimator == "es":
        return ByEvolution(evolution)
    if config.estimator == "mixed":
        return Mixed(evolution, rule.scheduled, config.mixed_mode)
    return ByGradient(config.mixed_mode)


def rewards_per_episode(*rollouts: Rollout) -> Float[Array, ""]:
    """All rewards, divided by the number of episodes, those among them that go on at the end. Any
    axes before time and trajectories are as good as time."""
    rewards = [jnp.sum(jnp.where(x.seam, 0.0, x.reward)) for x in rollouts]
    episodes = [jnp.sum(x.terminal | x.seam) + x.reward.shape[-1] for x in rollouts]
    return sum(rewards, jnp.zeros(())) / sum(episodes)


def not_lived_again(rule: Rule, key: PRNGKeyArray) -> Float[Array, ""]:
    raise NotImplementedError("a window that was played outside JAX is not played again")
