"""The 57 games of Atari that are played in the literature, with sticky actions, by ale-py."""

import dataclasses
import re
from functools import partial

import jax
import numpy as np
from ale_py import ALEInterface, LoggerMode, roms

from etude.envs.catalogue import ATARI_GAMES
from etude.envs.host.atari_envs import AtariEnvs
from etude.envs.suites.common import known, settings_from
from etude.envs.tasks import HostTask
from etude.settings import check


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

    def __post_init__(self) -> None:
        check(self, share="sticky", count="frames skip size", whole="noops")

    def options(self) -> dict:
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


def make(spec: str, name: str, settings: dict[str, str]) -> HostTask:
    rom = rom_name(known("atari", name, names()))
    chosen = settings_from(AtariSettings(), settings, spec)
    actions = 18 if chosen.full_actions else _minimal_actions(rom)
    observation = jax.ShapeDtypeStruct((chosen.size, chosen.size), np.uint8)
    copies = partial(_open, rom, chosen)
    return HostTask(spec, actions, observation, copies)


def names() -> list[str]:
    return ATARI_GAMES


def rom_name(game: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])|(?<=N)(?=D)", "_", game).lower()


def _open(rom: str, chosen: AtariSettings, num_envs: int, workers: int) -> AtariEnvs:
    return AtariEnvs(rom, num_envs, workers, chosen.clip, chosen.life, **chosen.options())


def _minimal_actions(rom: str) -> int:
    ALEInterface.setLoggerMode(LoggerMode.Error)
    ale = ALEInterface()
    ale.loadROM(str(roms.get_rom_path(rom)))
    return len(ale.getMinimalActionSet())
