"""Values that are linear in what is observed (after Duan et al., arXiv 1604.06778)."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from etude.core.returns import lambda_returns
from etude.core.types import Rollout


def linear_values(
    features: Float[Array, "T1 B inputs"], rollout: Rollout, discount: float, ridge: float = 0.1
) -> Float[Array, "T1 B"]:
    """Discounted returns regressed on the features and on powers of time.

    The values of each half of the trajectories come from the other half: fitted to their own
    returns, they would leave nothing to learn where few episodes have been. `ridge` is a share of
    the mean diagonal. A single trajectory has no values but 0.
    """
    batch = rollout.reward.shape[1]
    half = batch // 2
    if half == 0:
        return jnp.zeros(features.shape[:2], features.dtype)
    inputs = jnp.concatenate([features, _powers_of_time(rollout)], axis=-1)
    learned_from = inputs[:-1] * ~rollout.seam[..., None]
    after = jnp.zeros_like(rollout.reward)
    returns = lambda_returns(
        after, rollout.reward, rollout.discount(discount), jnp.ones_like(after)
    )

    def equations(chosen: slice) -> tuple[Float[Array, "inputs inputs"], Float[Array, " inputs"]]:
        x, y = learned_from[:, chosen].reshape(-1, inputs.shape[-1]), returns[:, chosen].ravel()
        normal = x.T @ x
        shrink = ridge * jnp.trace(normal) / x.shape[1] + 1e-8
        return normal + shrink * jnp.eye(x.shape[1]), x.T @ y

    first, second = slice(0, half), slice(half, batch)
    # Solved together: two solvers at once can wait for each other for ever (XLA on CPU).
    left, right = jax.tree.map(lambda *x: jnp.stack(x), equations(second), equations(first))
    weights = jnp.linalg.solve(left, right[..., None])[..., 0]
    values = [inputs[:, first] @ weights[0], inputs[:, second] @ weights[1]]
    return jnp.concatenate(values, axis=1)


def _powers_of_time(rollout: Rollout) -> Float[Array, "T1 B 4"]:
    """0 to 3, of the steps since the episode began or the rollout did."""
    slots = jnp.broadcast_to(jnp.arange(len(rollout.starts))[:, None], rollout.starts.shape)
    began = jax.lax.cummax(jnp.where(rollout.starts, slots, 0))
    time = ((slots - began) / len(rollout.reward))[..., None]
    return jnp.concatenate([time, time**2, time**3, jnp.ones_like(time)], axis=-1)
