"""What is done to whole trees of arrays."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, PyTree


def choose(flag: Bool[Array, "*batch"], yes: PyTree, no: PyTree) -> PyTree:
    """The one tree or the other, for each entry along the first axes, which are those of `flag`."""

    def pick(a, b):
        return jnp.where(flag.reshape(flag.shape + (1,) * (a.ndim - flag.ndim)), a, b)

    return jax.tree.map(pick, yes, no)
