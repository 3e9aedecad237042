"""NetHack's tasks, by the NetHack Learning Environment."""

import dataclasses
from functools import partial

import jax

from etude.core.observations import Symbols
from etude.envs.host.nethack_env import SPACES, TASKS, NetHackEnv
from etude.envs.suites.common import known, settings_from
from etude.envs.suites.gym import task_of
from etude.envs.tasks import HostTask
from etude.errors import UserError, did_you_mean
from etude.settings import check

QUANTITIES = ("blstats", "tty_cursor", "internal")
"""Of what can be observed, the numbers that are not symbols."""


@dataclasses.dataclass(frozen=True)
class NetHackSettings:
    character: str = "mon-hum-neu-mal"
    """Role, race, alignment and gender; @ for any."""
    limit: int = 5000
    """The maximum number of steps per episode."""
    observe: str = "glyphs+blstats+message"
    """What is observed, of NLE's keys."""

    def __post_init__(self) -> None:
        check(self, count="limit")
        for key in self.keys:
            if key not in SPACES:
                hint = did_you_mean(key, SPACES, f"there are: {', '.join(SPACES)}.")
                raise UserError(f"NetHack has no observation {key!r}: {hint}")

    @property
    def keys(self) -> tuple[str, ...]:
        return tuple(self.observe.split("+"))


def make(spec: str, name: str, settings: dict[str, str]) -> HostTask:
    known("nethack", name, names())
    chosen = settings_from(NetHackSettings(), settings, spec)
    if name == "Challenge" and "character" in settings:
        raise UserError("nethack/Challenge chooses the character itself.")
    options = {} if name == "Challenge" else {"character": chosen.character}
    task = task_of(spec, partial(NetHackEnv, name, chosen.limit, chosen.keys, **options))
    observation = {key: _described(key, leaf) for key, leaf in task.observation.items()}
    return dataclasses.replace(task, observation=observation)


def names() -> list[str]:
    return list(TASKS)


def _described(key: str, leaf: jax.ShapeDtypeStruct) -> Symbols | jax.ShapeDtypeStruct:
    if key in QUANTITIES:
        return leaf
    return Symbols(leaf.shape, leaf.dtype, int(SPACES[key].high.max()) + 1)
