"""Crafter: survive, gather and build in a world made by chance."""

import dataclasses
from functools import partial

from etude.envs.host.crafter_env import CrafterEnv, score
from etude.envs.suites.common import known, settings_from
from etude.envs.suites.gym import task_of
from etude.envs.tasks import HostTask
from etude.settings import check


@dataclasses.dataclass(frozen=True)
class CrafterSettings:
    length: int = 10_000
    """The maximum number of steps per episode."""
    reward: bool = True
    """Without, only the achievements count."""

    def __post_init__(self) -> None:
        check(self, count="length")


def make(spec: str, name: str, settings: dict[str, str]) -> HostTask:
    known("crafter", name, names())
    chosen = settings_from(CrafterSettings(), settings, spec)
    task = task_of(spec, partial(CrafterEnv, **dataclasses.asdict(chosen)))
    return dataclasses.replace(task, judge=score)


def names() -> list[str]:
    """It is one environment, which has the suite's name."""
    return [""]
