"""Trees of arrays as plain arrays by name, and back."""

import hashlib
from typing import TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from etude.errors import UserError

Tree = TypeVar("Tree")
Leaf = jax.Array | np.ndarray | np.generic | jax.ShapeDtypeStruct


def _is_key(leaf: Leaf) -> bool:
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def named_leaves(tree: PyTree) -> dict[str, Leaf]:
    """The tree's array leaves by dotted path, such as `torso.mlp.layers.0.w`."""
    leaves, _ = jax.tree.flatten_with_path(tree)
    return {jax.tree_util.keystr(path, simple=True, separator="."): x for path, x in leaves}


def to_arrays(tree: PyTree) -> dict[str, np.ndarray]:
    """The leaves as NumPy arrays; random keys (of the default generator) as their raw data."""
    return {
        name: np.asarray(jax.random.key_data(x) if _is_key(x) else x)
        for name, x in jax.device_get(named_leaves(tree)).items()
    }


def from_arrays(like: Tree, arrays: dict[str, np.ndarray], source: str) -> Tree:
    """A tree of the form of `like` (arrays or shapes) with the leaves taken from `arrays`."""
    expected = named_leaves(like)
    missing, extra = expected.keys() - arrays.keys(), arrays.keys() - expected.keys()
    if missing or extra:
        names = ", ".join(sorted(missing or extra)[:3])
        raise UserError(
            f"{source} does not fit: it {'lacks' if missing else 'also holds'} {names}."
        )

    def restore(name: str, leaf: Leaf) -> jax.Array:
        value = arrays[name]
        is_key = _is_key(leaf)
        shape = jax.eval_shape(jax.random.key_data, leaf).shape if is_key else leaf.shape
        if value.shape != shape:
            raise UserError(
                f"{source} does not fit: {name} has shape {value.shape} where {shape} is needed."
            )
        needed = np.dtype(np.uint32) if is_key else np.dtype(leaf.dtype)
        if value.dtype.kind not in "biuf" or not np.can_cast(value.dtype, needed, "same_kind"):
            raise UserError(
                f"{source} does not fit: {name} holds {value.dtype.name} where {needed.name} is "
                "needed."
            )
        if is_key:
            return jax.random.wrap_key_data(jnp.asarray(value, needed))
        return jnp.asarray(np.ascontiguousarray(value).reshape(shape), dtype=leaf.dtype)

    leaves = [restore(name, leaf) for name, leaf in expected.items()]
    return jax.tree.unflatten(jax.tree.structure(like), leaves)


def bytes_of(like: PyTree) -> int:
    """How much memory the leaves of a tree of arrays or shapes take."""
    return sum(
        leaf.size * (8 if _is_key(leaf) else leaf.dtype.itemsize)
        for leaf in named_leaves(like).values()
    )


def sha256_of(tree: PyTree) -> str:
    """A digest of names, types, shapes and values: equal digests mean equal bits."""
    digest = hashlib.sha256()
    for name, value in sorted(to_arrays(tree).items()):
        digest.update(f"{name}:{value.dtype}:{value.shape};".encode())
        digest.update(np.ascontiguousarray(value).tobytes())
    return digest.hexdigest()
