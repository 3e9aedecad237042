"""Craftax and Craftax-Classic: Crafter in JAX, and more of it."""

import dataclasses
from typing import Any

import jax.numpy as jnp
from craftax.craftax_env import make_craftax_env_from_name  # type: ignore
from jaxtyping import Array, Bool

from etude.envs.base import Action, Environment, Transition
from etude.envs.suites.common import known, settings_from
from etude.envs.suites.jax_env import task_of
from etude.envs.tasks import JaxTask
from etude.settings import check

NAMES = ["Craftax-Classic-Symbolic", "Craftax-Classic-Pixels", "Craftax-Symbolic", "Craftax-Pixels"]
NO_LIMIT = 2**31 - 1


@dataclasses.dataclass(frozen=True)
class CraftaxSettings:
    limit: int | None = None
    """The maximum number of steps per episode; by default Craftax's own."""

    def __post_init__(self) -> None:
        check(self, count="limit")


class Craftax(Environment[Any, Any, Array]):
    """Craftax as it is, but that its time limit is known from other ends, and pixels are bytes.

    To make a world takes many times as long as a step. Craftax's own way to start episodes makes
    one at every step, in case it is needed.
    """

    def __init__(self, name: str):
        self.env = make_craftax_env_from_name(f"{name}-v1", auto_reset=False)
        self.pixels = name.endswith("Pixels")
        self.num_actions = int(self.env.num_actions)

    @property
    def default_params(self) -> Any:
        return self.env.default_params

    def starts_are_costly(self, params: Any) -> bool:
        return True

    def reset_env(self, key: Array, params: Any) -> tuple[Array, Any]:
        observation, state = self.env.reset_env(key, params)
        return self._seen(observation), state

    def step_env(
        self, key: Array, state: Any, action: Action, params: Any
    ) -> Transition[Array, Any]:
        found = self.env.step_env(key, state, action, params)
        observation, state, reward, _, info = found
        terminated = self.env.is_terminal(state, params.replace(max_timesteps=NO_LIMIT))
        return self._seen(observation), state, reward, terminated, info

    def is_truncated(self, state: Any, params: Any) -> Bool[Array, ""]:
        return state.timestep >= params.max_timesteps

    def _seen(self, observation: Array) -> Array:
        if not self.pixels:
            return observation
        return jnp.round(jnp.clip(observation, 0.0, 1.0) * 255).astype(jnp.uint8)


def make(spec: str, name: str, settings: dict[str, str]) -> JaxTask:
    env = Craftax(known("craftax", name.removesuffix("-v1"), names()))
    limit = settings_from(CraftaxSettings(), settings, spec).limit
    params = env.default_params
    return task_of(spec, env, params if limit is None else params.replace(max_timesteps=limit))


def names() -> list[str]:
    return NAMES
