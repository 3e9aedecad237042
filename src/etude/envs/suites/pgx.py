"""Games for one in JAX, by Pgx: MinAtar and 2048."""

import dataclasses
from importlib import import_module
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Bool

from etude.envs.base import Action, Environment, Transition
from etude.envs.suites.common import known, settings_from
from etude.envs.suites.jax_env import plain_key, task_of
from etude.envs.tasks import JaxTask
from etude.errors import UserError
from etude.settings import check

pgx: Any = import_module("pgx")  # not this module, to those who read types
ALONE = [x for x in pgx.available_envs() if x.startswith("minatar-") or x == "2048"]


@dataclasses.dataclass(frozen=True)
class PgxSettings:
    limit: int | None = None
    """The maximum number of steps per episode; by default there is none."""

    def __post_init__(self) -> None:
        check(self, count="limit")


class Pgx(Environment[Any, None, Array]):
    """A game for one player. An action that is not allowed ends it, as Pgx has it."""

    def __init__(self, name: str, limit: int | None):
        self.env, self.limit = pgx.make(name), limit
        self.num_actions = self.env.num_actions

    @property
    def default_params(self) -> None:
        return None

    def reset_env(self, key: Array, params: None) -> tuple[Array, Any]:
        state = self.env.init(plain_key(key))
        return state.observation, state

    def step_env(
        self, key: Array, state: Any, action: Action, params: None
    ) -> Transition[Array, Any]:
        state = self.env.step(state, jnp.asarray(action), plain_key(key))
        return state.observation, state, state.rewards[0], state.terminated, {}

    def is_truncated(self, state: Any, params: None) -> Bool[Array, ""]:
        if self.limit is None:
            return state.truncated
        return state.truncated | (state._step_count >= self.limit)


def make(spec: str, name: str, settings: dict[str, str]) -> JaxTask:
    if name in pgx.available_envs() and name not in ALONE:
        raise UserError(
            f"{spec!r} is a game for several players, which is no task for one agent: "
            "its opponents would have to be chosen first."
        )
    known("pgx", name, ALONE)
    return task_of(spec, Pgx(name, settings_from(PgxSettings(), settings, spec).limit))


def names() -> list[str]:
    return ALONE
