"""Running moments of a signal over an agent's lifetime, for normalising it."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

SMALLEST_UNIT = 0.01
"""Of the mean."""


class Moments(eqx.Module):
    """Exponential averages of x and x², debiased by the running product of the decays."""

    m1: Float[Array, ""]
    m2: Float[Array, ""]
    decay: Float[Array, ""]

    @staticmethod
    def zero() -> "Moments":
        return Moments(jnp.zeros(()), jnp.zeros(()), jnp.ones(()))

    def update(self, mean: Float[Array, ""], mean_square: Float[Array, ""], decay: float = 0.99):
        mean, mean_square = jax.lax.stop_gradient((mean, mean_square))
        return Moments(
            decay * self.m1 + (1.0 - decay) * mean,
            decay * self.m2 + (1.0 - decay) * mean_square,
            decay * self.decay,
        )

    def normalise(self, x: Float[Array, "..."], subtract_mean: bool = True) -> Float[Array, "..."]:
        """x over the standard deviation about the mean, by default after subtracting the mean."""
        return (x - self.mean if subtract_mean else x) / self.deviation

    @property
    def mean(self) -> Float[Array, ""]:
        return self.m1 / (1.0 - self.decay)

    @property
    def deviation(self) -> Float[Array, ""]:
        """The standard deviation, kept a little above 0."""
        variance = jnp.maximum(self.m2 / (1.0 - self.decay) - jnp.square(self.mean), 0.0)
        return jnp.sqrt(variance + 1e-12) + 1e-6

    def units(self) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """Where a signal is counted from and in what units: its mean and standard deviation; plain
        before the first update. Of a signal that is all but constant, the unit is a small part of
        the mean: what differs less is not worth telling apart, and soon is rounding."""
        fresh = self.decay == 1.0
        unit = jnp.maximum(self.deviation, SMALLEST_UNIT * jnp.abs(self.mean))
        return jnp.where(fresh, 0.0, self.mean), jnp.where(fresh, 1.0, unit)
