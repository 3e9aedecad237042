"""What flows through the picture: rollouts, predictions, metrics. Arrays are time-major."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PyTree

from etude.core.distributions import log_prob

Predictions = dict[str, Array]
"""An agent's outputs by the name of the head, the last axis being the head's."""

Metrics = dict[str, Array]
"""Scalars worth logging, by name."""

EXPECTED_REWARD = "expected_reward"
"""An environment whose rewards are noisy may give their means by this name among its infos."""


class Rollout(eqx.Module):
    """T transitions of B environments, with the T + 1 observations around them.

    `reward[t]` follows `action[t]`; where `terminal[t]`, that transition ended the episode and
    `observation[t + 1]` is the first of the next one.

    A time limit is not an end. Where it cuts an episode, the episode's last observation stays in
    the rollout, so that its value can be bootstrapped from, and one extra slot leads from there to
    the first observation of the next episode. That slot has `truncated` true and `mask` false:
    nothing happened in it, no target may look through it, and nothing is learned from it.
    """

    observation: PyTree[Array]
    action: Int[Array, "*T B"]
    reward: Float[Array, "*T B"]
    terminal: Bool[Array, "*T B"]
    truncated: Bool[Array, "*T B"]
    behaviour_logits: Float[Array, "*T1 B A"]
    mask: Bool[Array, "*T B"]

    @property
    def num_actions(self) -> int:
        return self.behaviour_logits.shape[-1]

    def discount(self, gamma) -> Float[Array, "T B"]:
        """γ inside an episode, 0 across its end (and across the seam after a time limit)."""
        goes_on = ~(self.terminal | self.truncated)
        return jnp.where(goes_on, jnp.asarray(gamma, self.reward.dtype), 0.0)

    @property
    def segment_ends(self) -> Bool[Array, "T B"]:
        """Transitions before which nothing may be known of what comes after them: episode ends and
        time limits.

        A time limit's seam is cut off from both sides; the transition before it then looks like the
        last one of a rollout, with the value of the next observation to bootstrap from.
        """
        before_seam = jnp.concatenate(
            [self.truncated[1:], jnp.zeros_like(self.truncated[:1])], axis=0
        )
        return self.terminal | self.truncated | before_seam

    def importance_ratio(self, logits: Float[Array, "T B A"]) -> Float[Array, "T B"]:
        """ρ = π(a)/μ(a), without gradient. It is 0 at a seam, which cuts every trace there."""
        log_ratio = log_prob(logits, self.action) - log_prob(
            self.behaviour_logits[:-1], self.action
        )
        return jnp.where(self.truncated, 0.0, jax.lax.stop_gradient(jnp.exp(log_ratio)))

    def mean(self, x: Float[Array, "T B *rest"]) -> Float[Array, "*rest"]:
        """Mean over all real transitions (seams left out, `mask` ignored)."""
        real = ~self.truncated
        weight = real.astype(x.dtype) / jnp.maximum(jnp.sum(real), 1)
        return jnp.tensordot(weight, x, axes=2)
