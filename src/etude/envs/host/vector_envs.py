"""Gymnasium's vector environments, whichever way they start new episodes."""

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv

from etude.envs.host.gym_envs import first_action_in, leaves_of, picture_in, require_real
from etude.envs.host.simulator import (
    Leaves,
    SimulatorFault,
    Stepped,
    faults,
    with_skipped,
)


class VectorEnvs:
    """A Gymnasium vector environment.

    Some start an episode with the step after the last one; that step is skipped. Others start it
    within the last step, or leave it to us to do so. All environments are stepped together, so
    that where a time limit has cut an episode, the first step of the next one goes unseen while
    its seam is recorded: only its reward counts, in the score.
    """

    def __init__(self, env: VectorEnv):
        self.env, self.num_envs, self.at = env, env.num_envs, None
        self.mode = AutoresetMode(env.metadata.get("autoreset_mode", AutoresetMode.NEXT_STEP))
        self.leaves = leaves_of(env.single_observation_space)
        self.first_action = first_action_in(env.single_action_space)
        self.cut = np.zeros(self.num_envs, bool)
        """Whose next step is skipped."""

    def reset(self, seed: int) -> Leaves:
        with faults():
            observation, _ = self.env.reset(seed=seed)
            self.cut[:] = False
            return self._arrays(observation)

    def step(self, actions: np.ndarray) -> Stepped:
        with faults():
            return self._step(actions)

    def _step(self, actions: np.ndarray) -> Stepped:
        found, reward, terminated, truncated, info = self.env.step(actions + self.first_action)
        for name, flags in (("terminated", terminated), ("truncated", truncated)):
            if np.asarray(flags).dtype.kind not in "biu":
                raise SimulatorFault(f"its {name} is {flags!r}, not true or false")
        require_real(np.asarray(reward))
        observation, ended = self._arrays(found), terminated | truncated
        if self.mode is AutoresetMode.NEXT_STEP:
            skipped, self.cut = self.cut, ended
            return with_skipped(skipped, observation, reward, terminated, truncated)
        final = info.get("final_obs")
        if self.mode is AutoresetMode.DISABLED and ended.any():
            final, observation = observation, [x.copy() for x in observation]
            fresh, _ = self.env.reset(options={"reset_mask": ended})
            for x, new in zip(observation, self._arrays(fresh), strict=True):
                x[ended] = new[ended]
        stepped = with_skipped(
            self.cut, observation, reward, terminated, truncated, score=reward, over=ended
        )
        self.cut = stepped.truncated
        if self.cut.any():
            stepped = stepped._replace(observation=self._with_last(observation, final))
        return stepped

    def picture(self) -> np.ndarray | None:
        frames = self.env.render()
        return picture_in(frames[0]) if frames is not None else None

    def close(self) -> None:
        self.env.close()

    def _arrays(self, observation) -> list[np.ndarray]:
        found = [np.asarray(leaf.of(observation)) for leaf in self.leaves]
        for x in found:
            require_real(x)
        return [
            x.astype(leaf.dtype, copy=False) for leaf, x in zip(self.leaves, found, strict=True)
        ]

    def _with_last(self, observation: list[np.ndarray], final) -> list[np.ndarray]:
        """Where an episode was cut, its last observation in place of the next one's first."""
        observation = [x.copy() for x in observation]
        each = isinstance(final, np.ndarray) and final.dtype == object
        for k, (leaf, x) in enumerate(zip(self.leaves, observation, strict=True)):
            for i in np.flatnonzero(self.cut):
                if isinstance(final, list):
                    x[i] = final[k][i]
                else:
                    x[i] = leaf.of(final[i]) if each else leaf.of(final)[i]
        return observation
