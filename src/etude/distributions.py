"""Categorical distributions given by logits."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int


def select_action(
    x: Float[Array, "*batch A"], action: Int[Array, "*batch"]
) -> Float[Array, "*batch"]:
    """The entry of the last axis that belongs to the action taken."""
    return jnp.take_along_axis(x, action[..., None], axis=-1)[..., 0]


def log_prob(
    logits: Float[Array, "*batch A"], action: Int[Array, "*batch"]
) -> Float[Array, "*batch"]:
    """Log-probability of the action taken."""
    return select_action(jax.nn.log_softmax(logits), action)


def entropy(logits: Float[Array, "*batch n"]) -> Float[Array, "*batch"]:
    """Entropy of the softmax of `logits`."""
    log_p = jax.nn.log_softmax(logits)
    return -jnp.sum(jnp.exp(log_p) * log_p, axis=-1)


@jax.custom_jvp
def kl_divergence(
    p_logits: Float[Array, "*batch n"], q_logits: Float[Array, "*batch n"]
) -> Float[Array, "*batch"]:
    """KL(p‖q) between the softmaxes of two sets of logits."""
    log_p, log_q = jax.nn.log_softmax(p_logits), jax.nn.log_softmax(q_logits)
    return jnp.sum(jnp.exp(log_p) * (log_p - log_q), axis=-1)


def _kl_divergence_jvp(primals, tangents):
    """∂KL/∂q = q − p and ∂KL/∂p = p (log p − log q − KL): a backward pass keeps one array."""
    log_p, log_q = (jax.nn.log_softmax(logits) for logits in primals)
    p, q = jnp.exp(log_p), jnp.exp(log_q)
    kl = jnp.sum(p * (log_p - log_q), axis=-1)
    p_dot, q_dot = tangents
    kl_dot = jnp.zeros_like(kl)
    if not isinstance(q_dot, jax.custom_derivatives.SymbolicZero):
        kl_dot = kl_dot + jnp.sum((q - p) * q_dot, axis=-1)
    if not isinstance(p_dot, jax.custom_derivatives.SymbolicZero):
        kl_dot = kl_dot + jnp.sum(p * (log_p - log_q - kl[..., None]) * p_dot, axis=-1)
    return kl, kl_dot


kl_divergence.defjvp(_kl_divergence_jvp, symbolic_zeros=True)
