"""Bernoulli bandits: which arm pays best?"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from etude.core.types import EXPECTED_REWARD
from etude.envs import base
from etude.envs.pictures import board


class BanditParams(eqx.Module):
    """The task."""

    probabilities: Float[Array, " arms"]
    """Of each arm to pay 1."""


class BanditState(eqx.Module):
    arm: Int[Array, ""]
    """The last one pulled; −1 before the first pull."""
    reward: Float[Array, ""]
    time: Int[Array, ""]


class Bandit(base.Environment[Any, Any]):
    """Pull one of `arms` levers, `pulls` times; lever i pays 1 with probability (i + 1)/(arms + 1).

    There is nothing to see. Other probabilities are other tasks, in the environment's parameters.
    """

    def __init__(self, arms: int = 5, pulls: int = 10):
        super().__init__()
        if arms < 1 or pulls < 1:
            raise ValueError(f"A bandit needs arms and pulls, not {arms} and {pulls}.")
        self.arms, self.pulls = arms, pulls

    @property
    def default_params(self) -> Any:
        probabilities = jnp.arange(1, self.arms + 1) / (self.arms + 1)
        return BanditParams(probabilities)

    @property
    def num_actions(self) -> int:
        return self.arms

    def sample_task(self, key: PRNGKeyArray) -> BanditParams:
        return BanditParams(jax.random.uniform(key, (self.arms,)))

    @property
    def horizon(self) -> int:
        return self.pulls

    def reset_env(self, key: Array, params: BanditParams) -> tuple[Array, BanditState]:
        state = BanditState(jnp.asarray(-1, jnp.int32), jnp.zeros(()), jnp.zeros((), jnp.int32))
        return jnp.ones(1), state

    def step_env(
        self, key: Array, state: BanditState, action: Any, params: BanditParams
    ) -> tuple[Array, BanditState, Float[Array, ""], Bool[Array, ""], dict[Any, Any]]:
        mean = params.probabilities[action]
        reward = jax.random.bernoulli(key, mean).astype(float)
        state = BanditState(jnp.asarray(action, jnp.int32), reward, state.time + 1)
        return jnp.ones(1), state, reward, state.time >= self.pulls, {EXPECTED_REWARD: mean}

    def is_truncated(self, state: BanditState, params: BanditParams) -> Bool[Array, ""]:
        return jnp.zeros((), bool)  # after the last pull there is nothing more

    def render(self, state: BanditState, params: BanditParams) -> np.ndarray:
        """The arms in a row, as bright as they are good; below, the one pulled and what it paid."""
        planes = np.zeros((2, self.arms, 3))
        planes[0, :, 0] = params.probabilities
        if state.arm >= 0:
            planes[1, int(state.arm), 2 - int(state.reward)] = 1.0
        return board(planes)

    def action_space(self, params: BanditParams | None = None) -> base.Discrete:
        return base.Discrete(self.arms)

    def observation_space(self, params: BanditParams) -> base.Box:
        return base.Box(1.0, 1.0, (1,), jnp.float32)
