"""What flows through the picture: rollouts, predictions, metrics. Arrays are time-major."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PyTree

from etude.core.distributions import log_prob

Predictions = dict[str, Array]
"""An agent's outputs by the name of the head, the last axis being the head's."""

Metrics = dict[str, Array]
"""Scalars worth logging, by name."""

Context = Callable[[PyTree[Array]], Float[Array, "*batch_or_none numbers"]]
"""From observations to what an agent is told of its rule: numbers for each, or the same for all."""

EXPECTED_REWARD = "expected_reward"
"""An environment whose rewards are noisy may give their means by this name among its infos."""


class Rollout(eqx.Module):
    """T transitions of B environments, with the T + 1 observations around them: what was seen and
    done. In every leaf, the second axis is that of the environments.

    `reward[t]` follows `action[t]`; where `terminal[t]`, that transition ended the episode and
    `observation[t + 1]` is the first of the next one.

    A time limit is not an end. Where it cuts an episode, the episode's last observation stays in
    the rollout, so that its value can be bootstrapped from, and one extra slot, the `seam`, leads
    from there to the first observation of the next episode. Nothing happened in it: no target may
    look through it, and nothing is learned from it.
    """

    observation: PyTree[Array]
    action: Int[Array, "*T B"]
    reward: Float[Array, "*T B"]
    terminal: Bool[Array, "*T B"]
    seam: Bool[Array, "*T B"]
    behaviour_logits: Float[Array, "*T1 B A"]
    mask: Bool[Array, "*T B"]
    """Transitions that are learned from: by default all but the seams."""
    memory: PyTree[Array] = None
    """What an agent with memory knew before the first observation; its first axis has length 1."""
    context: Float[Array, "*T1 B numbers"] | None = None
    """What the agent was told of its rule at each observation, if anything."""

    @property
    def num_actions(self) -> int:
        return self.behaviour_logits.shape[-1]

    def told_by(self, context: Context | None) -> "Rollout":
        """With what the agent was told of its rule."""
        if context is None:
            return self
        told = context(self.observation)
        told = jnp.broadcast_to(told, (*self.behaviour_logits.shape[:-1], told.shape[-1]))
        return eqx.tree_at(lambda r: r.context, self, told, is_leaf=lambda x: x is None)

    @property
    def starts(self) -> Bool[Array, "T1 B"]:
        """Observations before which an agent forgets what it knew: the first of each episode that
        begins within the rollout."""
        ends = self.terminal | self.seam
        return jnp.concatenate([jnp.zeros_like(ends[:1]), ends])

    def discount(self, gamma) -> Float[Array, "T B"]:
        """γ inside an episode, 0 across its end (and across the seam after a time limit)."""
        goes_on = ~(self.terminal | self.seam)
        return jnp.where(goes_on, jnp.asarray(gamma, self.reward.dtype), 0.0)

    @property
    def segment_ends(self) -> Bool[Array, "T B"]:
        """Transitions before which nothing may be known of what comes after them: episode ends and
        time limits.

        A time limit's seam is cut off from both sides; the transition before it then looks like the
        last one of a rollout, with the value of the next observation to bootstrap from.
        """
        before_seam = jnp.concatenate([self.seam[1:], jnp.zeros_like(self.seam[:1])], axis=0)
        return self.terminal | self.seam | before_seam

    def importance_ratio(self, logits: Float[Array, "T B A"]) -> Float[Array, "T B"]:
        """ρ = π(a)/μ(a), without gradient. It is 0 at a seam, which cuts every trace there."""
        log_ratio = log_prob(logits, self.action) - log_prob(
            self.behaviour_logits[:-1], self.action
        )
        return jnp.where(self.seam, 0.0, jax.lax.stop_gradient(jnp.exp(log_ratio)))

    def mean(self, x: Float[Array, "T B *rest"]) -> Float[Array, "*rest"]:
        """Mean over all real transitions (seams left out, `mask` ignored)."""
        real = ~self.seam
        weight = real.astype(x.dtype) / jnp.maximum(jnp.sum(real), 1)
        return jnp.tensordot(weight, x, axes=2)

    def standardised(self, x: Float[Array, "T B"]) -> Float[Array, "T B"]:
        """With mean 0 and variance 1 over all real transitions."""
        centred = x - self.mean(x)
        return centred / jnp.sqrt(self.mean(jnp.square(centred)) + 1e-8)


class Episodes(eqx.Module):
    """The episodes that ended at each step: their return and length, where `ended`."""

    ended: Bool[Array, "*T B"]
    returns: Float[Array, "*T B"]
    lengths: Int[Array, "*T B"]
