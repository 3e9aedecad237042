"""The torso: whatever is observed, turned into features according to its kind."""

import dataclasses
import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike
from jaxtyping import Array, Bool, Float, Integer, Num, PRNGKeyArray, PyTree

from etude.core.config import NetworkConfig
from etude.core.nn import (
    MLP,
    ClassicConvNet,
    Inputs,
    Linear,
    Outputs,
    ResidualConvNet,
    truncated_normal,
)
from etude.core.observations import Symbols
from etude.errors import UserError

Embedding = Float[Array, "*batch embedding"]
Told = Float[Array, "*batch_or_none numbers"] | None
"""What an agent is told of its rule, if it expects that: in each state, or in all alike."""

CONTEXT_SIZE = 16
"""Size of the embedding of what an agent is told of its rule (arXiv 1805.09801)."""

RESIDUAL = (16, 32, 32)
"""Channels of the residual stages where convolution is called for and no channels are given."""
CLASSIC = (32, 64, 64)
"""The same for the classic convolution."""
LARGE_IMAGE, LARGE_GRID = 32, 8
"""From this height and width on, images and grids of symbols are convolved without being asked."""
WHITE = 255
"""The largest value of an image of bytes."""


class Flatten(eqx.Module):
    """Every leaf of an observation flattened, and all of them joined."""

    size: int = eqx.field(static=True)
    ranks: tuple[int, ...] = eqx.field(static=True)
    """The number of axes of each leaf: all axes before those are batch."""

    @staticmethod
    def like(observation: PyTree) -> "Flatten":
        """For observations of this form, which has no batch axes."""
        shapes = [leaf.shape for leaf in jax.tree.leaves(observation)]
        return Flatten(sum(map(math.prod, shapes)), tuple(map(len, shapes)))

    def __call__(self, observation: PyTree, dtype: DTypeLike = float) -> Inputs:
        flat = [
            x.astype(dtype).reshape(*x.shape[: x.ndim - rank], -1)
            for x, rank in zip(jax.tree.leaves(observation), self.ranks, strict=True)
        ]
        return flat[0] if len(flat) == 1 else jnp.concatenate(flat, axis=-1)


class Numbers(eqx.Module):
    """Numbers as they are, flattened; bytes of an image between 0 and 1. Other whole numbers, which
    may be large, are squashed by a symmetric logarithm."""

    outputs: int = eqx.field(static=True)
    rank: int = eqx.field(static=True)
    scale: float = eqx.field(static=True)
    squash: bool = eqx.field(static=True)

    def __call__(self, x: Num[Array, "..."] | Bool[Array, "..."]) -> Outputs:
        x = x.astype(float).reshape(*x.shape[: x.ndim - self.rank], self.outputs)
        x = x if self.scale == 1.0 else x * self.scale
        return symlog(x) if self.squash else x


class SymbolNet(eqx.Module):
    """A vector for each symbol; grids of them may be convolved, the rest is flattened."""

    embedding: Float[Array, "number size"]
    conv: ResidualConvNet | None
    rank: int = eqx.field(static=True)
    outputs: int = eqx.field(static=True)

    def __init__(self, form: Symbols, size: int, channels: tuple[int, ...], *, key: PRNGKeyArray):
        self.embedding = truncated_normal(jax.random.fold_in(key, 0), (form.number, size), 1.0)
        self.rank, self.conv = form.ndim, None
        self.outputs = math.prod(form.shape) * size
        if channels:
            shape = (*form.shape[:2], math.prod(form.shape[2:]) * size)
            self.conv = ResidualConvNet(shape, channels, key=jax.random.fold_in(key, 1))
            self.outputs = self.conv.outputs

    def __call__(self, symbols: Integer[Array, "..."]) -> Outputs:
        leading = symbols.ndim - self.rank
        batch, shape = symbols.shape[:leading], symbols.shape[leading:]
        x = self.embedding[symbols.astype(jnp.int32)]
        if self.conv is None:
            return x.reshape(*batch, self.outputs)
        return self.conv(x.reshape(*batch, *shape[:2], -1))


Encoder = ResidualConvNet | ClassicConvNet | SymbolNet | Numbers


