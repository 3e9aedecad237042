"""PPO (Schulman et al., arXiv 1707.06347): several passes over a batch, none of which goes far."""

import dataclasses
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from etude.core.agent import Agent, Heads
from etude.core.distributions import entropy, log_prob
from etude.core.moments import Moments
from etude.core.returns import clipped_objective, gae
from etude.core.rule import Rule
from etude.core.types import Metrics, Rollout
from etude.ranges import DISCOUNT, ENTROPY_COST, TRACE, VALUE_COST, Choice, Ranges
from etude.settings import check


@dataclasses.dataclass(frozen=True)
class PPOConfig:
    discount: float = 0.99
    """γ of the returns."""
    td_lambda: float = 0.95
    """λ of the advantages: 1 relies on the rewards seen, 0 on the value of the next state."""
    clip: float = 0.2
    """How far from 1 the ratio π/μ may go before the objective is clipped."""
    value_clip: float = 0.0
    """How far a value may move per update, in standard deviations of the returns, before its loss
    is clipped; 0: no clipping."""
    entropy_cost: float = 0.01
    """Weight of the entropy bonus."""
    value_cost: float = 0.5
    """Weight of the value loss."""
    normalise: bool = True
    """Whether advantages are centred and scaled within each minibatch."""
    scale_values: bool = True
    """Whether values are learned in units of the returns' running mean and standard deviation,
    which suits rewards of any scale."""

    def __post_init__(self):
        costs = "value_clip entropy_cost value_cost"
        check(self, share="discount td_lambda", positive="clip", cost=costs)


class PPOTargets(eqx.Module):
    advantage: Float[Array, "T B"]
    value: Float[Array, "T B"]
    """What the value head should say, in its own units."""
    old_value: Float[Array, "T B"]
    """What it said before the update."""


class PPO(Rule[Moments, PPOTargets]):
    """Clipped policy gradient with generalised advantages; made for several --epochs. It has no η.

    The old policy is the one that acted, so experience older than the last update is clipped
    accordingly.
    """

    ranges: ClassVar[Ranges] = {
        "discount": DISCOUNT,
        "td_lambda": TRACE,
        "clip": Choice((0.1, 0.2, 0.3)),
        "entropy_cost": ENTROPY_COST,
        "value_cost": VALUE_COST,
    }
    searched = ("epochs", "minibatches")
    config: PPOConfig = eqx.field(static=True)

    def __init__(self, config: PPOConfig = PPOConfig(), *, key: PRNGKeyArray | None = None):
        del key  # nothing is random here
        self.config = config

    def heads(self, num_actions: int) -> Heads:
        return Heads(state={"pi": num_actions, "value": 1})

    def init(self, agent: Agent) -> Moments:
        return Moments.zero()

    def targets(self, agent: Agent, state: Moments, rollout: Rollout) -> tuple[PPOTargets, Moments]:
        config = self.config
        said = agent.predict(agent.unroll(rollout))["value"][..., 0]
        offset, scale = self._units(state)
        trace = jnp.where(rollout.segment_ends, 0.0, config.td_lambda)
        values = offset + scale * said
        advantage = gae(values, rollout.reward, rollout.discount(config.discount), trace)
        returns = values[:-1] + advantage
        state = state.update(rollout.mean(returns), rollout.mean(jnp.square(returns)))
        offset, scale = self._units(state)
        targets = PPOTargets(advantage, (returns - offset) / scale, said[:-1])
        return jax.lax.stop_gradient(targets), state

    def loss(
        self, agent: Agent, targets: PPOTargets, rollout: Rollout
    ) -> tuple[Float[Array, "T B"], Metrics]:
        config = self.config
        prediction = agent.predict(agent.unroll(rollout))
        logits, said = prediction["pi"][:-1], prediction["value"][:-1, :, 0]
        advantage = targets.advantage
        if config.normalise:
            advantage = rollout.standardised(advantage)
        before = log_prob(rollout.behaviour_logits[:-1], rollout.action)
        now = log_prob(logits, rollout.action)
        pi_loss = -clipped_objective(now, before, advantage, config.clip)
        value_loss = 0.5 * self._value_error(said, targets)
        bonus = entropy(logits)
        total = pi_loss + config.value_cost * value_loss - config.entropy_cost * bonus
        clipped = (jnp.abs(jnp.exp(now - before) - 1.0) > config.clip).astype(total.dtype)
        metrics = {
            "pi_loss": pi_loss,
            "value_loss": value_loss,
            "entropy": bonus,
            "clipped": jax.lax.stop_gradient(clipped),
        }
        return total, {name: rollout.mean(x) for name, x in metrics.items()}

    def _value_error(self, said: Float[Array, "T B"], targets: PPOTargets) -> Float[Array, "T B"]:
        error = jnp.square(said - targets.value)
        if not self.config.value_clip:
            return error
        step = jnp.clip(said - targets.old_value, -self.config.value_clip, self.config.value_clip)
        return jnp.maximum(error, jnp.square(targets.old_value + step - targets.value))

    def _units(self, state: Moments) -> tuple[Float[Array, ""] | float, Float[Array, ""] | float]:
        """Where values are counted from and in what units; before the first update, plain."""
        if not self.config.scale_values:
            return 0.0, 1.0
        return state.units()
