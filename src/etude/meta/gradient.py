"""The gradient of an outer loss through N agent updates, with respect to what is meta-learned.

Train first, differentiate after. A window of ordinary training is recorded without any gradient:
the experience of each update, what it computed at length (`core/kept.py`) and the states between
them. Then the gradient, which is exact, is taken by a reverse pass over the recorded updates.
Experience is a constant: `train` plays it in JAX as it learns, `record` takes it from anywhere, and
`update` makes one update on it, so that a window can be recorded while it is played outside JAX.

Recording: the state before each update is recorded (`each`), or that before every √N-th (`nested`),
from which the reverse pass finds the states in between, with what was kept of the updates.
"""

import math
from collections.abc import Callable
from typing import Any, Generic, NamedTuple, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, PyTree

from etude.core.agent import Agent
from etude.core.kept import Kept, recorded, replayed
from etude.core.learner import Gradient, loss_gradient, mean_loss
from etude.core.packing import Packed
from etude.core.rule import Rule
from etude.core.types import Metrics, Rollout
from etude.meta.config import Recording
from etude.meta.problem import Problem

Params = TypeVar("Params")
State = TypeVar("State")
Source = TypeVar("Source")

FEW = 8
"""Up to this many updates, each state is recorded, and the first update is compiled apart."""
UNROLLED = 2
"""Up to this many, there is no loop, which would copy the states it carries."""

Play = Callable[[Source, State, Any], tuple[Source, PyTree[Array], PyTree[Array]]]
"""From a source of experience, the state and a random key (or whatever else an update starts with):
the source afterwards, the experience of an update, and anything to log."""


class Update(eqx.Module):
    """A recorded update; several are stacked along a first axis."""

    experience: PyTree[Array]
    aux: PyTree[Array]
    kept: Kept


class Window(eqx.Module, Generic[State]):
    """Ordinary training, recorded: all that a gradient through it needs."""

    start: State
    """Before the problem's `begin`."""
    states: Packed[State]
    """Before each chunk of updates, stacked along a first axis."""
    updates: Update
    final: State

    @property
    def experience(self) -> PyTree[Array]:
        """Of each update, stacked."""
        return self.updates.experience

    @property
    def chunk(self) -> int:
        """How many updates follow each recorded state."""
        return length_of(self.experience) // length_of(self.states)


class MetaGradient(NamedTuple):
    gradient: PyTree[Array]
    """Of the meta-loss with respect to every real number of the parameters, in their form."""
    state: PyTree
    """After the updates and the outer loss."""
    metrics: Metrics


# --- Recording -----------------------------------------------------------------------------------


def train(
    problem: Problem[Params, State, Any],
    params: Params,
    state: State,
    source: Source,
    keys: PyTree[Array],
    play: Play[Source, State],
    recording: Recording = "each",
) -> tuple[Window[State], Source, PyTree[Array]]:
    """Plays and updates once for each of `keys`, each time with the state as it then is.

    Returns the window, the source afterwards, and the logs of all updates, stacked.
    """
    start, state = state, problem.begin(params, state)

    def step(carry, key):
        source, packed = carry
        state = packed.unpack()
        source, experience, log = play(source, state, key)
        state, made = update(problem, params, state, experience)
        return (source, Packed.pack(state)), (made, log)

    def chunk(carry, keys):
        carry_after, window = jax.lax.scan(step, carry, keys, unroll=length_of(keys) == 1)
        return carry_after, (carry[1], window)

    chunks = _in_chunks(keys, chunk_length(length_of(keys), recording))
    carry, (states, window) = jax.lax.scan(
        chunk, (source, Packed.pack(state)), chunks, unroll=length_of(chunks) <= UNROLLED
    )
    updates, log = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), window)
    return Window(start, states, updates, carry[1].unpack()), carry[0], log


def update(
    problem: Problem[Params, State, Any],
    params: Params,
    state: State,
    experience: PyTree[Array],
) -> tuple[State, Update]:
    """The state after an update, and the record of it."""
    (state, aux), kept = recorded(problem.inner)(params, state, experience)
    return state, Update(experience, aux, kept)


def record(
    problem: Problem[Params, State, Any],
    params: Params,
    state: State,
    experience: PyTree[Array],
    recording: Recording = "each",
) -> Window[State]:
    """The window of updates on experience that was collected before, stacked along a first axis."""

    def play(source, state, part):
        return source, part, None

    return train(problem, params, state, None, experience, play, recording)[0]


