"""How families of environments draw the numbers of a task."""

import math

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray


def log_uniform(key: PRNGKeyArray, low: float, high: float) -> Float[Array, ""]:
    """Between two positive numbers; what matters is their ratio."""
    share = jax.random.uniform(key)
    return jnp.exp(math.log(low) + share * (math.log(high) - math.log(low)))


def whole_between(key: PRNGKeyArray, low: int, high: int) -> Int[Array, ""]:
    """A whole number, both ends included, log-uniform."""
    drawn = jnp.floor(log_uniform(key, float(low), high + 1.0)).astype(jnp.int32)
    return jnp.clip(drawn, low, high)


SCALE_KEY, LIMIT_KEY = 1, 2
"""Folded into a task's key, so that all else is drawn as it is without a scale and a limit."""


def draw_scale_and_limit(
    key: PRNGKeyArray, scale: float, shortest: int, longest: int
) -> tuple[Float[Array, ""] | None, Int[Array, ""] | None]:
    """What a task's rewards are multiplied by, and the length of its episodes; None where neither
    is to be drawn."""
    keys = [jax.random.fold_in(key, i) for i in (SCALE_KEY, LIMIT_KEY)]
    return (
        log_uniform(keys[0], 1 / scale, scale) if scale > 1 else None,
        whole_between(keys[1], shortest, longest) if shortest else None,
    )


def require_draws(shortest: int, longest: int, scale: float) -> None:
    if not 0 <= shortest <= longest:
        raise ValueError(f"An episode's length is drawn from 1 up to {longest}, not {shortest}.")
    if not 1 <= scale < math.inf:
        raise ValueError(f"The scale of rewards is 1 or more, not {scale}.")
