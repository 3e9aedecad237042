"""Procgen: 16 games with levels made by chance, by EnvPool."""

import dataclasses
from functools import partial

import jax
import numpy as np

from etude.envs.host.envpool_envs import EnvPoolEnvs, require_game
from etude.envs.suites.common import known, settings_from
from etude.envs.tasks import HostTask
from etude.settings import check, require

_GAMES = """
bigfish bossfight caveflyer chaser climber coinrun dodgeball fruitbot heist jumper leaper maze miner
ninja plunder starpilot
"""
GAMES: list[str] = [*_GAMES.split()]
ACTIONS = 15


@dataclasses.dataclass(frozen=True)
class ProcgenSettings:
    mode: str = "easy"
    """easy or hard."""
    levels: int = 200
    """How many there are; 0 for no end of them, which is how generalisation is tested."""
    start: int = 0
    """The first one."""

    def __post_init__(self) -> None:
        check(self, whole="levels start")
        require(self, "mode", lambda x: x in ("easy", "hard"), "easy or hard")


def make(spec: str, name: str, settings: dict[str, str]) -> HostTask:
    known("procgen", name, names())
    chosen = settings_from(ProcgenSettings(), settings, spec)
    require_game(spec, _name(name, chosen))
    observation = jax.ShapeDtypeStruct((64, 64, 3), np.uint8)
    return HostTask(spec, ACTIONS, observation, partial(_open, name, chosen))


def names() -> list[str]:
    return GAMES


def _open(game: str, chosen: ProcgenSettings, num_envs: int, workers: int) -> EnvPoolEnvs:
    return EnvPoolEnvs(
        _name(game, chosen),
        num_envs,
        workers,
        channel_first=False,
        num_levels=chosen.levels,
        start_level=chosen.start,
    )


def _name(game: str, chosen: ProcgenSettings) -> str:
    """As EnvPool calls it."""
    return f"{game.capitalize()}{chosen.mode.capitalize()}-v0"
