"""The base of our own environments: gymnax's interface, without importing gymnax.

gymnax brings plotting and statistics packages along, which take several times as long to import as
JAX. An environment that subclasses gymnax's own `Environment` is as good everywhere in this
library, and behaves the same to the bit.
"""

import abc
import dataclasses
from functools import partial
from typing import Any, Generic, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

State = TypeVar("State")
Params = TypeVar("Params")


class EnvParams(eqx.Module):
    max_steps_in_episode: int = 1


@dataclasses.dataclass(frozen=True)
class Discrete:
    """The whole numbers below `n`."""

    n: int


@dataclasses.dataclass(frozen=True)
class Box:
    """Arrays of one shape with entries between two bounds."""

    low: float
    high: float
    shape: tuple[int, ...]
    dtype: Any = jnp.float32


class Environment(abc.ABC, Generic[State, Params]):
    """An environment that resets itself when an episode ends or reaches its time limit."""

    @property
    @abc.abstractmethod
    def default_params(self) -> Params: ...

    @abc.abstractmethod
    def reset_env(self, key: Array, params: Params) -> tuple[Any, State]:
        """The first observation and state of an episode."""

    @abc.abstractmethod
    def step_env(
        self, key: Array, state: State, action: Any, params: Params
    ) -> tuple[Any, State, Array, Array, dict[str, Any]]:
        """Observation, state, reward, whether the episode has ended, and anything else."""

    @abc.abstractmethod
    def action_space(self, params: Params | None = None) -> Discrete: ...

    def is_truncated(self, state: Any, params: Any) -> Array:
        """Whether the episode has reached its time limit."""
        return state.time >= params.max_steps_in_episode

    @partial(jax.jit, static_argnames=("self",))
    def reset(self, key: Array, params: Params | None = None) -> tuple[Any, State]:
        return self.reset_env(key, self.default_params if params is None else params)

    @partial(jax.jit, static_argnames=("self",))
    def step(
        self, key: Array, state: State, action: Any, params: Params | None = None
    ) -> tuple[Any, State, Array, Array, Array, dict[str, Any]]:
        """One step, and after the last of an episode the first observation of the next: the one
        before that is `info["final_observation"]`."""
        params = self.default_params if params is None else params
        step_key, reset_key = jax.random.split(key)
        last, after, reward, terminated, info = self.step_env(step_key, state, action, params)
        truncated = self.is_truncated(after, params)
        done = jnp.logical_or(terminated, truncated)
        fresh = self.reset_env(reset_key, params)
        observation, state = jax.tree.map(
            lambda x, y: jax.lax.select(done, x, y), fresh, (last, after)
        )
        ends = {"terminated": terminated, "truncated": truncated, "final_observation": last}
        return observation, state, reward, terminated, truncated, {**info, **ends}
