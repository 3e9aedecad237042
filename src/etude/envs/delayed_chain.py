"""Chains in which one step decides what is paid much later, under noise."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from etude.core.types import EXPECTED_REWARD
from etude.envs.base import Action, EnvState, TaskEnvironment, Transition
from etude.envs.draws import whole_between


class ChainTask(eqx.Module):
    length: Int[Array, ""]
    """Steps in an episode."""
    decides: Int[Array, ""]
    """The step whose action matters."""
    delay: Int[Array, ""]
    """How many steps later it is paid for."""
    best: Int[Array, ""]
    """The action that is paid 1; any other is paid −1."""
    noise: Float[Array, ""]
    """The standard deviation of what each step pays beside that."""


class ChainState(EnvState):
    choice: Int[Array, ""]
    """What was done at the step that matters; −1 before."""


class DelayedChain(TaskEnvironment[ChainState, ChainTask]):
    """One action of a chain decides: ±1 is paid for it, some steps later and under noise.

    After the delayed chains of LPG (arXiv 2007.08794). Drawn are the chain's length (from
    `shortest` to `length`), the step that matters, its delay (up to `delay`, and to the end of the
    chain), the best of the `actions`, and the standard deviation of the rewards' noise (up to
    `noise`). An observation has the step, what was chosen at the step that matters, and
    `distractors` random bits.
    """

    def __init__(
        self,
        length: int = 20,
        shortest: int = 4,
        delay: int = 20,
        noise: float = 0.5,
        actions: int = 2,
        distractors: int = 0,
    ):
        if not 1 <= shortest <= length:
            raise ValueError(f"A chain has 1 to {length} steps, not from {shortest}.")
        if min(delay, noise, distractors) < 0 or actions < 2:
            raise ValueError(
                "A chain has 2 or more actions, and a delay, noise and distractors of 0 or more."
            )
        self.length = self.horizon = length
        self.shortest, self.delay, self.noise = shortest, delay, noise
        self.num_actions, self.distractors = actions, distractors

    def sample_task(self, key: PRNGKeyArray) -> ChainTask:
        length_key, delay_key, step_key, best_key, noise_key = jax.random.split(key, 5)
        length = whole_between(length_key, self.shortest, self.length)
        delay = jax.random.randint(delay_key, (), 0, jnp.minimum(self.delay, length - 1) + 1)
        return ChainTask(
            length=length,
            decides=jax.random.randint(step_key, (), 0, length - delay),
            delay=delay,
            best=jax.random.randint(best_key, (), 0, self.num_actions),
            noise=jax.random.uniform(noise_key, maxval=self.noise) if self.noise else jnp.zeros(()),
        )

    def reset_env(self, key: Array, params: ChainTask) -> tuple[Array, ChainState]:
        state = ChainState(jnp.zeros((), jnp.int32), jnp.asarray(-1, jnp.int32))
        return self._observe(key, state), state

    def step_env(
        self, key: Array, state: ChainState, action: Action, params: ChainTask
    ) -> Transition[Array, ChainState]:
        noise_key, see_key = jax.random.split(key)
        choice = jnp.where(state.time == params.decides, action, state.choice).astype(jnp.int32)
        paid = state.time == params.decides + params.delay
        mean = jnp.where(paid, jnp.where(choice == params.best, 1.0, -1.0), 0.0)
        reward = mean + params.noise * jax.random.normal(noise_key)
        state = ChainState(state.time + 1, choice)
        ends = state.time >= params.length
        return self._observe(see_key, state), state, reward, ends, {EXPECTED_REWARD: mean}

    def _observe(self, key: Array, state: ChainState) -> Float[Array, " inputs"]:
        step = jax.nn.one_hot(state.time, self.length)
        choice = jax.nn.one_hot(state.choice, self.num_actions)
        bits = jax.random.bernoulli(key, shape=(self.distractors,)).astype(float)
        return jnp.concatenate([step, choice, bits])
