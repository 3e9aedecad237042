"""V-trace actor-critic (IMPALA, arXiv 1802.01561): the hand-made baseline."""

import dataclasses
import math
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from etude.core.agent import Agent, Heads
from etude.core.distributions import entropy, log_prob
from etude.core.moments import Moments
from etude.core.returns import categorical_mean, two_hot_cross_entropy, vtrace
from etude.core.rule import Loss, Rule
from etude.core.types import Predictions, Rollout
from etude.ranges import DISCOUNT, ENTROPY_COST, TRACE, VALUE_COST, Ranges
from etude.settings import check, is_odd_bins, require


@dataclasses.dataclass(frozen=True)
class ActorCriticConfig:
    discount: float = 0.99
    """γ of the returns."""
    td_lambda: float = 0.95
    """λ of V-trace: 1 relies on the rewards seen, 0 on the value of the next state."""
    entropy_cost: float = 0.01
    """Weight of the entropy bonus."""
    value_cost: float = 0.5
    """Weight of the value loss."""
    bins: int = 601
    """Bins of a categorical value (an odd number), which suits rewards of any scale; 0: a plain
    scalar."""
    max_value: float = 300.0
    """Largest squashed value covered by the bins."""
    normalise: bool = True
    """Whether advantages are centred and scaled by their running moments."""
    scale_values: bool = False
    """For scalar values: whether they are learned in units of the returns' running mean and
    standard deviation, and advantages are measured in these in place of `normalise`. So rewards may
    have any scale, and where nothing sets actions apart, advantages are small, not noise blown up.
    """
    relative_entropy: bool = False
    """Whether the bonus counts entropy as a share of its maximum, log A, so that one weight suits
    any number of actions."""
    bootstrap: bool = True
    """Whether returns are bootstrapped from the value of a rollout's last state; if not, rewards
    after the rollout count as 0."""

    def __post_init__(self):
        check(
            self, share="discount td_lambda", cost="entropy_cost value_cost", positive="max_value"
        )
        require(self, "bins", lambda x: x == 0 or is_odd_bins(x), "0, or an odd number from 3")

    @property
    def scales(self) -> bool:
        """Whether there are values to be scaled."""
        return self.scale_values and not self.bins


class ActorCriticTargets(eqx.Module):
    value: Float[Array, "T B"]
    advantage: Float[Array, "T B"]


class ActorCritic(Rule[Moments, ActorCriticTargets]):
    """Policy gradient with V-trace advantages, value regression, entropy bonus. It has no η."""

    ranges: ClassVar[Ranges] = {
        "discount": DISCOUNT,
        "td_lambda": TRACE,
        "entropy_cost": ENTROPY_COST,
        "value_cost": VALUE_COST,
    }
    weighs_entropy = True
    config: ActorCriticConfig = eqx.field(static=True, default=ActorCriticConfig())
    entropy_cost: Float[Array, ""] | None = None
    """Weight of the entropy bonus for one agent, if not that of the config."""

    def with_entropy_cost(self, cost: Float[Array, ""]) -> "ActorCritic":
        return dataclasses.replace(self, entropy_cost=cost)

    def heads(self, num_actions: int) -> Heads:
        bins = self.config.bins
        heads = {"pi": num_actions, "value": bins or 1}
        return Heads(state=heads, bins=("value",) if bins else ())

    def init(self, agent: Agent) -> Moments:
        return Moments.zero()

    def targets(
        self, agent: Agent, state: Moments, rollout: Rollout
    ) -> tuple[ActorCriticTargets, Moments]:
        discount, td_lambda = rollout.discount(self.config.discount), self.config.td_lambda
        targets, state = self.estimate(agent, state, rollout, discount, td_lambda)
        return jax.lax.stop_gradient(targets), state

    def estimate(
        self,
        agent: Agent,
        state: Moments,
        rollout: Rollout,
        discount: Float[Array, "T B"],
        td_lambda: float | Array,
        shift: Array | None = None,
    ) -> tuple[ActorCriticTargets, Moments]:
        """The targets for any γ and λ (which may be in two parts, see `vtrace`); apart from these,
        all they come from is constant."""
        prediction = jax.lax.stop_gradient(agent.predict(agent.unroll(rollout)))
        value = self.values(prediction, state)
        rho = rollout.importance_ratio(prediction["pi"][:-1])
        estimate = vtrace(value, rollout.reward, discount, rho, td_lambda, shift)
        target, advantage = estimate.target, estimate.advantage
        watched = target if self.config.scales else advantage
        state = state.update(rollout.mean(watched), rollout.mean(watched**2))
        if self.config.scales:
            offset, scale = state.units()
            return ActorCriticTargets((target - offset) / scale, advantage / scale), state
        if self.config.normalise:
            advantage = state.normalise(advantage)
        return ActorCriticTargets(target, advantage), state

    def values(self, prediction: Predictions, state: Moments) -> Float[Array, "T1 B"]:
        """What the agent says each state is worth, in units of rewards."""
        said = prediction["value"]
        if self.config.bins:
            value = categorical_mean(said, self.config.max_value)
        else:
            value = self.in_rewards(said[..., 0], state)
        return value if self.config.bootstrap else value.at[-1].set(0.0)

    def in_rewards(self, value: Float[Array, "..."], state: Moments) -> Float[Array, "..."]:
        """A value in the units that it is learned in, in units of rewards."""
        if not self.config.scales:
            return value
        offset, scale = state.units()
        return offset + scale * value

    def entropy_weight(self, num_actions: int) -> float | Float[Array, ""]:
        """Of the bonus, per nat."""
        cost = self.config.entropy_cost if self.entropy_cost is None else self.entropy_cost
        relative = self.config.relative_entropy and num_actions > 1
        return cost / math.log(num_actions) if relative else cost

    def loss(self, agent: Agent, targets: ActorCriticTargets, rollout: Rollout) -> Loss:
        prediction = agent.predict(agent.unroll(rollout))
        weight = self.entropy_weight(rollout.num_actions)
        return self.loss_of(prediction, targets, rollout, weight)

    def loss_of(
        self,
        prediction: Predictions,
        targets: ActorCriticTargets,
        rollout: Rollout,
        entropy_weight: float | Float[Array, ""],
    ) -> Loss:
        """The loss of what an agent predicts on the rollout."""
        config = self.config
        logits, output = prediction["pi"][:-1], prediction["value"][:-1]
        pi_loss = -targets.advantage * log_prob(logits, rollout.action)
        if config.bins:
            value_loss = two_hot_cross_entropy(output, targets.value, config.max_value)
        else:
            value_loss = 0.5 * jnp.square(output[..., 0] - targets.value)
        bonus = entropy(logits)
        total = pi_loss + config.value_cost * value_loss - entropy_weight * bonus
        metrics = {"pi_loss": pi_loss, "value_loss": value_loss, "entropy": bonus}
        return total, {name: rollout.mean(x) for name, x in metrics.items()}


def scalar_critic(entropy_cost: float, value_cost: float, normalise: bool = True) -> ActorCritic:
    """An actor-critic with a plain scalar value, which other rules build on."""
    config = ActorCriticConfig(
        bins=0, entropy_cost=entropy_cost, value_cost=value_cost, normalise=normalise
    )
    return ActorCritic(config)
