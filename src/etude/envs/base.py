"""The base of our own environments: gymnax's interface, without importing gymnax.

gymnax brings plotting and statistics packages along, which take several times as long to import as
JAX. An environment that subclasses gymnax's own `Environment` is as good everywhere in this
library, and behaves the same to the bit.
"""

import abc
import dataclasses
from functools import cached_property, partial
from typing import ClassVar, Generic, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from etude.runs.estimates import require_room
from etude.runs.storage import bytes_of

COPIES = 4
"""Of a task while programs are compiled, of which it is a part."""


class EnvState(eqx.Module):
    time: Int[Array, ""]
    """Steps since the episode began."""


State = TypeVar("State")
Timed = TypeVar("Timed", bound=EnvState)
Params = TypeVar("Params")
Observation = TypeVar("Observation")

Action = int | Int[Array, ""]
Info = dict[str, Array]
Transition = tuple[Observation, State, Float[Array, ""], Bool[Array, ""], Info]
"""Observation, state, reward, whether the episode has ended, and anything else."""


@dataclasses.dataclass(frozen=True)
class Discrete:
    """The whole numbers below `n`."""

    n: int


class Environment(abc.ABC, Generic[State, Params, Observation]):
    """An environment that resets itself when an episode ends or reaches its time limit."""

    num_actions: int

    @property
    @abc.abstractmethod
    def default_params(self) -> Params: ...

    @abc.abstractmethod
    def reset_env(self, key: Array, params: Params) -> tuple[Observation, State]:
        """The first observation and state of an episode."""

    @abc.abstractmethod
    def step_env(
        self, key: Array, state: State, action: Action, params: Params
    ) -> Transition[Observation, State]: ...

    def is_truncated(self, state: State, params: Params) -> Bool[Array, ""]:
        """Whether the episode has reached its time limit; by default there is none."""
        return jnp.zeros((), bool)

    def starts_are_costly(self, params: Params) -> bool:
        """Whether an episode takes so long to start that it should be done only where needed."""
        return False

    def action_space(self, params: Params | None = None) -> Discrete:
        return Discrete(self.num_actions)

    @partial(jax.jit, static_argnames=("self",))
    def reset(self, key: Array, params: Params | None = None) -> tuple[Observation, State]:
        return self.reset_env(key, self.default_params if params is None else params)

    @partial(jax.jit, static_argnames=("self",))
    def step(
        self, key: Array, state: State, action: Action, params: Params | None = None
    ) -> tuple[Observation, State, Float[Array, ""], Bool[Array, ""], Bool[Array, ""], Info]:
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


class EnvParams(eqx.Module):
    max_steps_in_episode: int = 1


class TimeLimited(Environment[Timed, EnvParams, Array]):
    """An environment whose only parameter is its time limit."""

    limit: int
    """The default."""

    @property
    def default_params(self) -> EnvParams:
        return EnvParams(self.limit)

    def is_truncated(self, state: Timed, params: EnvParams) -> Bool[Array, ""]:
        return state.time >= params.max_steps_in_episode


class TaskEnvironment(Environment[State, Params, Array]):
    """An environment whose parameters are a task, drawn by `sample_task`."""

    horizon: int
    """The maximum number of steps per episode."""
    own_limits: ClassVar[bool] = False
    """Whether each task has a time limit of its own, within the horizon."""

    @cached_property
    def default_params(self) -> Params:  # type: ignore[override]
        draw, key = jax.jit(self.sample_task), jax.random.key(0)
        # Memory that is not there would end the process, not raise an exception.
        size = bytes_of(jax.eval_shape(draw, key))
        require_room(COPIES * size, f"a task of {type(self).__name__}")
        return draw(key)

    @abc.abstractmethod
    def sample_task(self, key: PRNGKeyArray) -> Params: ...