def chunk_length(updates: int, recording: Recording) -> int:
    """How many updates follow each recorded state. `nested` splits N into a product of two numbers
    near its root; a prime N has none, and is recorded like `each`, as are few updates."""
    return 1 if recording == "each" or updates <= FEW else nearest_divisor(updates)


def nearest_divisor(n: int) -> int:
    """The largest divisor of n that is no more than its root."""
    return next((d for d in range(math.isqrt(n), 0, -1) if n % d == 0), 1)


def length_of(xs: PyTree[Array]) -> int:
    return jax.tree.leaves(xs)[0].shape[0]


def _in_chunks(xs: PyTree[Array], chunk: int) -> PyTree[Array]:
    return jax.tree.map(lambda x: x.reshape(-1, chunk, *x.shape[1:]), xs)


def _at(xs: PyTree[Array], i: int | Int[Array, ""]) -> PyTree[Array]:
    return jax.tree.map(lambda x: x[i], xs)


# --- Differentiating -----------------------------------------------------------------------------


def meta_gradient(
    problem: Problem[Params, State, Any],
    params: Params,
    window: Window[State],
    validation: PyTree[Array],
    *,
    mixed_mode: bool = True,
) -> MetaGradient:
    """The gradient of the problem's outer loss on `validation` through the window's updates.

    The window must have been recorded with these parameters. Experience is a constant: an agent's
    influence on what it sees is not differentiated.
    """

    def outer(params, state, aux):
        return problem.outer(params, state, aux, validation)

    loss, pullback, (after, metrics) = eqx.filter_vjp(
        outer, params, window.final, window.updates.aux, has_aux=True
    )
    to_params, to_state, to_aux = pullback(jnp.ones_like(loss))
    gradient = mixed_mode_gradient if mixed_mode else loss_gradient
    more = _through_updates(problem, params, window, (to_state, to_aux), gradient)
    return MetaGradient(jax.tree.map(jnp.add, to_params, more), after, metrics)


def _through_updates(
    problem: Problem[Params, State, Any],
    params: Params,
    window: Window[State],
    cotangents: tuple[PyTree[Array], PyTree[Array]],
    gradient: Gradient,
) -> PyTree[Array]:
    """The cotangents of the parameters, given those of the last state and of each update's `aux`.

    Unless a problem learns where updates begin, what the first one starts from does not depend on
    the parameters, so half of its reverse pass is not needed. A loop has one body for all updates
    and cannot leave it out; among few updates, the first counts enough to have its own.
    """

    def again(params, packed, known, gradient=gradient):
        experience, kept = known
        inner = replayed(problem.inner, kept)
        state, aux = inner(params, packed.unpack(), experience, gradient)
        return Packed.pack(state), aux

    def back(carry, part):
        """Through one update."""
        to_params, to_state = carry
        state, to_aux, known = part
        run = lambda params, state: again(params, state, known)  # noqa: E731
        more, to_state = eqx.filter_vjp(run, params, state)[1]((to_state, to_aux))
        return (jax.tree.map(jnp.add, to_params, more), to_state), None

    def back_through_chunk(carry, chunk):
        """The states within a chunk first: for them, hardly more is needed than what was kept."""
        state, to_aux, known = chunk
        forward = lambda state, known: (again(params, state, known, loss_gradient)[0], state)  # noqa: E731
        _, states = jax.lax.scan(forward, state, known)
        return jax.lax.scan(back, carry, (states, to_aux, known), reverse=True)

    of_updates = (cotangents[1], (window.experience, window.updates.kept))
    if window.chunk > 1:
        of_updates = _in_chunks(of_updates, window.chunk)
    parts = (window.states, *of_updates)
    first = _at(parts, 0) if length_of(window.experience) <= FEW else None
    go_back = back if window.chunk == 1 else back_through_chunk
    nothing = jax.tree.map(jnp.zeros_like, eqx.filter(params, eqx.is_inexact_array))
    (to_params, to_state), _ = jax.lax.scan(
        lambda carry, i: go_back(carry, _at(parts, i)),  # slicing off the first would copy
        (nothing, Packed.pack(cotangents[0])),
        jnp.arange(0 if first is None else 1, length_of(parts)),
        reverse=True,
        unroll=length_of(parts) <= UNROLLED,
    )

    def beginning(params):
        state = Packed.pack(problem.begin(params, window.start))
        return state if first is None else again(params, state, first[2])

    _, pullback = eqx.filter_vjp(beginning, params)
    (more,) = pullback(to_state if first is None else (to_state, first[1]))
    return jax.tree.map(jnp.add, to_params, more)


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
