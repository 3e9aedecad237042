"""Categorical distributions given by logits."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

Scalars = Float[Array, "*batch"]


def select_action(x: Float[Array, "*batch A"], action: Int[Array, "*batch"]) -> Scalars:
    """The entry of the action taken, along the last axis."""
    return jnp.take_along_axis(x, action[..., None], axis=-1)[..., 0]


def log_prob(logits: Float[Array, "*batch A"], action: Int[Array, "*batch"]) -> Scalars:
    """Log-probability of the action taken."""
    return select_action(jax.nn.log_softmax(logits), action)


def entropy(logits: Float[Array, "*batch n"]) -> Scalars:
    """Entropy of the softmax of `logits`."""
    log_p = jax.nn.log_softmax(logits)
    return -jnp.sum(jnp.exp(log_p) * log_p, axis=-1)


def kl_divergence(
    p_logits: Float[Array, "*batch n"], q_logits: Float[Array, "*batch n"]
) -> Scalars:
    """KL(p‖q) between the softmaxes of two sets of logits.

    Written as Σ p (p_logits − q_logits) − log Z_p + log Z_q: fewer passes over wide arrays than
    with two log-softmaxes.
    """
    log_z_p = jax.nn.logsumexp(p_logits, axis=-1)
    log_z_q = jax.nn.logsumexp(q_logits, axis=-1)
    p = jnp.exp(p_logits - log_z_p[..., None])
    return jnp.sum(p * (p_logits - q_logits), axis=-1) - log_z_p + log_z_q


def epsilon_greedy(
    values: Float[Array, "*batch A"], epsilon: float | Float[Array, ""]
) -> Float[Array, "*batch A"]:
    """Log-probabilities of acting on values: the largest with probability 1 − ε, any otherwise.
    Those that share the largest value share its probability."""
    best = (values == jnp.max(values, axis=-1, keepdims=True)).astype(values.dtype)
    greedy = best / jnp.sum(best, axis=-1, keepdims=True)
    return jnp.log((1.0 - epsilon) * greedy + epsilon / values.shape[-1])
