"""What is common to other people's environments in JAX."""

import dataclasses
from typing import Any

import jax
from jaxtyping import Array, PyTree

from etude.core.observations import Symbols
from etude.envs.base import Environment
from etude.envs.registry import checked
from etude.envs.tasks import JaxTask


def plain_key(key: Array) -> Array:
    """The numbers of a key. Some environments keep it in their state, which goes into files."""
    return jax.random.key_data(key)


def task_of(spec: str, env: Environment, params: PyTree = None, symbols: Any = None) -> JaxTask:
    """`symbols`: for each array of an observation how many symbols it consists of, or 0."""
    task = checked(spec, env, params)
    if symbols is None:
        return task
    return dataclasses.replace(
        task, observation=jax.tree.map(_described, task.observation, symbols)
    )


def _described(leaf: jax.ShapeDtypeStruct, number: int) -> Symbols | jax.ShapeDtypeStruct:
    return Symbols(leaf.shape, leaf.dtype, number) if number else leaf
