"""Atari games in ale-py's own vector environment."""

from typing import Any

import numpy as np
from ale_py.vector_env import AtariVectorEnv
from gymnasium.vector import AutoresetMode

from etude.envs.host.simulator import Leaves, SimulatorFault, Stepped, with_skipped
from etude.envs.host.twin import Twin

SCREEN: dict[str, Any] = dict(img_height=210, img_width=160, grayscale=False)


class AtariEnvs:
    """Copies of a game. The next game starts within the step that ends one, so that none is lost;
    where the limit of frames has cut a game, the first step of the next one goes unseen, and only
    its reward counts, in the score.

    ale-py would clip rewards and end episodes with a life itself, but then neither the score nor
    the end of the game could be known (its `episodic_life` even starts the game anew).
    """

    def __init__(
        self,
        rom: str,
        num_envs: int,
        threads: int,
        clip: bool = False,
        life: bool = False,
        **options: Any,
    ):
        """`threads`: 0 for as many as there are cores; `options`: of ale-py."""
        self.num_envs, self.at, self.clip, self.life = num_envs, None, clip, life
        self.options: dict[str, Any] = dict(
            game=rom,
            stack_num=1,
            reward_clipping=False,
            autoreset_mode=AutoresetMode.SAME_STEP,
            **options,
        )
        self.env = AtariVectorEnv(num_envs=num_envs, num_threads=threads, **self.options)
        self.lives = np.zeros(num_envs, np.int32)
        self.cut = np.zeros(num_envs, bool)
        """Whose next step is skipped."""
        # The emulator of a game that is learned from only knows grey.
        self.twin = Twin(self._start_screen, lambda x: x[0, 0])

    def reset(self, seed: int) -> Leaves:
        seed %= 2**31 - self.num_envs
        observation, info = self.env.reset(seed=seed)
        self.lives, self.cut = info["lives"], np.zeros(self.num_envs, bool)
        self.twin.reset(seed)
        return [observation[:, 0]]

    def step(self, actions: np.ndarray) -> Stepped:
        actions = actions.astype(np.int32)
        try:
            observation, score, terminated, truncated, info = self.env.step(actions)
        except Exception as error:
            raise SimulatorFault(f"{type(error).__name__}: {error}") from error
        self.twin.step(actions)
        over = terminated | truncated
        if self.life:
            terminated = terminated | ((info["lives"] < self.lives) & ~over)
        score = score.astype(np.float32)
        stepped = with_skipped(
            self.cut,
            [observation[:, 0]],
            np.clip(score, -1, 1) if self.clip else score,
            terminated,
            truncated,
            score=score,
            over=over,
        )
        self.lives, self.cut = info["lives"], stepped.truncated
        if self.cut.any():
            observation[self.cut] = info["final_obs"][self.cut]
        return stepped

    def picture(self) -> np.ndarray | None:
        """The screen, if it is looked at from the first observation on."""
        return self.twin.picture()

    def close(self) -> None:
        self.env.close()
        self.twin.close()

    def _start_screen(self, seed: int) -> tuple[AtariVectorEnv, np.ndarray]:
        env = AtariVectorEnv(num_envs=1, **(self.options | SCREEN))
        return env, env.reset(seed=seed)[0]
