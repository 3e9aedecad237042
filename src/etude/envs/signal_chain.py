"""A chain that alternates between noise and a small signal: what is worth looking ahead to?"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from etude.envs.base import Action, EnvParams, EnvState, TimeLimited, Transition


class SignalChain(TimeLimited[EnvState]):
    """`length` steps without a choice: in turn noise of mean 0, and a reward of `signal`.

    After Xu et al., "Meta-gradient reinforcement learning" (arXiv 1805.09801): a discount that
    depends on the state can leave out the noise and keep the signal. The first reward is noise.
    """

    num_actions = 1

    def __init__(self, length: int = 10, signal: float = 0.1, noise: float = 1.0):
        if length < 1 or noise < 0:
            raise ValueError(f"A chain cannot have length {length} and noise {noise}.")
        self.length, self.signal, self.noise, self.limit = length, signal, noise, length + 1

    def noisy(self) -> Bool[Array, " length"]:
        """Whether the reward of each step is noise."""
        return jnp.arange(self.length) % 2 == 0

    def true_values(self) -> Float[Array, " length"]:
        """Of the state before each step, without discount."""
        paid = jnp.where(self.noisy(), 0.0, self.signal)
        return jnp.cumsum(paid[::-1])[::-1]

    def observations(self) -> Float[Array, "length length"]:
        return jnp.eye(self.length)

    def reset_env(self, key: Array, params: EnvParams) -> tuple[Array, EnvState]:
        state = EnvState(jnp.zeros((), jnp.int32))
        return self._observe(state), state

    def step_env(
        self, key: Array, state: EnvState, action: Action, params: EnvParams
    ) -> Transition[Array, EnvState]:
        noise = self.noise * jax.random.normal(key)
        reward = jnp.where(self.noisy()[state.time], noise, self.signal)
        state = EnvState(state.time + 1)
        return self._observe(state), state, reward, state.time >= self.length, {}

    def _observe(self, state: EnvState) -> Float[Array, " length"]:
        return jax.nn.one_hot(state.time, self.length)
