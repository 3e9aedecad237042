"""The gradient of an outer loss through N agent updates, with respect to the rule. It is exact.

What differs is only how it is computed. Memory: all that the updates computed (`full`), or each
update's inputs and what rules and learner marked to be kept (`remat`), or the inputs of every
√N-th update (`nested`), the rest being computed again. And the order of differentiation:
the backward pass through an inner gradient is itself a pass through a backward pass, for which
mixed mode has a cheaper form.
"""

import math
from typing import NamedTuple, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from etude.core.agent import Agent
from etude.core.learner import loss_gradient, mean_loss
from etude.core.remat import remat
from etude.core.rule import Rule
from etude.core.types import Metrics, Rollout
from etude.meta.config import Kept
from etude.meta.problem import Problem

State = TypeVar("State")


class MetaGradient(NamedTuple):
    gradient: Rule
    """Of the meta-loss with respect to every leaf of the rule, itself a tree of the rule's form."""
    state: PyTree
    """What the updates changed, after them."""
    metrics: Metrics


def meta_gradient(
    problem: Problem[State, PyTree],
    rule: Rule,
    state: State,
    experience: PyTree[Array],
    validation: PyTree[Array],
    *,
    memory: Kept = "nested",
    mixed_mode: bool = True,
) -> MetaGradient:
    """Updates once on each part of `experience` (stacked along a first axis: rollouts, or whatever
    the problem takes), and differentiates the loss.

    Rollouts are constants: an agent's influence on its own experience is not differentiated. With
    the state's agents packed (`etude.packing`), the program compiles faster.
    """
    gradient = mixed_mode_gradient if mixed_mode else loss_gradient

    def meta_loss(rule: Rule):
        def step(state, part):
            return problem.inner(rule, state, part, gradient)

        after, aux = scan(step, state, experience, memory)
        return problem.outer(rule, after, aux, validation)

    gradients, (after, metrics) = jax.grad(meta_loss, has_aux=True)(rule)
    return MetaGradient(gradients, after, metrics)


FEW = 8
"""Up to this many updates, the first one is compiled apart from the others."""


def scan(step, state: State, xs: PyTree[Array], memory: Kept) -> tuple[State, PyTree]:
    """`jax.lax.scan`, of which a backward pass holds as much as `memory` says.

    What the first update starts from does not depend on the rule, so half of its backward pass is
    not needed. A loop has one body for all, and cannot leave it out. Among few updates the first
    counts enough to have its own.
    """
    if length_of(xs) > FEW:
        return _loop(step, state, xs, memory)
    first, others = (jax.tree.map(lambda x, at=at: x[at], xs) for at in (0, slice(1, None)))
    state, first_aux = step(state, first)
    state, aux = _loop(step, state, others, memory)
    return state, jax.tree.map(lambda x, xs: jnp.concatenate([x[None], xs]), first_aux, aux)


def length_of(xs: PyTree[Array]) -> int:
    return jax.tree.leaves(xs)[0].shape[0]


def _loop(step, state: State, xs: PyTree[Array], memory: Kept) -> tuple[State, PyTree]:
    """`nested` splits N into a product of two numbers near its root; a prime N has none, and is
    run like `remat`."""
    if memory == "full":
        return jax.lax.scan(step, state, xs)
    step = remat(step)
    length = length_of(xs)
    inner = nearest_divisor(length) if memory == "nested" else 1
    if inner == 1:
        return jax.lax.scan(step, state, xs)

    @remat
    def several(state, xs):
        return jax.lax.scan(step, state, xs)

    chunks = jax.tree.map(lambda x: x.reshape(-1, inner, *x.shape[1:]), xs)
    state, aux = jax.lax.scan(several, state, chunks)
    return state, jax.tree.map(lambda x: x.reshape(length, *x.shape[2:]), aux)


def nearest_divisor(n: int) -> int:
    """The largest divisor of n that is no more than its root."""
    return next((d for d in range(math.isqrt(n), 0, -1) if n % d == 0), 1)


@jax.custom_vjp
def mixed_mode_gradient(
    agent: Agent, rule: Rule, targets: PyTree, rollout: Rollout
) -> tuple[Agent, Metrics]:
    """`loss_gradient`, with a cheaper backward pass (MixFlow-MG, arXiv 2505.00793).

    Let g = ∇_θ L(θ, x), x being targets and rule. The backward pass has to multiply a cotangent v
    by ∂g/∂θ and by ∂g/∂x. Second derivatives are symmetric, so those products are the derivative
    of ∇_{(θ, x)} L along v in θ: one forward-mode pass, which holds nothing but its inputs.
    """
    return loss_gradient(agent, rule, targets, rollout)


def _forward(agent, rule, targets, rollout):
    return mixed_mode_gradient(agent, rule, targets, rollout), (agent, rule, targets, rollout)


def _backward(arguments, cotangents):
    direction, _ = cotangents  # the metrics carry no gradient
    inputs, constants = eqx.partition(arguments[:3], eqx.is_inexact_array)
    rollout = arguments[3]

    def loss(inputs):
        agent, rule, targets = eqx.combine(inputs, constants)
        return mean_loss(agent, rule, targets, rollout)[0]

    def gradients(agent):
        return jax.grad(loss)((agent, *inputs[1:]))

    _, products = jax.jvp(gradients, inputs[:1], (direction,))
    return (*products, None)  # rollouts are constants


mixed_mode_gradient.defvjp(_forward, _backward)
