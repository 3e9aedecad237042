"""The 57 games of Atari that are played in the literature, with sticky actions, by ale-py or
EnvPool."""

import dataclasses
import importlib.util
import re
from functools import partial
from typing import Any

import jax
import numpy as np
from ale_py import ALEInterface, LoggerMode, roms

from etude.envs.catalogue import ATARI_GAMES
from etude.envs.host.atari_envs import AtariEnvs
from etude.envs.host.simulator import Simulator
from etude.envs.suites.common import known, settings_from
from etude.envs.tasks import HostTask
from etude.errors import UserError
from etude.settings import check, require


@dataclasses.dataclass(frozen=True)
class AtariSettings:
    """Defaults are those of the DiscoRL paper, as far as it says."""

    clip: bool = False
    """Learn from rewards between −1 and 1; the score stays the game's."""
    life: bool = False
    """Learn that a lost life ends an episode; the game goes on."""
    full_actions: bool = True
    """All 18 actions, not only those that the game knows."""
    sticky: float = 0.25
    """How likely the last action is repeated in a frame, whatever the agent does."""
    frames: int = 108_000
    """The maximum per game, skipped ones included."""
    skip: int = 4
    """Frames per action; the observation is the maximum over the last two."""
    size: int = 84
    noops: int = 0
    """At most so many steps of doing nothing at the start of a game."""
    fire: bool = False
    """Press the button that starts the game."""
    by: str = "ale"
    """Whose vector environment plays: ale, that of ale-py, or envpool, if it is installed."""

    def __post_init__(self) -> None:
        check(self, share="sticky", count="frames skip size", whole="noops")
        require(self, "by", lambda x: x in ("ale", "envpool"), "ale or envpool")

    def of_ale(self) -> dict[str, Any]:
        """As ale-py calls them."""
        return dict(
            full_action_space=self.full_actions,
            repeat_action_probability=self.sticky,
            max_num_frames_per_episode=self.frames,
            frameskip=self.skip,
            img_height=self.size,
            img_width=self.size,
            noop_max=self.noops,
            use_fire_reset=self.fire,
        )

    def of_envpool(self) -> dict[str, Any]:
        """As EnvPool calls them."""
        return dict(
            full_action_space=self.full_actions,
            repeat_action_probability=self.sticky,
            max_episode_steps=self.frames // self.skip,
            frame_skip=self.skip,
            img_height=self.size,
            img_width=self.size,
            noop_max=self.noops + 1,
            use_fire_reset=self.fire,
            stack_num=1,
        )


def make(spec: str, name: str, settings: dict[str, str]) -> HostTask:
    rom = rom_name(known("atari", name, names()))
    chosen = settings_from(AtariSettings(), settings, spec)
    actions = 18 if chosen.full_actions else _minimal_actions(rom)
    observation = jax.ShapeDtypeStruct((chosen.size, chosen.size), np.uint8)
    open_ = partial(_open_ale, rom, chosen)
    if chosen.by == "envpool":
        _require_envpool(spec, name)
        open_ = partial(_open_envpool, name, chosen)
    return HostTask(spec, actions, observation, open_)


def names() -> list[str]:
    return ATARI_GAMES


def rom_name(game: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])|(?<=N)(?=D)", "_", game).lower()


def _open_ale(rom: str, chosen: AtariSettings, num_envs: int, workers: int) -> AtariEnvs:
    return AtariEnvs(rom, num_envs, workers, chosen.clip, chosen.life, **chosen.of_ale())


def _require_envpool(spec: str, game: str) -> None:
    if importlib.util.find_spec("envpool") is None:
        raise UserError(f"{spec} needs envpool, which is not installed: pip install envpool.")
    from etude.envs.host.envpool_envs import require_game

    require_game(spec, f"{game}-v5")


def _open_envpool(game: str, chosen: AtariSettings, num_envs: int, workers: int) -> Simulator:
    from etude.envs.host.envpool_envs import EnvPoolEnvs  # which may not be installed

    options, learned = chosen.of_envpool(), dict(clip=chosen.clip, life=chosen.life)
    screen = dict(img_height=210, img_width=160, gray_scale=False)
    return EnvPoolEnvs(f"{game}-v5", num_envs, workers, **learned, screen=screen, **options)


def _minimal_actions(rom: str) -> int:
    ALEInterface.setLoggerMode(LoggerMode.Error)
    ale = ALEInterface()
    ale.loadROM(str(roms.get_rom_path(rom)))
    return len(ale.getMinimalActionSet())
