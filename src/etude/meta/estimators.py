"""What a meta-learned thing is moved along: one problem, one window, several estimators.

By gradient: backward through the window's updates, exact but for as long as the window is. By
evolution: how differently perturbed parameters do in the same window. Mixed: evolution for those
parameters that are few and slow to show what they do, gradients for the rest.
"""

import abc
import dataclasses
from typing import Any, Generic, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray, PyTree

from etude.core.learner import norm
from etude.meta.evolution import Evolution, Fitness
from etude.meta.gradient import MetaGradient, Window, meta_gradient
from etude.meta.problem import Problem

Params = TypeVar("Params")
State = TypeVar("State")


class Estimator(abc.ABC, Generic[Params]):
    """From a window of recorded training to a gradient of what is meta-learned."""

    @abc.abstractmethod
    def __call__(
        self,
        problem: Problem[Params, Any, Any],
        params: Params,
        window: Window,
        validation: PyTree[Array],
        fitness: Fitness[Params],
        key: PRNGKeyArray,
    ) -> MetaGradient:
        """`fitness` lives the same window again, under other parameters."""


@dataclasses.dataclass(frozen=True)
class ByGradient(Estimator[Params]):
    """The gradient of the problem's outer loss through the window."""

    mixed_mode: bool = True

    def __call__(self, problem, params, window, validation, fitness, key) -> MetaGradient:
        return meta_gradient(problem, params, window, validation, mixed_mode=self.mixed_mode)


@dataclasses.dataclass(frozen=True)
class ByEvolution(Estimator[Params]):
    """The gradient of minus the fitness, smoothed; of the problem, only what it leaves behind."""

    evolution: Evolution

    def __call__(self, problem, params, window, validation, fitness, key) -> MetaGradient:
        gradient, told = self.evolution.gradient(fitness, params, key)
        _, (state, metrics) = problem.outer(params, window.final, window.updates.aux, validation)
        return MetaGradient(gradient, state, metrics | told)


@dataclasses.dataclass(frozen=True)
class Mixed(Estimator[Params]):
    """By evolution what is in the named fields of the parameters, by gradient all else.

    What evolution finds has no unit (ranks) or another one than the gradient: it is given the norm
    of the gradient's part, if there is one, so that no limit on the norm of both starves either.
    """

    evolution: Evolution
    fields: tuple[str, ...]
    mixed_mode: bool = True

    def __call__(self, problem, params, window, validation, fitness, key) -> MetaGradient:
        exact = meta_gradient(problem, params, window, validation, mixed_mode=self.mixed_mode)
        chosen = within(params, self.fields)
        found, told = self.evolution.gradient(fitness, params, key, chosen)
        rest = jax.tree.map(lambda on, x: jnp.zeros_like(x) if on else x, chosen, exact.gradient)
        wanted, length = norm(rest), norm(found)
        scale = jnp.where((wanted > 0.0) & (length > 0.0), wanted / length, 1.0)
        gradient = jax.tree.map(lambda x, y: x + (scale * y).astype(x.dtype), rest, found)
        return MetaGradient(gradient, exact.state, exact.metrics | told)


def within(params: PyTree, fields: tuple[str, ...]) -> PyTree:
    """For each array of real numbers in the parameters, whether it is in one of these fields."""
    numbers = eqx.filter(params, eqx.is_inexact_array)
    return jax.tree_util.tree_map_with_path(
        lambda path, x: getattr(path[0], "name", None) in fields, numbers
    )
