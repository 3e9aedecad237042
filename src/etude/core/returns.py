"""Returns, value transforms and two-hot projections: pure functions, named like the papers.

Time is the first axis. `discount[t]` multiplies what comes after transition t (0 where the episode
ended there); `values` has one entry more than there are transitions.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

Series = Float[Array, "T ..."]
Values = Float[Array, "T1 ..."]


class VTrace(eqx.Module):
    target: Series
    advantage: Series


def _backward(step, init: Array, xs) -> Array:
    """The results of `carry = step(carry, x)` from the last time step to the first."""

    def body(carry, x):
        carry = step(carry, x)
        return carry, carry

    return jax.lax.scan(body, init, xs, reverse=True)[1]


def vtrace(
    values: Values,
    reward: Series,
    discount: Series,
    rho: Series,
    lambda_: float | Array = 1.0,
    shift: Array | None = None,
) -> VTrace:
    """V-trace targets and policy-gradient advantages with ρ̄ = c̄ = 1 (arXiv 1802.01561).

    The advantage looks one step ahead to λ·target + (1 − λ)·value, the last one to the value;
    λ may be given in two parts, of which the second, `shift`, changes no bit where it is 0.
    """
    now, after = values[:-1], values[1:]
    clipped = jnp.minimum(1.0, rho)
    delta = clipped * (reward + discount * after - now)
    trace = discount * lambda_ * clipped
    if shift is not None:
        trace = trace + discount * shift * clipped
    target = now + discounted_sum(delta, trace)
    target_after = jnp.concatenate([target[1:], values[-1:]])
    bootstrap = lambda_ * target_after + (1.0 - lambda_) * after
    if shift is not None:
        bootstrap = bootstrap + shift * (target_after - after)
    return VTrace(target, clipped * (reward + discount * bootstrap - now))


def discounted_sum(x: Series, discount: Series) -> Series:
    """y_t = x_t + discount_t y_{t+1}."""
    return _backward(lambda y, at: at[0] + at[1] * y, jnp.zeros_like(x[-1]), (x, discount))


def retrace(
    q_taken: Series, values: Values, reward: Series, discount: Series, trace: Series
) -> Series:
    """Retrace action-value targets (arXiv 1606.02647).

    G_t = r_t + γ_t (v_{t+1} − c_{t+1} q_{t+1} + c_{t+1} G_{t+1}), and r + γ v at the last step:
    a backward recursion over the weighted excess c_t (G_t − q_t).
    """
    zeros = jnp.zeros_like(values[-1])

    def step(excess_after, x):
        r, gamma, v_after, q, c = x
        return c * (r + gamma * (v_after + excess_after) - q)

    excess = _backward(step, zeros, (reward, discount, values[1:], q_taken, trace))
    excess_after = jnp.concatenate([excess[1:], zeros[None]])
    return reward + discount * (values[1:] + excess_after)


def lambda_returns(
    values_after: Series, reward: Series, discount: Series, lambda_: Series
) -> Series:
    """λ-returns: G_t = r_t + γ_t ((1 − λ_t) v_{t+1} + λ_t G_{t+1}), G after the end being v."""
    return _backward(
        lambda g, x: x[0] + x[1] * ((1.0 - x[3]) * x[2] + x[3] * g),
        values_after[-1],
        (reward, discount, values_after, lambda_),
    )


def gae(values: Values, reward: Series, discount: Series, trace: Series) -> Series:
    """Generalised advantage estimates (arXiv 1506.02438); `trace[t]` is λ, 0 to stop after t."""
    delta = reward + discount * values[1:] - values[:-1]
    return discounted_sum(delta, discount * trace)


def clipped_objective(
    log_prob: Float[Array, "..."],
    old_log_prob: Float[Array, "..."],
    advantage: Float[Array, "..."],
    clip: float,
) -> Float[Array, "..."]:
    """PPO's (arXiv 1707.06347): the advantage times π/π_old, from which nothing is gained any more
    where the ratio is further than `clip` from 1."""
    ratio = jnp.exp(log_prob - old_log_prob)
    bounded = jnp.clip(ratio, 1.0 - clip, 1.0 + clip)
    return jnp.minimum(ratio * advantage, bounded * advantage)


SQUASH_EPSILON = 1e-3


def signed_hyperbolic(x: Array, epsilon: float = SQUASH_EPSILON) -> Array:
    """h(x) = sign(x)(√(|x| + 1) − 1) + εx: squashes values of any scale (arXiv 1805.11593)."""
    return jnp.sign(x) * (jnp.sqrt(jnp.abs(x) + 1.0) - 1.0) + epsilon * x


def signed_parabolic(x: Array, epsilon: float = SQUASH_EPSILON) -> Array:
    """The inverse of `signed_hyperbolic`."""
    root = jnp.sqrt(1.0 + 4.0 * epsilon * (epsilon + 1.0 + jnp.abs(x))) / (2.0 * epsilon)
    return jnp.sign(x) * (jnp.square(root - 0.5 / epsilon) - 1.0)


def signed_log(x: Array) -> Array:
    """sign(x)·log(1 + |x|)."""
    return jnp.sign(x) * jnp.log1p(jnp.abs(x))


def categorical_mean(
    logits: Float[Array, "*batch bins"], max_value: float
) -> Float[Array, "*batch"]:
    """The scalar a categorical value stands for: the mean over its bins, unsquashed by h⁻¹."""
    bins = jnp.linspace(-max_value, max_value, logits.shape[-1]).astype(logits.dtype)
    weight = jnp.exp(logits - jnp.max(logits, axis=-1, keepdims=True))
    return signed_parabolic(weight @ bins / jnp.sum(weight, axis=-1))


def two_hot_cross_entropy(
    logits: Float[Array, "*batch bins"], value: Float[Array, "*batch"], max_value: float
) -> Float[Array, "*batch"]:
    """Cross-entropy of a categorical value against the two bins around h(value).

    `value` is a constant: no gradient reaches it. In units of the bin width, the lower bin's share
    is (lower + 1 − x)/(1 + 1e-5), and the upper bin has the rest.
    """
    num_bins = logits.shape[-1]
    width = 2.0 * max_value / (num_bins - 1)
    x = jnp.clip(signed_hyperbolic(jax.lax.stop_gradient(value)), -max_value, max_value) / width
    lower = jnp.floor(x)
    lower_share = ((lower + 1.0 - x) / (1.0 + 1e-5))[..., None]
    # Dense weights by comparison: fused into the sum, where a gather's backward pass would scatter.
    offset = jnp.arange(num_bins, dtype=x.dtype) - (num_bins - 1) // 2
    offset = jnp.broadcast_to(offset, logits.shape) - lower[..., None]
    is_upper = (offset == 1.0) | ((offset == 0.0) & (lower[..., None] * width >= max_value))
    weight = jnp.where(offset == 0.0, lower_share, 0.0)
    weight = weight + jnp.where(is_upper, 1.0 - lower_share, 0.0)
    return jax.nn.logsumexp(logits, axis=-1) - jnp.sum(weight * logits, axis=-1)
