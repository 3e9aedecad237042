"""REINFORCE (Williams 1992): the simplest rule, no value function at all."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from etude.core.agent import Agent, Heads
from etude.core.distributions import entropy, log_prob
from etude.core.moments import Moments
from etude.core.returns import lambda_returns
from etude.core.rule import Rule
from etude.core.types import Metrics, Rollout
from etude.settings import check_types, is_cost, is_share, require


@dataclasses.dataclass(frozen=True)
class PolicyGradientConfig:
    discount: float = 0.99
    """γ of the returns."""
    entropy_cost: float = 0.01
    """Weight of the entropy bonus."""

    def __post_init__(self):
        check_types(self)
        require(self, "discount", is_share, "from 0 to 1")
        require(self, "entropy_cost", is_cost, "0 or more")


class PolicyGradientTargets(eqx.Module):
    weight: Float[Array, "T B"]


class PolicyGradient(Rule[Moments, PolicyGradientTargets]):
    """Each action's log-probability weighted by the discounted reward that followed it.

    The baseline is the mean return over the agent's lifetime, the scale its standard deviation.
    What comes after the rollout's end is not seen, so rollouts should span an episode or more.
    """

    config: PolicyGradientConfig = eqx.field(static=True)

    def __init__(
        self,
        config: PolicyGradientConfig = PolicyGradientConfig(),
        *,
        key: PRNGKeyArray | None = None,
    ):
        del key  # nothing is random here
        self.config = config

    def heads(self, num_actions: int) -> Heads:
        return Heads(state={"pi": num_actions})

    def init(self, agent: Agent) -> Moments:
        return Moments.zero()

    def targets(
        self, agent: Agent, state: Moments, rollout: Rollout
    ) -> tuple[PolicyGradientTargets, Moments]:
        zeros = jnp.zeros_like(rollout.reward)
        discount = rollout.discount(self.config.discount)
        returns = lambda_returns(zeros, rollout.reward, discount, jnp.ones_like(zeros))
        state = state.update(rollout.mean(returns), rollout.mean(returns**2))
        rho = rollout.importance_ratio(agent.logits(rollout)[:-1])
        weight = jnp.minimum(1.0, rho) * state.normalise(returns)
        return jax.lax.stop_gradient(PolicyGradientTargets(weight)), state

    def loss(
        self, agent: Agent, targets: PolicyGradientTargets, rollout: Rollout
    ) -> tuple[Float[Array, "T B"], Metrics]:
        logits = agent.logits(rollout)[:-1]
        pi_loss = -targets.weight * log_prob(logits, rollout.action)
        bonus = entropy(logits)
        metrics = {"pi_loss": rollout.mean(pi_loss), "entropy": rollout.mean(bonus)}
        return pi_loss - self.config.entropy_cost * bonus, metrics
