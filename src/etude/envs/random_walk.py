"""Sutton's random walk, whose left end changes what it pays: a prediction problem."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from etude.envs.base import Action, EnvParams, EnvState, TimeLimited, Transition
from etude.envs.pictures import board


class WalkState(EnvState):
    place: Int[Array, ""]
    """From 0 to states + 1, both ends included."""
    clock: Int[Array, ""]
    """Steps over all episodes: it decides what the left end pays."""


class RandomWalk(TimeLimited[WalkState]):
    """A walk left or right by chance: the right end pays 1, the left end 0 or −1, in turn.

    There is one action, so that all there is to learn are values. The left end changes every
    `period` steps, counted over episodes.
    """

    num_actions, limit = 1, 10_000

    def __init__(self, states: int = 5, period: int = 960):
        if states < 1 or period < 1:
            raise ValueError(f"A walk needs states and a period, not {states} and {period}.")
        self.states, self.period = states, period

    def left_reward(self, clock: Int[Array, "*"]) -> Float[Array, "*"]:
        return jnp.where(clock // self.period % 2 == 0, 0.0, -1.0)

    def true_values(self, clock: Int[Array, ""]) -> Float[Array, " states"]:
        """Of every inner state, from left to right, without discount: a straight line."""
        share = jnp.arange(1, self.states + 1) / (self.states + 1)
        return share + (1 - share) * self.left_reward(clock)

    def observations(self) -> Float[Array, "states states"]:
        """What is seen in every inner state, from left to right."""
        return jnp.eye(self.states)

    def reset_env(self, key: Array, params: EnvParams) -> tuple[Array, WalkState]:
        zero = jnp.zeros((), jnp.int32)
        state = WalkState(zero, jnp.asarray((self.states + 1) // 2, jnp.int32), zero)
        return self._observe(state), state

    def step(self, key: Array, state: WalkState, action: Action, params: EnvParams | None = None):  # type: ignore[override]
        """As always, but the clock goes on when an episode ends."""
        clock = state.clock + 1
        observation, state, *rest = super().step(key, state, action, params)
        return observation, WalkState(state.time, state.place, clock), *rest

    def step_env(
        self, key: Array, state: WalkState, action: Action, params: EnvParams
    ) -> Transition[Array, WalkState]:
        place = state.place + jnp.where(jax.random.bernoulli(key), 1, -1)
        right, left = place == self.states + 1, place == 0
        reward = jnp.where(right, 1.0, jnp.where(left, self.left_reward(state.clock), 0.0))
        state = WalkState(state.time + 1, place, state.clock + 1)
        return self._observe(state), state, reward, right | left, {}

    def _observe(self, state: WalkState) -> Float[Array, " states"]:
        return jax.nn.one_hot(state.place - 1, self.states)

    def render(self, state: WalkState, params: EnvParams) -> np.ndarray:
        planes = np.zeros((1, self.states + 2, 4))
        planes[0, 0, 2] = -float(self.left_reward(state.clock))
        planes[0, -1, 3] = 1.0
        planes[0, int(state.place), 0] = 1.0
        return board(planes)
