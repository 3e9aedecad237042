"""What agents are trained on: an environment by its name, in JAX or on the host."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Protocol, runtime_checkable

from jaxtyping import Array, PyTree

from etude.envs.base import Action, Discrete
from etude.envs.host.simulator import Simulator


@runtime_checkable
class Playable(Protocol):
    """The interface of gymnax, as far as it is needed: ours, gymnax's own, or the user's."""

    def reset(self, key: Array, params: PyTree) -> tuple[PyTree, PyTree]: ...

    def step(
        self, key: Array, state: PyTree, action: Action, params: PyTree
    ) -> tuple[PyTree, PyTree, Array, Array, Array, dict[str, PyTree]]: ...

    def action_space(self, params: PyTree) -> Discrete: ...


@dataclasses.dataclass(frozen=True)
class Task:
    """An environment by the name that makes it."""

    name: str
    num_actions: int
    observation: PyTree
    """Shapes and types of one observation."""


@dataclasses.dataclass(frozen=True)
class JaxTask(Task):
    """An environment that JAX can trace, with the parameters it is played under."""

    env: Playable
    params: PyTree


@dataclasses.dataclass(frozen=True)
class HostTask(Task):
    """An environment that runs outside JAX."""

    open: Callable[[int, int], Simulator]
    """Starts so many copies of it, in so many processes of their own; in this one if 0."""
    judge: Callable[[Mapping[str, float]], dict[str, float]] | None = None
    """What the mean outcomes of a run's episodes amount to, if anything."""
