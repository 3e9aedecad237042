"""What a residual rule reads: constants without units, so that what it learned in one environment
means the same in another. They are probabilities, and quantities over their own running moments."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from etude.core.distributions import entropy, log_prob
from etude.core.moments import Moments
from etude.core.returns import signed_log
from etude.core.types import Rollout

ACTION_INPUTS = ("π", "log Aπ", "taken", "policy gradient")
STATE_INPUTS = (
    "advantage",
    "value error",
    "TD error",
    "reward",
    "goes on",
    "log ρ",
    "log Aπ(a)",
    "entropy",
)
AGES = ("updates", "expected updates", "share of life", "life expected", "actions")
STATISTICS = (
    "entropy",
    "explained variance",
    "mean advantage",
    "advantage size",
    "mean reward",
    "off-policy",
)
LIFE_INPUTS = AGES + STATISTICS
"""How old an agent is, and how its last update looked."""


class Reading(eqx.Module):
    """A rollout as the agent sees it, in units of the running moments."""

    logits: Float[Array, "T B A"]
    advantage: Float[Array, "T B"]
    error: Float[Array, "T B"]
    """Of the value."""
    td: Float[Array, "T B"]
    reward: Float[Array, "T B"]

    def by_action(self, rollout: Rollout) -> Float[Array, "T B A actions"]:
        log_pi = jax.nn.log_softmax(self.logits)
        taken = jax.nn.one_hot(rollout.action, rollout.num_actions, dtype=log_pi.dtype)
        gradient = (taken - jnp.exp(log_pi)) * signed_log(self.advantage)[..., None]
        relative = signed_log(log_pi + jnp.log(rollout.num_actions))
        return jnp.stack([jnp.exp(log_pi), relative, taken, gradient], axis=-1)

    def by_state(self, rollout: Rollout) -> Float[Array, "T B states"]:
        log_pi = log_prob(self.logits, rollout.action)
        numbers = (self.advantage, self.error, self.td, self.reward)
        goes_on = ~(rollout.terminal | rollout.seam)
        inputs = [
            *map(signed_log, numbers),
            goes_on.astype(log_pi.dtype),
            self._log_ratio(rollout),
            signed_log(log_pi + jnp.log(rollout.num_actions)),
            self._spread(rollout),
        ]
        return jnp.stack(inputs, axis=-1)

    def statistics(self, rollout: Rollout) -> dict[str, Float[Array, ""]]:
        return {
            "entropy": rollout.mean(self._spread(rollout)),
            "advantage size": signed_log(rollout.mean(jnp.abs(self.advantage))),
            "off-policy": rollout.mean(jnp.abs(self._log_ratio(rollout))),
        }

    def _log_ratio(self, rollout: Rollout) -> Float[Array, "T B"]:
        before = log_prob(rollout.behaviour_logits[:-1], rollout.action)
        return signed_log(log_prob(self.logits, rollout.action) - before)

    def _spread(self, rollout: Rollout) -> Float[Array, "T B"]:
        """The entropy, as a share of its maximum."""
        return entropy(self.logits) / jnp.log(max(rollout.num_actions, 2))


def life_inputs(
    updates: Int[Array, ""],
    expected: Int[Array, ""],
    statistics: Float[Array, " statistics"],
    num_actions: int,
) -> Float[Array, " life"]:
    """Of an agent updated so often; `expected` is 0 if nobody knows how often it will be."""
    dtype = statistics.dtype
    known = (expected > 0).astype(dtype)
    done, whole = updates.astype(dtype), expected.astype(dtype)
    ages = [
        0.2 * jnp.log1p(done),
        0.2 * jnp.log1p(whole),
        known * jnp.minimum(done / jnp.maximum(whole, 1.0), 1.0),
        known,
        jnp.asarray(0.5 * jnp.log(num_actions), dtype),
    ]
    return jnp.concatenate([jnp.stack(ages), statistics])


def observed(moments: Moments, x: Float[Array, "T B"], rollout: Rollout) -> Moments:
    return moments.update(rollout.mean(x), rollout.mean(jnp.square(x)))


def root_mean_square(moments: Moments) -> Float[Array, ""]:
    """Of all that was observed, kept a little above 0."""
    return jnp.sqrt(moments.m2 / (1.0 - moments.decay) + 1e-12)


def explained_variance(
    error: Float[Array, "T B"], target: Float[Array, "T B"], rollout: Rollout
) -> Float[Array, ""]:
    """How much of the targets' variance the values explain, between −1 and 1."""
    left = rollout.mean(jnp.square(error - rollout.mean(error)))
    whole = rollout.mean(jnp.square(target - rollout.mean(target)))
    return jnp.maximum(1.0 - left / (whole + 1e-8), -1.0)
