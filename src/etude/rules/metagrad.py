"""Meta-gradient RL (Xu et al., arXiv 1805.09801): an actor-critic that learns its own γ and λ."""

import dataclasses
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from etude.core.agent import Agent, Heads
from etude.core.moments import Moments
from etude.core.rule import Loss, Rule, fitted_to
from etude.core.torso import Flatten
from etude.core.types import Context, Rollout
from etude.ranges import DISCOUNT, ENTROPY_COST, TRACE, VALUE_COST, Ranges
from etude.rules.actor_critic import ActorCritic, ActorCriticTargets, scalar_critic
from etude.settings import check, require


@dataclasses.dataclass(frozen=True)
class MetaGradConfig:
    discount: float = 0.99
    """Initial γ."""
    td_lambda: float = 0.95
    """Initial λ."""
    per_state: bool = False
    """Whether γ and λ depend on the state."""
    tell: bool = True
    """Whether the agent is told γ and λ, since the meaning of values changes with them."""
    entropy_cost: float = 0.01
    """Weight of the entropy bonus."""
    value_cost: float = 0.5
    """Weight of the value loss."""
    normalise: bool = True
    """Whether advantages are centred and scaled by their running moments."""
    # The size of an observation and the number of axes of each part, inferred from the environment.
    inputs: int = 0
    ranks: tuple[int, ...] = ()

    def __post_init__(self):
        check(self, cost="entropy_cost value_cost")
        require(self, "discount td_lambda", lambda x: 0 < x < 1, "above 0 and below 1")

    def fitted(self, observation: PyTree | None) -> "MetaGradConfig":
        """With sizes inferred from an observation, if the rule reads any."""
        return fitted_to(observation, self) if self.per_state else self


class Coefficients(eqx.Module):
    """γ and λ: sigmoids of two numbers, to which a map of the observation may be added."""

    bias: Float[Array, "2"]
    weight: Float[Array, "inputs 2"] | None
    """It starts at 0, so that at first all states have the same."""
    flatten: Flatten | None

    def __init__(self, config: MetaGradConfig):
        start = np.array([config.discount, config.td_lambda])
        self.bias = jnp.asarray(np.log(start) - np.log1p(-start), float)
        self.weight = jnp.zeros((config.inputs, 2)) if config.per_state else None
        self.flatten = Flatten(config.inputs, config.ranks) if config.per_state else None

    def __call__(self, observation: PyTree) -> Float[Array, "*batch_or_none 2"]:
        if self.weight is None or self.flatten is None:
            return jax.nn.sigmoid(self.bias)
        by_state = self.flatten(observation, self.bias.dtype) @ self.weight
        return jax.nn.sigmoid(by_state + jnp.broadcast_to(self.bias, by_state.shape))


class MetaGrad(Rule[Moments, ActorCriticTargets]):
    """An actor-critic whose γ and λ are learned, shared by all states or one pair per state."""

    watched = ("gamma", "lambda")
    ranges: ClassVar[Ranges] = {
        "discount": DISCOUNT,
        "td_lambda": TRACE,
        "entropy_cost": ENTROPY_COST,
        "value_cost": VALUE_COST,
    }
    scheduled = ("coefficients",)
    weighs_entropy = True
    config: MetaGradConfig = eqx.field(static=True)
    coefficients: Coefficients
    entropy_cost: Float[Array, ""] | None
    """Weight of the entropy bonus for one agent, if not that of the config."""

    def __init__(self, config: MetaGradConfig = MetaGradConfig()):
        self.config = config
        self.coefficients = Coefficients(config)
        self.entropy_cost = None

    def with_entropy_cost(self, cost: Float[Array, ""]) -> "MetaGrad":
        return eqx.tree_at(lambda r: r.entropy_cost, self, cost, is_leaf=lambda x: x is None)

    def heads(self, num_actions: int) -> Heads:
        heads = self._critic.heads(num_actions)
        return dataclasses.replace(heads, context=2 if self.config.tell else 0)

    @property
    def context(self) -> Context | None:
        return self.coefficients if self.config.tell else None

    def init(self, agent: Agent) -> Moments:
        return self._critic.init(agent)

    def targets(
        self, agent: Agent, state: Moments, rollout: Rollout
    ) -> tuple[ActorCriticTargets, Moments]:
        """What comes after a transition is weighed by γ and λ of the state it leads to."""
        pair = self.coefficients(jax.tree.map(lambda x: x[1:], rollout.observation))
        pair = jnp.broadcast_to(pair, (*rollout.reward.shape, 2))
        discount = rollout.discount(1.0) * pair[..., 0]
        return self._critic.estimate(agent, state, rollout, discount, pair[..., 1])

    def loss(self, agent: Agent, targets: ActorCriticTargets, rollout: Rollout) -> Loss:
        loss, metrics = self._critic.loss(agent, targets, rollout)
        pair = self.coefficients(rollout.observation)
        gamma, lambda_ = jnp.mean(pair.reshape(-1, 2), axis=0)
        return loss, metrics | {"gamma": gamma, "lambda": lambda_}

    @property
    def _critic(self) -> ActorCritic:
        config = self.config
        critic = scalar_critic(config.entropy_cost, config.value_cost, config.normalise)
        return dataclasses.replace(critic, entropy_cost=self.entropy_cost)
