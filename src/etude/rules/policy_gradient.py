"""REINFORCE (Williams 1992): the simplest rule, whose agents have no value head."""

import dataclasses
from typing import ClassVar, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from etude.core.agent import Agent, Heads
from etude.core.config import Surrogate
from etude.core.distributions import entropy, log_prob
from etude.core.moments import Moments
from etude.core.returns import gae, lambda_returns
from etude.core.rule import Rule
from etude.core.torso import Flatten
from etude.core.types import Metrics, Rollout
from etude.errors import UserError
from etude.ranges import DISCOUNT, ENTROPY_COST, TRACE, Choice, Ranges
from etude.rules.linear_baseline import linear_values
from etude.settings import check


@dataclasses.dataclass(frozen=True)
class PolicyGradientConfig:
    discount: float = 0.99
    """γ of the returns."""
    entropy_cost: float = 0.01
    """Weight of the entropy bonus."""
    baseline: Literal["mean", "linear"] = "mean"
    """What returns are compared with: their mean over the agent's lifetime, or values that are
    linear in observation and time, fitted to each batch (made for several episodes per batch)."""
    td_lambda: float = 0.95
    """λ of the advantages over linear values."""
    surrogate: Surrogate = "plain"
    """plain: −log π·A; lvc: −(π/π̄)·A with π̄ = π held constant; dice: the ratio of all actions of
    the episode so far. Their gradients are the same; a meta-gradient through them is not."""

    def __post_init__(self):
        check(self, share="discount td_lambda", cost="entropy_cost")
        if self.baseline == "mean" and self.td_lambda != PolicyGradientConfig.td_lambda:
            raise UserError("td_lambda is for baseline=linear: returns have no λ.")


class PolicyGradientTargets(eqx.Module):
    weight: Float[Array, "T B"]


class PolicyGradient(Rule[Moments, PolicyGradientTargets]):
    """Each action's log-probability weighted by the discounted reward that followed it.

    Returns are scaled by their standard deviation, over the agent's lifetime or, with a linear
    baseline, over the batch. What comes after a rollout's end is not seen, so rollouts should span
    an episode or more.
    """

    ranges: ClassVar[Ranges] = {
        "discount": DISCOUNT,
        "entropy_cost": ENTROPY_COST,
        "baseline": Choice(("mean", "linear")),
        "td_lambda": dataclasses.replace(TRACE, when=("baseline", "linear")),
    }
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
        if self.config.baseline == "linear":
            one = jax.tree.map(lambda x: x[0, 0], rollout.observation)
            features = Flatten.like(one)(rollout.observation)
            advantage = rollout.standardised(self._linear_advantage(features, rollout))
        else:
            zeros = jnp.zeros_like(rollout.reward)
            discount = rollout.discount(self.config.discount)
            returns = lambda_returns(zeros, rollout.reward, discount, jnp.ones_like(zeros))
            state = state.update(rollout.mean(returns), rollout.mean(returns**2))
            advantage = state.normalise(returns)
        rho = rollout.importance_ratio(agent.logits(rollout)[:-1])
        weight = jnp.minimum(1.0, rho) * advantage
        return jax.lax.stop_gradient(PolicyGradientTargets(weight)), state

    def loss(
        self, agent: Agent, targets: PolicyGradientTargets, rollout: Rollout
    ) -> tuple[Float[Array, "T B"], Metrics]:
        logits = agent.logits(rollout)[:-1]
        likelihood = jnp.where(rollout.seam, 0.0, log_prob(logits, rollout.action))
        pi_loss = -targets.weight * self._surrogate(likelihood, rollout)
        bonus = entropy(logits)
        metrics = {"pi_loss": rollout.mean(pi_loss), "entropy": rollout.mean(bonus)}
        return pi_loss - self.config.entropy_cost * bonus, metrics

    def _linear_advantage(
        self, features: Float[Array, "T1 B inputs"], rollout: Rollout
    ) -> Float[Array, "T B"]:
        values = linear_values(features, rollout, self.config.discount)
        trace = jnp.where(rollout.segment_ends, 0.0, self.config.td_lambda)
        return gae(values, rollout.reward, rollout.discount(self.config.discount), trace)

    def _surrogate(self, likelihood: Float[Array, "T B"], rollout: Rollout) -> Float[Array, "T B"]:
        """In place of the log-likelihood of each action.

        - lvc is low in variance (ProMP, arXiv 1810.06784). Where a batch is learned from several
          times, its actions count as those of the policy as it is then.
        - dice is the ratio of all actions up to this one, less that of all before it (Loaded DiCE,
          arXiv 1909.10549): unbiased in all orders if the advantage is, and noisy.
        """
        if self.config.surrogate == "plain":
            return likelihood
        if self.config.surrogate == "lvc":
            return _one(likelihood)
        so_far = _sum_within_episodes(likelihood, rollout)
        return _one(so_far) - _one(so_far - likelihood)


def _one(log_likelihood: Float[Array, "T B"]) -> Float[Array, "T B"]:
    """1, with the derivatives of the likelihood relative to itself."""
    return jnp.exp(log_likelihood - jax.lax.stop_gradient(log_likelihood))


def _sum_within_episodes(x: Float[Array, "T B"], rollout: Rollout) -> Float[Array, "T B"]:
    def step(so_far, at):
        x, first = at
        so_far = jnp.where(first, 0.0, so_far) + x
        return so_far, so_far

    return jax.lax.scan(step, jnp.zeros_like(x[0]), (x, rollout.starts[:-1]))[1]
