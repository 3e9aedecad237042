"""What an outer loop asks for: inner updates, and a loss after them."""

import abc
from typing import Any, Generic, TypeVar

from jaxtyping import Array, Float

from etude.core.learner import Gradient, loss_gradient
from etude.core.rule import Rule
from etude.core.types import Metrics

State = TypeVar("State")
Aux = TypeVar("Aux")


class Problem(abc.ABC, Generic[State, Aux]):
    """Inner updates, and an outer loss after them. How to differentiate through is not its matter.

    `State` is all that the updates change. `Aux` is what the outer loss wants to know of each
    update (a cost of the targets, say): any tree of arrays, through which gradients flow. The
    experience of an update is a rollout, or a random key to play one with.
    """

    @abc.abstractmethod
    def inner(
        self, rule: Rule, state: State, experience: Any, gradient: Gradient = loss_gradient
    ) -> tuple[State, Aux]:
        """One update under the rule, by the given way to compute the agent's gradient."""

    @abc.abstractmethod
    def outer(
        self, rule: Rule, state: State, aux: Aux, experience: Any
    ) -> tuple[Float[Array, ""], tuple[State, Metrics]]:
        """The meta-loss after all updates, whose `aux` have a new first axis."""
