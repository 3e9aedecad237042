"""Atari games in ale-py's own vector environment."""

from typing import Any

import numpy as np
from ale_py.vector_env import AtariVectorEnv
from gymnasium.vector import AutoresetMode

from etude.envs.host.simulator import Leaves, SimulatorFault, Stepped

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
        self.twin: AtariVectorEnv | None = None
        """The first game once more, in colour and as large as the screen, if it was asked for."""
        self.seed: int | None = None
        """Until the first step: what a twin has to start from."""

    def reset(self, seed: int) -> Leaves:
        self.seed = seed % (2**31 - self.num_envs)
        observation, info = self.env.reset(seed=self.seed)
        self.lives, self.cut = info["lives"], np.zeros(self.num_envs, bool)
        if self.twin is not None:
            self.twin_saw, _ = self.twin.reset(seed=self.seed)
        return [observation[:, 0]]

    def step(self, actions: np.ndarray) -> Stepped:
        actions, self.seed = actions.astype(np.int32), None
        try:
            observation, score, terminated, truncated, info = self.env.step(actions)
        except Exception as error:
            raise SimulatorFault(f"{type(error).__name__}: {error}") from error
        if self.twin is not None:
            self.twin_saw = self.twin.step(actions[:1])[0]
        over, skipped = terminated | truncated, self.cut
        if self.life:
            terminated = terminated | ((info["lives"] < self.lives) & ~over)
        self.lives, self.cut = info["lives"], truncated & ~terminated & ~skipped
        if self.cut.any():
            observation[self.cut] = info["final_obs"][self.cut]
        score = score.astype(np.float32)
        return Stepped(
            [observation[:, 0]],
            np.where(skipped, 0.0, np.clip(score, -1, 1) if self.clip else score),
            terminated & ~skipped,
            self.cut,
            skipped,
            score=score,
            over=over,
        )

    def picture(self) -> np.ndarray | None:
        """The screen, if it is looked at from the first observation on. A second emulator draws
        it, which is given the same seed and the same actions: this one only knows grey."""
        if self.twin is None and self.seed is not None:
            self.twin = AtariVectorEnv(num_envs=1, **(self.options | SCREEN))
            self.twin_saw, _ = self.twin.reset(seed=self.seed)
        return None if self.twin is None else self.twin_saw[0, 0]

    def close(self) -> None:
        self.env.close()
        if self.twin is not None:
            self.twin.close()
