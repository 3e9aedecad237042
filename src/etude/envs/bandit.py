"""Bernoulli bandits: which arm pays best?"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from etude.core.types import EXPECTED_REWARD
from etude.envs.base import Action, EnvState, TaskEnvironment, Transition
from etude.envs.draws import draw_scale_and_limit, require_draws
from etude.envs.pictures import board


class BanditParams(eqx.Module):
    probabilities: Float[Array, " arms"]
    """Of each arm to pay."""
    pays: Float[Array, ""] | None = None
    """What it pays then; 1 if nothing is said."""
    limit: Int[Array, ""] | None = None
    """Pulls in an episode, if not those of the environment."""


class BanditState(EnvState):
    arm: Int[Array, ""]
    """The last one pulled; −1 before the first pull."""
    reward: Float[Array, ""]


class Bandit(TaskEnvironment[BanditState, BanditParams]):
    """Pull one of `arms` levers, `pulls` times; lever i pays 1 with probability (i + 1)/(arms + 1).

    There is nothing to see. Other probabilities are other tasks, in the environment's parameters.
    With `shortest`, a drawn task has from there up to `pulls` pulls; with `scale` S > 1, what its
    levers pay is drawn from 1/S to S. Both are log-uniform.
    """

    def __init__(self, arms: int = 5, pulls: int = 10, shortest: int = 0, scale: float = 1.0):
        if arms < 1 or pulls < 1:
            raise ValueError(f"A bandit needs arms and pulls, not {arms} and {pulls}.")
        require_draws(shortest, pulls, scale)
        self.shortest, self.scale = shortest, scale
        self.arms = self.num_actions = arms
        self.pulls = self.horizon = pulls

    @property
    def default_params(self) -> BanditParams:  # type: ignore[override]
        one, pulls = jnp.ones(()), jnp.asarray(self.pulls, jnp.int32)
        return BanditParams(
            jnp.arange(1, self.arms + 1) / (self.arms + 1),
            one if self.scale > 1 else None,  # in the form of a drawn task
            pulls if self.shortest else None,
        )

    def sample_task(self, key: PRNGKeyArray) -> BanditParams:
        drawn = draw_scale_and_limit(key, self.scale, self.shortest, self.pulls)
        return BanditParams(jax.random.uniform(key, (self.arms,)), *drawn)

    def reset_env(self, key: Array, params: BanditParams) -> tuple[Array, BanditState]:
        state = BanditState(jnp.zeros((), jnp.int32), jnp.asarray(-1, jnp.int32), jnp.zeros(()))
        return jnp.ones(1), state

    def step_env(
        self, key: Array, state: BanditState, action: Action, params: BanditParams
    ) -> Transition[Array, BanditState]:
        mean = params.probabilities[action]
        reward = jax.random.bernoulli(key, mean).astype(float)
        if params.pays is not None:
            mean, reward = params.pays * mean, params.pays * reward
        state = BanditState(state.time + 1, jnp.asarray(action, jnp.int32), reward)
        limit = self.pulls if params.limit is None else params.limit
        return jnp.ones(1), state, reward, state.time >= limit, {EXPECTED_REWARD: mean}

    def render(self, state: BanditState, params: BanditParams) -> np.ndarray:
        """The arms in a row, as bright as they are good; below, the one pulled and what it paid."""
        planes = np.zeros((2, self.arms, 3))
        planes[0, :, 0] = params.probabilities
        if state.arm >= 0:
            planes[1, int(state.arm), 2 - int(state.reward > 0)] = 1.0
        return board(planes)
