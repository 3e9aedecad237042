"""Agents whose parameters are one vector, for programs that carry many trees of an agent's form.

A gradient through agent updates carries the agent, its optimiser's averages and a target network
through nested loops. With some twenty arrays each, most of such a program would be copies and sums
of single arrays, and compiling it would take twice as long.
"""

import abc
import math
from typing import TypeVar, cast

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from etude.core.agent import Agent, ModelStart
from etude.core.types import Predictions, Rollout

Tree = TypeVar("Tree")


class PackedAgent(eqx.Module):
    """Counts as an `Agent` and acts like one, but is a tree of one leaf."""

    vector: Float[Array, " parameters"]
    structure: jax.tree_util.PyTreeDef = eqx.field(static=True)
    shapes: tuple[tuple[int, ...], ...] = eqx.field(static=True)

    @staticmethod
    def pack(agent: Agent) -> "PackedAgent":
        leaves, structure = jax.tree.flatten(agent)
        vector = jnp.concatenate([x.ravel() for x in leaves])
        return PackedAgent(vector, structure, tuple(x.shape for x in leaves))

    def unpack(self) -> Agent:
        parts = jax.lax.split(self.vector, [math.prod(shape) for shape in self.shapes])
        leaves = [x.reshape(shape) for x, shape in zip(parts, self.shapes, strict=True)]
        return jax.tree.unflatten(self.structure, leaves)

    @property
    def num_actions(self) -> int:
        return self.unpack().num_actions

    def start(self, *batch: int) -> PyTree[Array]:
        return self.unpack().start(*batch)

    def act(self, *arguments, **context):
        return self.unpack().act(*arguments, **context)

    def unroll(self, rollout: Rollout) -> Float[Array, "T1 B embedding"]:
        return self.unpack().unroll(rollout)

    def logits(self, rollout: Rollout) -> Float[Array, "T1 B A"]:
        return self.unpack().logits(rollout)

    def predict(self, embedding: Float[Array, "*batch embedding"]) -> Predictions:
        return self.unpack().predict(embedding)

    def consider(self, embedding: Float[Array, "*batch embedding"]) -> ModelStart:
        return self.unpack().consider(embedding)

    def predict_action(self, *arguments):
        return self.unpack().predict_action(*arguments)

    def predict_actions(self, *arguments):
        return self.unpack().predict_actions(*arguments)


# Anything that takes an `Agent` takes a packed one. Equinox has no `register` of its own, so that
# nobody inherits methods by accident; here all of them are written out.
abc.ABCMeta.register(Agent, PackedAgent)


def pack(tree: Tree) -> Tree:
    """With every agent in the tree packed (if it is not yet), and all else as it was.

    An optimiser's averages have the agent's form, so they are packed as well.
    """
    return jax.tree.map(
        lambda x: PackedAgent.pack(unpack(x)) if isinstance(x, Agent) else x,
        tree,
        is_leaf=lambda x: isinstance(x, Agent),
    )


def unpack(tree: Tree) -> Tree:
    """Undoes `pack`.

    A rule may unpack an agent before it asks for several things, which makes the backward pass
    cheaper: each unpacking adds a vector of an agent's size to the gradient.
    """
    return cast(
        Tree,
        jax.tree.map(
            lambda x: x.unpack() if isinstance(x, PackedAgent) else x,
            tree,
            is_leaf=lambda x: isinstance(x, PackedAgent),
        ),
    )