class Torso(eqx.Module):
    """Every leaf of an observation encoded according to its kind, all joined, then an MLP."""

    mlp: MLP
    conv: PyTree[Encoder]
    """One encoder per leaf of the observation, in its form; the only one, if it is a single array.
    (Saved agents know it by this name.)"""
    context: Linear | None
    """Embeds what the agent is told of its rule."""

    def __init__(
        self, observation: PyTree, config: NetworkConfig, context: int = 0, *, key: PRNGKeyArray
    ):
        conv_key, mlp_key = jax.random.split(key)
        leaves, structure = jax.tree.flatten(observation)
        if config.convolves and not any(x.ndim in (2, 3) for x in leaves):
            raise UserError(
                "A convolutional torso needs one observation of height × width (× channels), "
                f"not {', '.join(str(x.shape) for x in leaves)}."
            )
        keys = [conv_key, *(jax.random.fold_in(conv_key, i) for i in range(1, len(leaves)))]
        encoders = [encoder(x, config, key=k) for x, k in zip(leaves, keys, strict=True)]
        self.conv, self.context = jax.tree.unflatten(structure, encoders), None
        inputs = sum(x.outputs for x in encoders)
        if context:
            self.context = Linear(context, CONTEXT_SIZE, key=jax.random.fold_in(key, 0))
            inputs += CONTEXT_SIZE
        self.mlp = MLP(inputs, config.torso, config.tanh, key=mlp_key)

    def __call__(self, observation: PyTree, context: Told = None) -> Embedding:
        dtype = self.mlp.layers[0].w.dtype
        encoders = jax.tree.leaves(self.conv, is_leaf=lambda x: isinstance(x, Encoder))
        leaves = jax.tree.leaves(observation)
        parts = [encode(x).astype(dtype) for encode, x in zip(encoders, leaves, strict=True)]
        if self.context is not None:
            assert context is not None, "an agent that expects to be told of its rule was not"
            told = self.context(jax.lax.stop_gradient(context))
            parts.append(jnp.broadcast_to(told, (*parts[0].shape[:-1], CONTEXT_SIZE)))
        return self.mlp(parts[0] if len(parts) == 1 else jnp.concatenate(parts, axis=-1))


def encoder(form: Any, config: NetworkConfig, *, key: PRNGKeyArray) -> Encoder:
    """What turns a leaf of observations of this form into features."""
    residual = (config.conv_kind == "residual" and config.conv) or RESIDUAL
    is_grid = form.ndim in (2, 3)
    size = min(form.shape[:2]) if is_grid else 0
    if isinstance(form, Symbols):
        convolved = size >= LARGE_GRID or (is_grid and config.convolves)
        return SymbolNet(form, config.embedding, residual if convolved else (), key=key)
    is_image = is_grid and form.dtype == np.uint8
    scale = 1.0 / WHITE if is_image else 1.0
    squash = not is_image and np.issubdtype(form.dtype, np.integer)
    if (is_grid and config.convolves) or (is_image and size >= LARGE_IMAGE):
        if config.conv_kind == "classic":
            return ClassicConvNet(form.shape, config.conv or CLASSIC, scale, key=key)
        return ResidualConvNet(form.shape, residual, scale, key=key)
    return Numbers(math.prod(form.shape), form.ndim, scale, squash)


def image_notes(name: str, observation: PyTree) -> list[str]:
    """What to say of images that are not seen as such: their axes are in another order."""
    shapes = [x.shape for x in jax.tree.leaves(observation) if x.dtype == np.uint8 and x.ndim == 3]
    return [
        f"Note: {name} observes images of {'×'.join(map(str, shape))}, channels first, which are "
        "not seen as images: have the environment give height × width × channels."
        for shape in shapes
        if shape[0] in (1, 3, 4) and min(shape[1:]) >= LARGE_IMAGE
    ]


def symlog(x: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """sign(x) log(1 + |x|), which leaves 0 as it is and tames large numbers."""
    return jnp.sign(x) * jnp.log1p(jnp.abs(x))


def stacked(form: PyTree, number: int) -> PyTree:
    """The form of `number` observations stacked."""

    def stack(leaf: Any) -> Any:
        shape = leaf.shape if leaf.ndim % 2 else (*leaf.shape, 1)
        shape = (*shape[:-1], number * shape[-1])
        if isinstance(leaf, Symbols):
            return dataclasses.replace(leaf, shape=shape)
        return jax.ShapeDtypeStruct(shape, leaf.dtype)

    return form if number == 1 else jax.tree.map(stack, form)
