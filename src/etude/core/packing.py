"""Trees whose numbers are one vector, for programs that carry large trees through loops.

A gradient through agent updates carries an agent, its optimiser's averages and a target network
through nested loops. With some twenty arrays each, most of such a program would be copies and sums
of single arrays, and compiling it would take much longer.
"""

import math
from typing import Generic, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

Tree = TypeVar("Tree")


class Packed(eqx.Module, Generic[Tree]):
    """A tree whose real numbers are one vector (of each type). To use the tree, unpack it."""

    vectors: dict[str, Float[Array, " numbers"]]
    """One for each type of number."""
    others: PyTree
    """The tree without those: counters, keys, flags."""
    structure: jax.tree_util.PyTreeDef = eqx.field(static=True)
    shapes: tuple[tuple[int, ...], ...] = eqx.field(static=True)
    types: tuple[str, ...] = eqx.field(static=True)

    @staticmethod
    def pack(tree: Tree) -> "Packed[Tree]":
        numbers, others = eqx.partition(tree, eqx.is_inexact_array)
        leaves, structure = jax.tree.flatten(numbers)
        types = tuple(str(x.dtype) for x in leaves)
        flat = {kind: [x.ravel() for x in leaves if x.dtype == kind] for kind in sorted(set(types))}
        vectors = {kind: jnp.concatenate(parts) for kind, parts in flat.items()}
        return Packed(vectors, others, structure, tuple(x.shape for x in leaves), types)

    def unpack(self) -> Tree:
        forms = list(zip(self.types, self.shapes, strict=True))
        parts = {}
        for kind, vector in self.vectors.items():
            sizes = [math.prod(shape) for other, shape in forms if other == kind]
            parts[kind] = iter(jax.lax.split(vector, sizes))
        leaves = [next(parts[kind]).reshape(shape) for kind, shape in forms]
        return eqx.combine(jax.tree.unflatten(self.structure, leaves), self.others)
