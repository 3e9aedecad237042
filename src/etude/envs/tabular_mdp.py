"""Random tabular MDPs (arXiv 1611.02779, section 3.2)."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from etude.core.types import EXPECTED_REWARD
from etude.envs import pictures
from etude.envs.base import Action, EnvState, TaskEnvironment, Transition
from etude.envs.draws import draw_scale_and_limit, require_draws


class MDPTask(eqx.Module):
    transitions: Float[Array, "states actions states"]
    rewards: Float[Array, "states actions"]
    """Their means; what is paid has unit variance around them, before it is scaled."""
    scale: Float[Array, ""] | None = None
    """What all rewards are multiplied by, if they are."""
    limit: Int[Array, ""] | None = None
    """Steps in an episode, if not the environment's horizon."""


class MDPState(EnvState):
    place: Int[Array, ""]


class TabularMDP(TaskEnvironment[MDPState, MDPTask]):
    """`states` and `actions` whose rewards and transitions each task draws anew.

    Mean rewards are drawn from N(1, 1) and transitions from a flat Dirichlet distribution; a
    reward has unit variance; an episode has `horizon` steps from state 0. With `shortest`, its
    length is drawn from there up to `horizon`; with `scale` S > 1, all rewards of a task are
    multiplied by a number drawn from 1/S to S. Both are log-uniform.
    """

    def __init__(
        self,
        states: int = 10,
        actions: int = 5,
        horizon: int = 10,
        shortest: int = 0,
        scale: float = 1.0,
    ):
        if min(states, actions, horizon) < 1:
            raise ValueError("An MDP needs states, actions and a horizon of at least 1.")
        require_draws(shortest, horizon, scale)
        self.states, self.horizon = states, horizon
        self.shortest, self.scale = shortest, scale
        self.actions = self.num_actions = actions

    def sample_task(self, key: PRNGKeyArray) -> MDPTask:
        transition_key, reward_key = jax.random.split(key)
        shape = (self.states, self.actions)
        transitions = jax.random.dirichlet(transition_key, jnp.ones(self.states), shape)
        rewards = 1.0 + jax.random.normal(reward_key, shape)
        drawn = draw_scale_and_limit(key, self.scale, self.shortest, self.horizon)
        return MDPTask(transitions, rewards, *drawn)

    def reset_env(self, key: Array, params: MDPTask) -> tuple[Array, MDPState]:
        state = MDPState(jnp.zeros((), jnp.int32), jnp.zeros((), jnp.int32))
        return self._observe(state), state

    def step_env(
        self, key: Array, state: MDPState, action: Action, params: MDPTask
    ) -> Transition[Array, MDPState]:
        place_key, reward_key = jax.random.split(key)
        mean = params.rewards[state.place, action]
        reward = mean + jax.random.normal(reward_key)
        if params.scale is not None:
            mean, reward = params.scale * mean, params.scale * reward
        place = jax.random.categorical(place_key, jnp.log(params.transitions[state.place, action]))
        state = MDPState(state.time + 1, place.astype(jnp.int32))
        limit = self.horizon if params.limit is None else params.limit
        return self._observe(state), state, reward, state.time >= limit, {EXPECTED_REWARD: mean}

    def _observe(self, state: MDPState) -> Float[Array, " states"]:
        return jax.nn.one_hot(state.place, self.states)

    def render(self, state: MDPState, params: MDPTask) -> np.ndarray:
        """Mean rewards, states across and actions down; the agent is in a row of its own."""
        means = np.asarray(params.rewards).T
        shares = (means - means.min()) / max(float(np.ptp(means)), 1e-6)
        low, high = np.array((30, 36, 48)), np.array((255, 196, 77))
        colours = low + shares[..., None] * (high - low)
        above = np.full((1, self.states, 3), 16.0)
        return pictures.cells(np.concatenate([above, colours]), (0, int(state.place)))
