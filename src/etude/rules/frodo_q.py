"""FRODO for action values (arXiv 2007.08433, section 3): a network writes what they should be."""

import dataclasses
from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from etude.core.agent import Agent
from etude.core.rule import fitted_to
from etude.core.types import Rollout
from etude.ranges import DISCOUNT, EXPLORATION, Ranges
from etude.rules.actor_critic import ActorCriticTargets
from etude.rules.frodo import Frodo, FrodoConfig
from etude.rules.value_based import Exploration, ValueBased, ValueState, values_of
from etude.settings import check


@dataclasses.dataclass(frozen=True)
class FrodoQConfig(Exploration):
    hidden: int = 32
    """Size of the target network's LSTM."""
    discount: float = 0.99
    """γ in the network's inputs and in the consistency cost."""
    observe: bool = False
    """Whether the network also reads the observations."""
    consistency: float = 0.0
    """Weight, when the network is learned, of the squared difference between a target and the
    reward plus the discounted next target."""
    # The size of an observation and the number of axes of each part, inferred from the environment.
    inputs: int = 0
    ranks: tuple[int, ...] = ()

    def __post_init__(self):
        super().__post_init__()
        check(self, count="hidden", share="discount", cost="consistency")

    def fitted(self, observation: PyTree | None) -> "FrodoQConfig":
        """With sizes inferred from an observation, if the rule reads any."""
        return fitted_to(observation, self) if self.observe else self


class FrodoQ(ValueBased):
    """A learned target for action values, from the rewards and the largest values that follow."""

    watched = ("target", "q")
    ranges: ClassVar[Ranges] = {"discount": DISCOUNT, **EXPLORATION}
    config: FrodoQConfig = eqx.field(static=True)
    writer: Frodo

    def __init__(self, config: FrodoQConfig = FrodoQConfig(), *, key: PRNGKeyArray):
        self.config = config
        shared = {field.name for field in dataclasses.fields(FrodoConfig)}
        settings = {name: x for name, x in vars(config).items() if name in shared}
        self.writer = Frodo(FrodoConfig(**settings), key=key)

    @property
    def exploration(self) -> Exploration:
        return self.config

    def targets(
        self, agent: Agent, state: ValueState, rollout: Rollout
    ) -> tuple[Float[Array, "T B"], ValueState]:
        best = jnp.max(values_of(agent, rollout), axis=-1)
        return self.writer.write(best, rollout), ValueState(state.updates + 1, None)

    def target_cost(
        self, targets: Float[Array, "T B"], state: ValueState, rollout: Rollout
    ) -> Float[Array, ""]:
        return self.writer.target_cost(ActorCriticTargets(targets, targets), None, rollout)
