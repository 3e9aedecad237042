"""NetHack, by the NetHack Learning Environment."""

from typing import Any

import gymnasium
import numpy as np
from nle.env import tasks  # type: ignore
from nle.env.base import NLE, NLE_SPACE_ITEMS  # type: ignore

TASKS: dict[str, type[NLE]] = {
    "Score": tasks.NetHackScore,
    "Staircase": tasks.NetHackStaircase,
    "StaircasePet": tasks.NetHackStaircasePet,
    "Oracle": tasks.NetHackOracle,
    "Gold": tasks.NetHackGold,
    "Eat": tasks.NetHackEat,
    "Scout": tasks.NetHackScout,
    "Challenge": tasks.NetHackChallenge,
}
SPACES = dict(NLE_SPACE_ITEMS)
"""Of all that can be observed."""
NO_LIMIT = 2**31 - 1


class NetHackEnv(gymnasium.Env):
    """A task of NLE's, with two things mended: its seeds are set, so that games can be repeated,
    and its time limit cuts an episode, where NLE quits the game, says that it has ended, and shows
    what is on the screen after that."""

    metadata = {"render_modes": ["rgb_array"]}  # noqa: RUF012

    def __init__(self, task: str, limit: int, keys: tuple[str, ...], **options: Any):
        self.limit, self.steps, self.seeded = limit, 0, task != "Challenge"
        arguments = dict(max_episode_steps=NO_LIMIT, observation_keys=keys, render_mode="pixel")
        self.env = TASKS[task](**arguments, **options)  # type: ignore[arg-type]
        self.observation_space = self.env.observation_space
        self.action_space = self.env.action_space

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None):
        super().reset(seed=seed)
        self.steps = 0
        if self.seeded:
            core, display = self.np_random.integers(2**31, size=2).tolist()
            self.env.seed(core, display, reseed=False)
        return self.env.reset()

    def step(self, action: int):
        observation, reward, terminated, _, info = self.env.step(action)
        self.steps += 1
        return observation, reward, terminated, self.steps >= self.limit, info

    def render(self) -> np.ndarray:
        return np.asarray(self.env.render())

    def close(self) -> None:
        self.env.close()
