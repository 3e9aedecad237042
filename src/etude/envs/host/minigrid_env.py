"""MiniGrid and BabyAI: what they show as symbols, their missions as words."""

from typing import Any

import gymnasium
import minigrid  # noqa: F401 (registers its environments)
import numpy as np
from gymnasium import spaces
from minigrid.core.constants import COLOR_TO_IDX, OBJECT_TO_IDX, STATE_TO_IDX
from minigrid.core.mission import MissionSpace
from minigrid.envs.babyai.core import roomgrid_level

from etude.envs.host.gym_envs import PICTURE

SYMBOLS = max(len(OBJECT_TO_IDX), len(COLOR_TO_IDX), len(STATE_TO_IDX))
"""In a cell: what it is, its colour, its state."""
_WORDS = """
a after and at avoid ball behind blue box door end fetch find from front get go goal green grey
hallway in key lava left matching must near next object of on open opening pick purple put reach red
right room rooms square the then to traverse unlock up use yellow you your
"""
WORDS = _WORDS.split()
NUMBER = {word: i + 2 for i, word in enumerate(WORDS)}
"""0 stands for no word, 1 for any other."""
MISSION_LENGTH = 48
"""Words; all but the longest missions of BabyAI's boss levels have fewer than 40."""


def _silent(*_: object) -> None: ...


# BabyAI prints each world that it tries in vain.
roomgrid_level.print = _silent  # type: ignore[attr-defined]


class MiniGridEnv(gymnasium.ObservationWrapper):
    """The mission is left out where it is always the same."""

    def __init__(self, name: str, **options: Any):
        made = gymnasium.make(name, disable_env_checker=True, render_mode=PICTURE, **options)
        super().__init__(made)
        shown = made.observation_space
        assert isinstance(shown, spaces.Dict)
        shape = shown["image"].shape or ()
        parts: dict[str, spaces.Space] = {
            "direction": spaces.Discrete(4),
            "image": spaces.MultiDiscrete(np.full(shape, SYMBOLS), dtype=np.uint8),
        }
        mission = shown["mission"]
        if type(mission) is not MissionSpace or mission.ordered_placeholders:
            counts = np.full(MISSION_LENGTH, len(WORDS) + 2)
            parts["mission"] = spaces.MultiDiscrete(counts, dtype=np.uint8)
        self.observation_space = spaces.Dict(parts)
        self.said, self.numbers = "", np.zeros(MISSION_LENGTH, np.uint8)

    def observation(self, observation: dict[str, Any]) -> dict[str, Any]:
        if observation["mission"] != self.said:
            self.said = observation["mission"]
            self.numbers = numbers_of(self.said)
        return {**observation, "mission": self.numbers}


def numbers_of(mission: str) -> np.ndarray:
    """A number per word, and zeros after the last."""
    words = mission.lower().replace(",", " ").split()[:MISSION_LENGTH]
    numbers = np.zeros(MISSION_LENGTH, np.uint8)
    numbers[: len(words)] = [NUMBER.get(word, 1) for word in words]
    return numbers
