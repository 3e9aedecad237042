"""How the agents of a population learn, where each has its own way."""

import equinox as eqx
import jax
import optax
from jaxtyping import Array, Float, PRNGKeyArray

from etude.core.rule import Rule
from etude.envs.draws import log_uniform
from etude.meta.discovery.life_ranges import Lives


class Habits(eqx.Module):
    """How an agent learns, where that is its own: constants of its life."""

    pace: Float[Array, "*agents"] | None = None
    """Its step size, relative to that of its optimiser."""
    entropy_cost: Float[Array, "*agents"] | None = None
    """The weight of entropy in the rule's loss."""

    @staticmethod
    def draw(lives: Lives, learning_rate: float, key: PRNGKeyArray) -> "Habits | None":
        """None if all lives are alike."""
        pace_key, entropy_key = jax.random.split(key)
        rates, costs = lives.learning_rate, lives.entropy
        if rates is None and costs is None:
            return None
        return Habits(
            None if rates is None else log_uniform(pace_key, *rates) / learning_rate,
            None if costs is None else log_uniform(entropy_key, *costs),
        )

    def rule(self, rule: Rule) -> Rule:
        """As the agent is updated under it."""
        if self.entropy_cost is None or not rule.weighs_entropy:
            return rule
        return rule.with_entropy_cost(self.entropy_cost)

    def optimiser(self, optimiser: optax.GradientTransformation) -> optax.GradientTransformation:
        pace = self.pace
        if pace is None:
            return optimiser

        def update(updates, state, params=None):
            updates, state = optimiser.update(updates, state, params)
            return jax.tree.map(lambda x: pace.astype(x.dtype) * x, updates), state

        return optax.GradientTransformation(optimiser.init, update)
