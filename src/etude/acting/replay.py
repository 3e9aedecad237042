"""Replay: the latest trajectories, kept on the device."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, PRNGKeyArray

from etude.core.types import Rollout


class Replay(eqx.Module):
    """A ring of trajectories. They lie along the batch axis of one large rollout."""

    rollouts: Rollout
    added: Int[Array, ""]
    """How many trajectories were ever added."""

    @staticmethod
    def empty(like: Rollout, capacity: int) -> "Replay":
        """Room for `capacity` trajectories of the form of `like` (arrays or shapes).

        The capacity must be a multiple of the number added at once, so that an addition never
        wraps around the ring's end.
        """
        if capacity % like.action.shape[1]:
            raise ValueError(f"{capacity} is not a multiple of {like.action.shape[1]} trajectories")
        zeros = jax.tree.map(
            lambda x: jnp.zeros((x.shape[0], capacity, *x.shape[2:]), x.dtype), like
        )
        return Replay(zeros, jnp.zeros((), jnp.int32))

    @property
    def capacity(self) -> int:
        return self.rollouts.action.shape[1]

    def add(self, rollout: Rollout) -> "Replay":
        """With the rollout's trajectories in place of the oldest ones."""
        at = self.added % self.capacity
        rollouts = jax.tree.map(
            lambda ring, new: jax.lax.dynamic_update_slice_in_dim(ring, new, at, axis=1),
            self.rollouts,
            rollout,
        )
        return Replay(rollouts, self.added + rollout.action.shape[1])

    def sample(self, key: PRNGKeyArray, number: int) -> Rollout:
        """Trajectories drawn uniformly, with repetition, from those that are there."""
        index = jax.random.randint(key, (number,), 0, jnp.minimum(self.added, self.capacity))
        return jax.tree.map(lambda x: jnp.take(x, index, axis=1), self.rollouts)


def join(first: Rollout, second: Rollout) -> Rollout:
    """Two rollouts of equal length side by side."""
    return jax.tree.map(lambda a, b: jnp.concatenate([a, b], axis=1), first, second)
