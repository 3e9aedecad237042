"""Stable-Baselines3's PPO, timed in an environment of its own: `benchmarks.against_sb3` runs this.

    python benchmarks/sb3_ppo.py CartPole-v1|Breakout updates

Prints environment steps per second after a first update.
"""

import sys
import time

from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_atari_env, make_vec_env
from stable_baselines3.common.vec_env import VecFrameStack

ENVS, STEPS, EPOCHS, MINIBATCHES = 8, 128, 4, 4


class Clock(BaseCallback):
    """Starts with the second rollout."""

    started = 0.0

    def _on_rollout_start(self) -> None:
        if self.started == 0.0 and self.num_timesteps:
            self.started, self.before = time.perf_counter(), self.num_timesteps

    def _on_step(self) -> bool:
        return True


def main(name: str, updates: int) -> None:
    if name == "Breakout":
        envs = make_atari_env("ALE/Breakout-v5", ENVS, seed=0, env_kwargs={"frameskip": 1})
        envs, policy = VecFrameStack(envs, 4), "CnnPolicy"
    else:
        envs, policy = make_vec_env(name, ENVS, seed=0), "MlpPolicy"
    batch = ENVS * STEPS // MINIBATCHES
    agent = PPO(
        policy, envs, n_steps=STEPS, batch_size=batch, n_epochs=EPOCHS, device="cpu", seed=0
    )
    clock = Clock()
    agent.learn(ENVS * STEPS * (updates + 1), callback=clock)
    print((agent.num_timesteps - clock.before) / (time.perf_counter() - clock.started))


if __name__ == "__main__":
    import ale_py
    import gymnasium

    gymnasium.register_envs(ale_py)
    main(sys.argv[1], int(sys.argv[2]))
