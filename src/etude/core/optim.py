"""Optimisers one can differentiate through."""

from functools import partial
from typing import NamedTuple, TypeVar, cast

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, PyTree

from etude.core.config import Optimiser

Tree = TypeVar("Tree")


def _average(decay: float, average: PyTree[Array], new: PyTree[Array]) -> PyTree[Array]:
    return jax.tree.map(lambda a, x: decay * a + (1.0 - decay) * x, average, new)


def _squares(grads: PyTree[Array]) -> PyTree[Array]:
    return jax.tree.map(lambda g: jnp.square(jax.lax.stop_gradient(g)), grads)


class AdamState(NamedTuple):
    steps: Int[Array, ""]
    mu: PyTree[Array]
    nu: PyTree[Array]


def scale_by_adam(b1: float = 0.9, b2: float = 0.999, eps: float = 1e-8):
    """Adam whose denominator carries no gradient, so that meta-gradients stay well behaved."""

    def init(params):
        # Two sets of zeros: buffers that were shared could not be donated.
        mu, nu = (jax.tree.map(jnp.zeros_like, params) for _ in range(2))
        return AdamState(jnp.zeros((), jnp.int32), mu, nu)

    def update(updates, state, params=None):
        del params
        steps = state.steps + 1
        mu, nu = _average(b1, state.mu, updates), _average(b2, state.nu, _squares(updates))

        def direction(m, n):
            n_steps = steps.astype(m.dtype)
            denominator = jnp.sqrt(n / (1.0 - b2**n_steps)) + eps
            return m / (1.0 - b1**n_steps) / jax.lax.stop_gradient(denominator)

        return jax.tree.map(direction, mu, nu), AdamState(steps, mu, nu)

    return optax.GradientTransformation(init, update)


class RMSState(NamedTuple):
    nu: PyTree[Array]


def scale_by_rms(decay: float = 0.99, eps: float = 1e-8):
    """RMSProp whose denominator, too, carries no gradient."""

    def init(params):
        return RMSState(jax.tree.map(jnp.zeros_like, params))

    def update(updates, state, params=None):
        del params
        nu = _average(decay, state.nu, _squares(updates))
        return jax.tree.map(lambda g, n: g / (jnp.sqrt(n) + eps), updates, nu), RMSState(nu)

    return optax.GradientTransformation(init, update)


SCALES = {"adam": scale_by_adam, "rmsprop": scale_by_rms, "sgd": optax.identity}


def make_optimiser(
    kind: Optimiser,
    learning_rate: optax.ScalarOrSchedule,
    max_update: float = 1.0,
    weight_decay: float = 0.0,
) -> optax.GradientTransformation:
    """An agent's optimiser: scaled gradients, each entry clipped to ±`max_update`, times −rate.

    The order matters: what is clipped is the normalised step, not the gradient. Weight decay is
    decoupled (AdamW) and joins after the clip.
    """
    decay = [optax.add_decayed_weights(weight_decay)] if weight_decay else []
    return optax.chain(SCALES[kind](), optax.clip(max_update), *decay, _by_rate(learning_rate))


class StepScale:
    """What a step is still to be multiplied by, once."""

    def __init__(self, scale: Float[Array, ""] | None):
        self.left = scale

    def once(self, updates: PyTree[Array]) -> PyTree[Array]:
        scale, self.left = self.left, None
        if scale is None:
            return updates
        return jax.tree.map(lambda x: scale.astype(x.dtype) * x, updates)


def _by_rate(learning_rate: optax.ScalarOrSchedule) -> optax.GradientTransformationExtraArgs:
    """Times −rate, after the scale of the step if there is one: then a scale of 1 changes no bit,
    also where the compiler multiplies by the rate and adds to the parameters at once."""
    rate = optax.scale_by_learning_rate(learning_rate)

    def update(updates, state, params=None, *, step_scale: StepScale | None = None, **others):
        del others
        updates = updates if step_scale is None else step_scale.once(updates)
        return rate.update(updates, state, params)

    return optax.GradientTransformationExtraArgs(rate.init, update)


adam = partial(make_optimiser, "adam")


def apply_gradient(
    optimiser: optax.GradientTransformation,
    gradient: PyTree[Array],
    state: PyTree[Array],
    params: Tree,
    scale: Float[Array, ""] | None = None,
) -> tuple[Tree, PyTree[Array]]:
    """The parameters and the optimiser's state after a step, which is multiplied by `scale`: by our
    own optimisers themselves, or else here."""
    tree: PyTree = params  # Optax's types know no modules, though any tree will do
    step_scale = StepScale(scale)
    optimiser = optax.with_extra_args_support(optimiser)
    updates, state = optimiser.update(gradient, state, tree, step_scale=step_scale)
    updates = step_scale.once(updates)
    return cast(Tree, optax.apply_updates(tree, updates)), state
