"""What acts in environments: agents, other policies, and players whose logits are changed."""

import dataclasses
from collections.abc import Callable
from typing import Protocol, runtime_checkable

import equinox as eqx
from jaxtyping import Array, Bool, Float, PyTree

from etude.core.agent import Agent, Told
from etude.core.distributions import epsilon_greedy


@runtime_checkable
class Player(Protocol):
    """What acts."""

    def start(self, *batch: int) -> PyTree[Array]:
        """What it remembers at the start of an episode; a tree without leaves if nothing."""
        ...

    def act(
        self,
        memory: PyTree[Array],
        observation: PyTree[Array],
        first: Bool[Array, "*batch"] | None = None,
        *,
        context: Told = None,
    ) -> tuple[PyTree[Array], Float[Array, "*batch A"]]:
        """What it remembers afterwards, and the logits of the actions."""
        ...


@dataclasses.dataclass(frozen=True)
class Policy:
    """A player without memory: from observations to the logits of the actions."""

    logits: Callable[[PyTree[Array]], Float[Array, "*batch A"]]

    def start(self, *batch: int) -> None:
        return None

    def act(
        self,
        memory: None,
        observation: PyTree[Array],
        first: Bool[Array, "*batch"] | None = None,
        *,
        context: Told = None,
    ) -> tuple[None, Float[Array, "*batch A"]]:
        return None, self.logits(observation)


GREEDY = 1e6
"""A sharpness by which sampling takes the likeliest action."""


@dataclasses.dataclass(frozen=True)
class Sharpened:
    """A player whose logits are multiplied, so that it takes its likeliest actions more often."""

    player: Player
    sharpness: float | Float[Array, ""]

    def start(self, *batch: int) -> PyTree[Array]:
        return self.player.start(*batch)

    def act(
        self,
        memory: PyTree[Array],
        observation: PyTree[Array],
        first: Bool[Array, "*batch"] | None = None,
        *,
        context: Told = None,
    ) -> tuple[PyTree[Array], Float[Array, "*batch A"]]:
        memory, logits = self.player.act(memory, observation, first, context=context)
        return memory, self.sharpness * logits


class EpsilonGreedy(eqx.Module):
    """Takes the action of the largest value with probability 1 − ε, and any action otherwise."""

    agent: Agent
    """It acts by its action values."""
    epsilon: Float[Array, ""]

    def start(self, *batch: int) -> PyTree[Array]:
        return self.agent.start(*batch)

    def act(
        self,
        memory: PyTree[Array],
        observation: PyTree[Array],
        first: Bool[Array, "*batch"] | None = None,
        *,
        context: Told = None,
    ) -> tuple[PyTree[Array], Float[Array, "*batch A"]]:
        memory, values = self.agent.act(memory, observation, first, context=context)
        return memory, epsilon_greedy(values, self.epsilon)
