"""The contract of a rule: what an agent's targets are, and how far it is from them."""

import abc
import dataclasses
from typing import ClassVar, Generic, TypeVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PyTree

from etude.core.agent import Agent, Heads
from etude.core.players import Player
from etude.core.torso import Flatten
from etude.core.types import Context, Metrics, Rollout
from etude.errors import UserError
from etude.ranges import Ranges

State = TypeVar("State")
Targets = TypeVar("Targets")
Config = TypeVar("Config")

Loss = tuple[Float[Array, "T B"], Metrics]
"""The loss of each transition, and scalars to log."""


class Rule(eqx.Module, Generic[State, Targets]):
    """An update rule. Its array leaves are η: training never changes them, discovery learns them.

    One agent update is `targets`, then a gradient step on the mean of `loss`. Gradients of the loss
    are taken with respect to the agent alone; `targets` need not stop theirs. When a rule is being
    discovered, the update as a whole is differentiated with respect to η, so a rule stops the
    gradients of those things that are constants by definition, such as returns.
    """

    watched: ClassVar[tuple[str, ...]] = ()
    """Metrics of the loss that show what a rule has learned, for a figure."""
    ranges: ClassVar[Ranges] = {}
    """Where `etude tune` looks for the rule's own settings, the fields of its config."""
    searched: ClassVar[tuple[str, ...]] = ()
    """Settings of training to be searched under this rule, beside those that are under any."""
    scheduled: ClassVar[tuple[str, ...]] = ()
    """Fields that hold its schedule: the few numbers that say how settings change over a life."""
    weighs_entropy: ClassVar[bool] = False
    """Whether its loss has an entropy bonus, the weight of which may be an agent's own."""

    @abc.abstractmethod
    def heads(self, num_actions: int) -> Heads:
        """The outputs that an agent needs under this rule."""

    @abc.abstractmethod
    def init(self, agent: Agent) -> State:
        """What the rule keeps with a new agent over its lifetime."""

    @abc.abstractmethod
    def targets(self, agent: Agent, state: State, rollout: Rollout) -> tuple[Targets, State]:
        """What the agent's outputs on the rollout should have been, and the state afterwards."""

    def with_entropy_cost(self, cost: Float[Array, ""]) -> "Rule[State, Targets]":
        """The same with this weight of the entropy bonus, for one agent. Of a rule that
        `weighs_entropy`."""
        raise NotImplementedError

    @abc.abstractmethod
    def loss(self, agent: Agent, targets: Targets, rollout: Rollout) -> Loss: ...

    def expect(self, state: State, updates: int | Int[Array, ""]) -> State:
        """The state of a new agent whose life will have so many updates; by default it makes no
        difference. Where nobody knows, nobody says."""
        return state

    def step_scale(self, targets: Targets) -> Float[Array, ""] | None:
        """What the optimiser's step towards the targets is multiplied by; None: it stays as it
        is."""
        return None

    def player(self, agent: Agent, state: State | None = None) -> Player:
        """Who acts for an agent; by default the agent itself, whose policy is its head `pi`.

        `state` is what the rule keeps with the agent; None once its training is over.
        """
        return agent

    @property
    def context(self) -> Context | None:
        """What tells agents about the rule in each state, if its heads ask for that."""
        return None

    def target_cost(self, targets: Targets, state: State, rollout: Rollout) -> Float[Array, ""]:
        """What discovery adds to the meta-loss for an update's targets; by default nothing.

        `state` is what the rule kept with the agent before the update.
        """
        return jnp.zeros(())

    def agent_cost(self, agent: Agent, rollout: Rollout) -> Float[Array, ""]:
        """What discovery adds to the meta-loss for an updated agent; by default nothing."""
        return jnp.zeros(())


def fitted_to(observation: PyTree | None, config: Config) -> Config:
    """The config of a rule that reads observations, `inputs` and `ranks` inferred from one."""
    if observation is None:
        raise UserError("A rule that reads observations is made for observations of one form.")
    flatten = Flatten.like(observation)
    return dataclasses.replace(config, inputs=flatten.size, ranks=flatten.ranks)  # type: ignore
