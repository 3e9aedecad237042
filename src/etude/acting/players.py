"""What acts in environments: agents, other policies, and players whose logits are changed."""

import dataclasses
from collections.abc import Callable
from typing import Protocol, runtime_checkable

from jaxtyping import Array, Float, PyTree

from etude.core.agent import Told


@runtime_checkable
class Player(Protocol):
    """What acts."""

    def start(self, *batch: int) -> PyTree[Array]:
        """What it remembers at the start of an episode; a tree without leaves if nothing."""
        ...

    def act(
        self, memory: PyTree[Array], observation: PyTree[Array], *, context: Told = None
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
        self, memory: None, observation: PyTree[Array], *, context: Told = None
    ) -> tuple[None, Float[Array, "*batch A"]]:
        return None, self.logits(observation)


@dataclasses.dataclass(frozen=True)
class Sharpened:
    """A player whose logits are multiplied, so that it takes its likeliest actions more often."""

    player: Player
    sharpness: float

    def start(self, *batch: int) -> PyTree[Array]:
        return self.player.start(*batch)

    def act(
        self, memory: PyTree[Array], observation: PyTree[Array], *, context: Told = None
    ) -> tuple[PyTree[Array], Float[Array, "*batch A"]]:
        memory, logits = self.player.act(memory, observation, context=context)
        return memory, self.sharpness * logits
