"""FRODO (Xu et al., arXiv 2007.08433): a network that writes the targets an agent learns from."""

import dataclasses
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from etude.core.agent import Agent, Heads
from etude.core.nn import LSTM, Linear
from etude.core.rule import Loss, Rule, fitted_to
from etude.core.torso import Flatten
from etude.core.types import Rollout
from etude.ranges import DISCOUNT, ENTROPY_COST, VALUE_COST, Ranges
from etude.rules.actor_critic import ActorCritic, ActorCriticTargets, scalar_critic
from etude.settings import check


@dataclasses.dataclass(frozen=True)
class FrodoConfig:
    hidden: int = 32
    """Size of the target network's LSTM."""
    discount: float = 0.99
    """γ in the network's inputs and in the consistency cost."""
    observe: bool = False
    """Whether the network also reads the observations."""
    across: bool = False
    """Whether the network's state carries over from an episode to the one before it, so that a
    target may depend on later episodes of its trajectory; a discount of 0 marks the border."""
    entropy_cost: float = 0.01
    """Weight of the entropy bonus."""
    value_cost: float = 0.5
    """Weight of the value loss."""
    consistency: float = 0.0
    """Weight, when the network is learned, of the squared difference between a target and the
    reward plus the discounted next target."""
    # The size of an observation and the number of axes of each part, inferred from the environment.
    inputs: int = 0
    ranks: tuple[int, ...] = ()

    def __post_init__(self):
        costs = "entropy_cost value_cost consistency"
        check(self, count="hidden", share="discount", cost=costs)

    def fitted(self, observation: PyTree | None) -> "FrodoConfig":
        """With sizes inferred from an observation, if the rule reads any."""
        return fitted_to(observation, self) if self.observe else self


class Frodo(Rule[None, ActorCriticTargets]):
    """A learned target: an LSTM reads each trajectory backward and says what its values should be.

    Policy and value follow that target as they follow the return in an actor-critic; with a single
    action, all that is left is the prediction of values.
    """

    watched = ("target", "value")
    ranges: ClassVar[Ranges] = {
        "discount": DISCOUNT,
        "entropy_cost": ENTROPY_COST,
        "value_cost": VALUE_COST,
    }
    config: FrodoConfig = eqx.field(static=True)
    lstm: LSTM
    out: Linear

    def __init__(self, config: FrodoConfig = FrodoConfig(), *, key: PRNGKeyArray):
        lstm_key, out_key = jax.random.split(key)
        self.config = config
        self.lstm = LSTM(3 + (config.inputs if config.observe else 0), config.hidden, key=lstm_key)
        self.out = Linear(config.hidden, 1, key=out_key)

    def heads(self, num_actions: int) -> Heads:
        return self._critic.heads(num_actions)

    def init(self, agent: Agent) -> None:
        return None

    def targets(
        self, agent: Agent, state: None, rollout: Rollout
    ) -> tuple[ActorCriticTargets, None]:
        value = agent.predict(agent.unroll(rollout))["value"][..., 0]
        target = self.write(value, rollout)
        return ActorCriticTargets(target, target - value[:-1]), None

    def write(self, value: Float[Array, "T1 B"], rollout: Rollout) -> Float[Array, "T B"]:
        """The target of each transition, from the rewards and values that come after it."""
        discount = rollout.discount(self.config.discount)
        inputs = jnp.stack([rollout.reward, discount, discount * value[1:]], axis=-1)
        if self.config.observe:
            flatten = Flatten(self.config.inputs, self.config.ranks)
            inputs = jnp.concatenate([inputs, flatten(rollout.observation)[:-1]], axis=-1)
        ends = rollout.segment_ends & (not self.config.across)
        return self.out(self.lstm.read_backward(inputs, ends))[..., 0]

    def loss(self, agent: Agent, targets: ActorCriticTargets, rollout: Rollout) -> Loss:
        loss, metrics = self._critic.loss(agent, targets, rollout)
        value = targets.value - targets.advantage
        seen = {"target": rollout.mean(targets.value), "value": rollout.mean(value)}
        return loss, metrics | seen

    def target_cost(
        self, targets: ActorCriticTargets, state: None, rollout: Rollout
    ) -> Float[Array, ""]:
        """How far each target is from the reward plus the next target, which stands for a constant.
        The last one of a trajectory has no next."""
        if self.config.consistency == 0:
            return jnp.zeros(())
        discount = rollout.discount(self.config.discount)[:-1]
        later = rollout.reward[:-1] + discount * targets.value[1:]
        error = jnp.square(jax.lax.stop_gradient(later) - targets.value[:-1])
        counts = rollout.mask[:-1] & ~(rollout.segment_ends & ~rollout.terminal)[:-1]
        return self.config.consistency * jnp.sum(error * counts) / jnp.maximum(jnp.sum(counts), 1)

    @property
    def _critic(self) -> ActorCritic:
        return scalar_critic(self.config.entropy_cost, self.config.value_cost)
