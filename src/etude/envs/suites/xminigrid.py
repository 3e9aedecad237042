"""MiniGrid in JAX, by XLand-MiniGrid."""

import dataclasses
from importlib import import_module
from typing import Any

from jaxtyping import Array, Bool
from xminigrid.core.constants import NUM_COLORS, NUM_TILES  # type: ignore

from etude.envs.base import Action, Environment, Transition
from etude.envs.suites.common import known, settings_from
from etude.envs.suites.jax_env import plain_key, task_of
from etude.envs.tasks import JaxTask
from etude.errors import UserError
from etude.settings import check

xminigrid: Any = import_module("xminigrid")  # not this module, to those who read types
PREFIX = "MiniGrid-"
SYMBOLS = max(NUM_TILES, NUM_COLORS)
"""In a cell: what it is, and its colour."""


@dataclasses.dataclass(frozen=True)
class XMiniGridSettings:
    view: int = 7
    """The side of the square that the agent sees."""
    limit: int | None = None
    """The maximum number of steps per episode; by default the environment's own."""

    def __post_init__(self) -> None:
        check(self, count="limit")
        if self.view < 3 or self.view % 2 == 0:
            raise UserError(f"view must be odd and at least 3, not {self.view}.")


class XMiniGrid(Environment[Any, None, Array]):
    """An environment of theirs, whose state is the last that it said."""

    def __init__(self, name: str, chosen: XMiniGridSettings):
        limit = {} if chosen.limit is None else {"max_steps": chosen.limit}
        self.env, self.own = xminigrid.make(name, view_size=chosen.view, **limit)
        self.num_actions = int(self.env.num_actions(self.own))

    @property
    def default_params(self) -> None:
        return None

    def reset_env(self, key: Array, params: None) -> tuple[Array, Any]:
        said = self.env.reset(self.own, plain_key(key))
        return said.observation, said

    def step_env(
        self, key: Array, state: Any, action: Action, params: None
    ) -> Transition[Array, Any]:
        said = self.env.step(self.own, state, action)
        return said.observation, said, said.reward, said.last() & (said.discount == 0.0), {}

    def is_truncated(self, state: Any, params: None) -> Bool[Array, ""]:
        return state.last() & (state.discount > 0.0)


def make(spec: str, name: str, settings: dict[str, str]) -> JaxTask:
    if name.startswith("XLand"):
        raise UserError(f"{spec!r} needs a set of rules, which cannot be given here so far.")
    short = known("xminigrid", name.removeprefix(PREFIX), names())
    env = XMiniGrid(f"{PREFIX}{short}", settings_from(XMiniGridSettings(), settings, spec))
    return task_of(spec, env, symbols=SYMBOLS)


def names() -> list[str]:
    ids = xminigrid.registered_environments()
    return [x.removeprefix(PREFIX) for x in ids if x.startswith(PREFIX)]
