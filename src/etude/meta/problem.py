"""What an outer loop asks for: inner updates, and a loss after them."""

import abc
from typing import Any, Generic, TypeVar

from jaxtyping import Array, Float

from etude.core.learner import Gradient, loss_gradient
from etude.core.types import Metrics

Params = TypeVar("Params")
State = TypeVar("State")
Aux = TypeVar("Aux")


class Problem(abc.ABC, Generic[Params, State, Aux]):
    """Inner updates, and an outer loss after them. How to differentiate through them is the
    estimator's business (`etude.meta.gradient`).

    `Params` is what is meta-learned, any tree: a rule, or an agent's start with its step sizes.
    `State` is all that the updates change. `Aux` is what the outer loss needs to know of each
    update (a cost of the targets, say): any tree of arrays, through which gradients flow. The
    experience of an update is a constant, recorded before: nothing is played here.
    """

    def begin(self, params: Params, state: State) -> State:
        """The state before the first update; by default it does not depend on the parameters."""
        return state

    @abc.abstractmethod
    def inner(
        self, params: Params, state: State, experience: Any, gradient: Gradient = loss_gradient
    ) -> tuple[State, Aux]:
        """One update, by the given way to compute the agent's gradient."""

    @abc.abstractmethod
    def outer(
        self, params: Params, state: State, aux: Aux, experience: Any
    ) -> tuple[Float[Array, ""], tuple[State, Metrics]]:
        """The meta-loss after all updates, whose `aux` are stacked along a new first axis."""
