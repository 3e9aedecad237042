"""Procgen's games, in its own vector environment."""

import contextlib
import io
from typing import Any

import numpy as np

from etude.envs.host.simulator import Leaves, SimulatorFault, Stepped

with contextlib.redirect_stderr(io.StringIO()):  # gym says at length that it is no longer kept
    from procgen import ProcgenGym3Env  # type: ignore
    from procgen.env import ENV_NAMES  # type: ignore

GAMES: list[str] = list(ENV_NAMES)
ACTIONS = 15


class ProcgenEnvs:
    """Copies of a game. Its time limit ends an episode like any other end, since Procgen does not
    say which it was."""

    def __init__(self, game: str, num_envs: int, threads: int, **options: Any):
        self.num_envs, self.at = num_envs, None
        self.options = dict(num=num_envs, env_name=game, num_threads=threads, **options)
        self.env: ProcgenGym3Env | None = None
        self.never = np.zeros(num_envs, bool)

    def reset(self, seed: int) -> Leaves:
        """Starts it anew: Procgen is given its seed only then."""
        self.close()
        self.env = ProcgenGym3Env(rand_seed=seed % 2**31, **self.options)
        return self._observe()[0]

    def step(self, actions: np.ndarray) -> Stepped:
        assert self.env is not None
        try:
            self.env.act(actions)
            observation, reward, ended = self._observe()
        except Exception as error:
            raise SimulatorFault(f"{type(error).__name__}: {error}") from error
        return Stepped(observation, reward, ended, self.never, self.never)

    def picture(self) -> np.ndarray | None:
        """What the agent sees; drawing it any larger would slow down every step."""
        return self._observe()[0][0][0]

    def close(self) -> None:
        if self.env is not None:
            self.env.close()

    def _observe(self) -> tuple[list[np.ndarray], np.ndarray, np.ndarray]:
        assert self.env is not None
        reward, observation, first = self.env.observe()
        return [observation["rgb"]], reward, first
