"""Evolution strategies: a gradient from how differently perturbed parameters do.

What is estimated is the gradient of the expected loss of parameters with Gaussian noise (arXiv
1703.03864), with antithetic pairs. Nothing is differentiated, so that it does not matter how long
the updates go on, or whether what comes after is differentiable at all.
"""

import dataclasses
from collections.abc import Callable
from typing import TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from etude.core.types import Metrics
from etude.meta.config import Shaping

Params = TypeVar("Params")

Fitness = Callable[[Params, PRNGKeyArray], Float[Array, ""]]
"""How well parameters do, the more the better. Two calls with the same key share all else that is
random."""


@dataclasses.dataclass(frozen=True)
class Evolution:
    """An estimate from antithetic pairs: the parameters plus and minus the same noise."""

    pairs: int = 4
    deviation: float = 0.02
    """The noise's standard deviation."""
    shaping: Shaping = "rank"

    def gradient(
        self,
        fitness: Fitness[Params],
        params: Params,
        key: PRNGKeyArray,
        perturbed: PyTree | None = None,
    ) -> tuple[PyTree[Array], Metrics]:
        """Of minus the fitness, with respect to every real number of the parameters, and what is
        worth logging. `perturbed` says true or false for each of these arrays: others are left as
        they are, and their gradient is 0."""
        numbers, others = eqx.partition(params, eqx.is_inexact_array)

        def noise(key: PRNGKeyArray) -> PyTree[Array]:
            drawn = _noise_like(numbers, key)
            if perturbed is None:
                return drawn
            return jax.tree.map(lambda x, on: x if on else jnp.zeros_like(x), drawn, perturbed)

        def pair(key: PRNGKeyArray) -> Float[Array, "2"]:
            noise_key, key = jax.random.split(key)
            shift = noise(noise_key)

            def one(sign: Float[Array, ""]) -> Float[Array, ""]:
                moved = jax.tree.map(
                    lambda x, e: x + (sign * self.deviation).astype(x.dtype) * e, numbers, shift
                )
                return fitness(eqx.combine(moved, others), key)

            return jax.vmap(one)(jnp.array([1.0, -1.0]))

        keys = jax.random.split(key, self.pairs)
        found = jax.lax.map(pair, keys)
        shaped = SHAPINGS[self.shaping](found)
        weights = (shaped[:, 1] - shaped[:, 0]) / (2 * self.deviation * self.pairs)

        def add(total: PyTree[Array], part: tuple[PRNGKeyArray, Float[Array, ""]]):
            key, weight = part
            shift = noise(jax.random.split(key)[0])  # drawn again rather than kept
            return jax.tree.map(lambda t, e: t + weight.astype(e.dtype) * e, total, shift), None

        nothing = jax.tree.map(jnp.zeros_like, numbers)
        gradient, _ = jax.lax.scan(add, nothing, (keys, weights))
        spread = jnp.mean(jnp.abs(found[:, 0] - found[:, 1]))
        return gradient, {"fitness": jnp.mean(found), "fitness_difference": spread}


def _noise_like(numbers: PyTree[Array], key: PRNGKeyArray) -> PyTree[Array]:
    leaves, form = jax.tree.flatten(numbers)
    keys = jax.random.split(key, len(leaves))
    drawn = [jax.random.normal(k, x.shape, x.dtype) for k, x in zip(keys, leaves, strict=True)]
    return jax.tree.unflatten(form, drawn)


def _ranks(fitness: Float[Array, "pairs 2"]) -> Float[Array, "pairs 2"]:
    """From −½ to ½, evenly, so that no outlier counts for more than the best; those that are equal
    share theirs."""
    flat = fitness.ravel()
    below = jnp.sum(flat[None] < flat[:, None], axis=1)
    above = jnp.sum(flat[None] > flat[:, None], axis=1)
    return ((below - above) / (2 * (flat.size - 1))).reshape(fitness.shape)


def _standard(fitness: Float[Array, "pairs 2"]) -> Float[Array, "pairs 2"]:
    """With standard deviation 1, so that it does not matter in what unit it is measured."""
    return fitness / (jnp.std(fitness) + 1e-8)


SHAPINGS: dict[Shaping, Callable[[Float[Array, "pairs 2"]], Float[Array, "pairs 2"]]] = {
    "rank": _ranks,
    "standard": _standard,
    "raw": lambda fitness: fitness,
}
