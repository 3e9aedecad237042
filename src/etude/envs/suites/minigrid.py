"""MiniGrid and BabyAI: grid worlds of which the agent sees a part."""

import dataclasses
from functools import partial

import gymnasium

from etude.envs.host.minigrid_env import MiniGridEnv
from etude.envs.suites.common import known, settings_from
from etude.envs.suites.gym import task_of
from etude.envs.tasks import HostTask
from etude.errors import UserError
from etude.settings import check

PREFIX, SUFFIX = "MiniGrid-", "-v0"


@dataclasses.dataclass(frozen=True)
class MiniGridSettings:
    view: int = 7
    """The side of the square that the agent sees."""
    limit: int | None = None
    """The maximum number of steps per episode; by default the environment's own."""
    see_through_walls: bool | None = None

    def __post_init__(self) -> None:
        check(self, count="limit")
        if self.view < 3 or self.view % 2 == 0:
            raise UserError(f"view must be odd and at least 3, not {self.view}.")

    def options(self) -> dict:
        """As MiniGrid calls them, where they are not its own."""
        found = dict(max_steps=self.limit, see_through_walls=self.see_through_walls)
        if self.view != 7:
            found["agent_view_size"] = self.view
        return {name: value for name, value in found.items() if value is not None}


def make(spec: str, name: str, settings: dict[str, str]) -> HostTask:
    short = known("minigrid", shortened(name), names())
    chosen = settings_from(MiniGridSettings(), settings, spec)
    return task_of(spec, partial(MiniGridEnv, _ids()[short], **chosen.options()))


def names() -> list[str]:
    return sorted(_ids())


def shortened(name: str) -> str:
    return name.removeprefix(PREFIX).removesuffix(SUFFIX)


def _ids() -> dict[str, str]:
    """By their shortened names."""
    ids = (x for x in gymnasium.registry if x.startswith((PREFIX, "BabyAI-")))
    return {shortened(x): x for x in ids}
