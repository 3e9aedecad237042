"""Crafter as a Gymnasium environment."""

from collections.abc import Mapping
from typing import Any

import crafter  # type: ignore
import gymnasium
import numpy as np
from gymnasium import spaces

from etude.envs.host.simulator import OUTCOME


class RepeatableCrafter(crafter.Env):
    """Which of several animals vanishes depends on the order of a set, which no seed governs; here
    it is that of their places."""

    def _balance_chunk(self, chunk, objs):
        super()._balance_chunk(chunk, sorted(objs, key=lambda x: tuple(x.pos)))


class CrafterEnv(gymnasium.Env):
    """Crafter, which is older than Gymnasium."""

    metadata = {"render_modes": ["rgb_array"]}  # noqa: RUF012

    def __init__(self, length: int = 10_000, reward: bool = True):
        self.arguments = dict(length=length, reward=reward)
        self.env = RepeatableCrafter(**self.arguments)
        self.observation_space = spaces.Box(0, 255, (64, 64, 3), np.uint8)
        self.action_space = spaces.Discrete(len(self.env.action_names))

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None):
        super().reset(seed=seed)
        if seed is not None:
            self.env = RepeatableCrafter(seed=seed, **self.arguments)
        return self.env.reset(), {}

    def step(self, action: int):
        observation, reward, done, info = self.env.step(action)
        dead = info["discount"] == 0.0
        info[OUTCOME] = {name: float(count > 0) for name, count in info["achievements"].items()}
        return observation, reward, dead, done and not dead, info

    def render(self) -> np.ndarray:
        return self.env.render((360, 360))


def score(rates: Mapping[str, float]) -> dict[str, float]:
    """Crafter's score in per cent: the geometric mean of the achievements' success rates, as in its
    [paper](https://arxiv.org/abs/2109.06780): exp(mean(ln(1 + rate))) − 1."""
    return {"score": float(np.expm1(np.mean(np.log1p(100.0 * np.array(list(rates.values()))))))}
