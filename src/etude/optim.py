"""Optimisers one can differentiate through."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Int, PyTree


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
        grads = updates
        steps = state.steps + 1
        mu = jax.tree.map(lambda m, g: b1 * m + (1.0 - b1) * g, state.mu, grads)
        nu = jax.tree.map(
            lambda n, g: b2 * n + (1.0 - b2) * jnp.square(jax.lax.stop_gradient(g)), state.nu, grads
        )

        def direction(m, n):
            n_steps = steps.astype(m.dtype)
            denominator = jnp.sqrt(n / (1.0 - b2**n_steps)) + eps
            return m / (1.0 - b1**n_steps) / jax.lax.stop_gradient(denominator)

        return jax.tree.map(direction, mu, nu), AdamState(steps, mu, nu)

    return optax.GradientTransformation(init, update)


def adam(
    learning_rate: optax.ScalarOrSchedule, max_update: float = 1.0, weight_decay: float = 0.0
) -> optax.GradientTransformation:
    """The agent's optimiser: Adam, then each entry clipped to ±`max_update`, then −learning rate.

    The order matters: what is clipped is the normalised step, not the gradient. Weight decay is
    decoupled (AdamW) and joins after the clip.
    """
    decay = [optax.add_decayed_weights(weight_decay)] if weight_decay else []
    return optax.chain(
        scale_by_adam(), optax.clip(max_update), *decay, optax.scale_by_learning_rate(learning_rate)
    )
