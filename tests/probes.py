"""Tiny environments with known answers: the best tests of reinforcement learning there are. And
a tiny rule with parameters."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from gymnax.environments import environment, spaces
from jaxtyping import Array

from etude.core.agent import Heads
from etude.core.distributions import log_prob
from etude.core.returns import lambda_returns
from etude.core.rule import Rule


class ProbeState(eqx.Module):
    observation: Array
    time: Array


class Probe(environment.Environment[Any, Any]):
    """A sequence of observations of one number; subclasses say what happens."""

    actions = 2
    length = 1
    limit = 1000

    @property
    def default_params(self) -> environment.EnvParams:
        return environment.EnvParams(max_steps_in_episode=self.limit)

    def first(self, key: Array) -> Array:
        return jnp.zeros(())

    def reward(self, observation: Array, action: Array, time: Array) -> Array:
        raise NotImplementedError

    def after(self, observation: Array, time: Array) -> Array:
        return observation

    def reset_env(self, key: Array, params: Any):
        state = ProbeState(self.first(key), jnp.zeros((), jnp.int32))
        return state.observation[None], state

    def step_env(self, key: Array, state: ProbeState, action: Any, params: Any):
        reward = self.reward(state.observation, action, state.time)
        time = state.time + 1
        state = ProbeState(self.after(state.observation, time), time)
        return state.observation[None], state, reward, time >= self.length, {}

    def action_space(self, params: Any = None) -> spaces.Discrete:
        return spaces.Discrete(self.actions)


class Doors(Probe):
    """A distribution of tasks, as one writes them oneself: which of two doors pays."""

    horizon = length = 3

    @property
    def default_params(self) -> Any:
        return jnp.zeros((), jnp.int32)

    def is_truncated(self, state: Any, params: Any) -> Array:
        return jnp.zeros((), bool)

    def sample_task(self, key: Array) -> Array:
        return jax.random.randint(key, (), 0, 2)

    def step_env(self, key: Array, state: ProbeState, action: Any, params: Any):
        observation, state, _, ended, info = super().step_env(key, state, action, params)
        return observation, state, (action == params).astype(float), ended, info

    def reward(self, observation: Array, action: Array, time: Array) -> Array:
        return jnp.zeros(())  # the task says


class Wages(Doors):
    """A distribution of tasks in which each step pays what the task says, whatever one does."""

    @property
    def default_params(self) -> Any:
        return jnp.full((), 7.0)

    def sample_task(self, key: Array) -> Array:
        return jax.random.uniform(key, minval=1.0, maxval=2.0)

    def step_env(self, key: Array, state: ProbeState, action: Any, params: Any):
        observation, state, _, ended, info = super().step_env(key, state, action, params)
        return observation, state, params, ended, info


class ShiftingWages(Wages):
    """Its drawn tasks look unlike the one it has by default."""

    def sample_task(self, key: Array) -> Array:
        return jax.random.uniform(key, (2,))

    def reset_env(self, key: Array, params: Any):
        observation, state = super().reset_env(key, params)
        return jnp.concatenate([observation, jnp.ravel(params)]), state

    def step_env(self, key: Array, state: ProbeState, action: Any, params: Any):
        observation, *rest = super().step_env(key, state, action, jnp.sum(params))
        return jnp.concatenate([observation, jnp.ravel(params)]), *rest


class ConstantReward(Probe):
    """One step, reward 1 whatever one does: the value is 1."""

    def reward(self, observation, action, time):
        return jnp.ones(())


class SignReward(Probe):
    """One step, the reward is the observation, ±1: so is the value."""

    def first(self, key):
        return jnp.where(jax.random.bernoulli(key), 1.0, -1.0)

    def reward(self, observation, action, time):
        return observation


class DelayedReward(Probe):
    """Two steps, reward 1 at the end: the values are γ, then 1."""

    length = 2

    def reward(self, observation, action, time):
        return jnp.where(time == 1, 1.0, 0.0)

    def after(self, observation, time):
        return time.astype(float)


class EndlessReward(Probe):
    """Reward 1 forever, cut by a time limit of 5 steps that is no end: the value is 1/(1 − γ)."""

    length = 10**6
    limit = 5

    def reward(self, observation, action, time):
        return jnp.ones(())


class BestAction(Probe):
    """One step: action 1 pays 1, action 0 costs 1."""

    def reward(self, observation, action, time):
        return jnp.where(action == 1, 1.0, -1.0)


class MatchSign(Probe):
    """One step: the right action depends on what is seen."""

    def first(self, key):
        return jnp.where(jax.random.bernoulli(key), 1.0, -1.0)

    def reward(self, observation, action, time):
        return jnp.where((action == 1) == (observation > 0), 1.0, -1.0)


class RecallFirst(Probe):
    """Four steps: what is seen in the first one, ±1, is the right action of the last."""

    length = 4

    def first(self, key):
        return jnp.where(jax.random.bernoulli(key), 1.0, -1.0)

    def step_env(self, key, state, action, params):
        _, after, reward, ended, info = super().step_env(key, state, action, params)
        return jnp.zeros(1), after, reward, ended, info

    def reward(self, observation, action, time):
        right = jnp.where((action == 1) == (observation > 0), 1.0, -1.0)
        return jnp.where(time == self.length - 1, right, 0.0)


class CorridorInJax(Probe):
    """`Corridor` in host_probes.py."""

    end, limit = 3, 7

    def reset_env(self, key, params):
        state = ProbeState(jnp.zeros(()), jnp.zeros((), jnp.int32))
        return self.seen(state), state

    def seen(self, state):
        return jnp.stack([state.observation, state.time.astype(float)])

    def step_env(self, key, state, action, params):
        state = ProbeState(state.observation + 2 * action - 1, state.time + 1)
        reward, ended = 0.25 * state.observation, state.observation >= self.end
        return self.seen(state), state, reward, ended, {}


class PoisonedReward(BestAction):
    """Rewards turn to NaN now and then after a while (in about one episode in two thousand)."""

    def first(self, key):
        return jax.random.uniform(key)

    def reward(self, observation, action, time):
        return jnp.where(observation < 5e-4, jnp.nan, 1.0)


class NoActions(BestAction):
    def action_space(self, params=None):
        raise NotImplementedError


class NothingToSee(BestAction):
    def reset_env(self, key, params):
        return {}, super().reset_env(key, params)[1]

    def step_env(self, key, state, action, params):
        return {}, *super().step_env(key, state, action, params)[1:]


class TwoRewards(BestAction):
    def reward(self, observation, action, time):
        return jnp.ones(2)


class Broken(BestAction):
    """Goes wrong in its third step: `pure_callback` raises, or what is observed is infinite."""

    length = 8

    def __init__(self, how: str = "raise"):
        super().__init__()
        self.how = how

    def reward(self, observation, action, time):
        if self.how != "raise":
            return jnp.ones(())
        form = jax.ShapeDtypeStruct((), jnp.float32)
        return jax.pure_callback(self.paid, form, time, vmap_method="sequential")

    @staticmethod
    def paid(time):
        if time >= 2:
            raise RuntimeError("the glass is broken")
        return np.float32(1)

    def after(self, observation, time):
        return jnp.where((self.how == "inf") & (time >= 3), jnp.inf, observation)


class OfKind(BestAction):
    """Gives one of its results as numbers of another kind."""

    def __init__(self, what: str, kind: str):
        super().__init__()
        self.what, self.kind = what, kind

    def reset_env(self, key, params):
        seen, state = super().reset_env(key, params)
        return self._as_kind("observation", seen), state

    def step_env(self, key, state, action, params):
        seen, state, reward, terminated, info = super().step_env(key, state, action, params)
        seen, reward = self._as_kind("observation", seen), self._as_kind("reward", reward)
        return seen, state, reward, self._as_kind("terminated", terminated), info

    def _as_kind(self, what, value):
        return value.astype(self.kind) if what == self.what else value


class NoFinalObservation(BestAction):
    def step(self, key, state, action, params=None):
        observation, state, reward, done, info = self.step_env(key, state, action, params)
        return observation, state, reward, done, jnp.array(False), info


@struct.dataclass
class NotAnEnvironment:
    size: int = 1


class LearnedDiscount(Rule):
    """An actor-critic with a learned γ in its targets and a learned weight in its loss."""

    gamma: jax.Array
    value_cost: jax.Array

    def heads(self, num_actions):
        return Heads(state={"pi": num_actions, "value": 1})

    def init(self, agent):
        return jnp.zeros((), jnp.int32)

    def targets(self, agent, state, rollout):
        value = agent.predict(agent.unroll(rollout))["value"][..., 0]
        discount = jax.nn.sigmoid(self.gamma) * rollout.discount(1.0)
        half = jnp.full_like(discount, 0.5)
        returns = lambda_returns(jax.lax.stop_gradient(value[1:]), rollout.reward, discount, half)
        # Targets may hold integers as well; nothing flows back through them.
        return {"returns": returns, "updates": state}, state + 1

    def loss(self, agent, targets, rollout):
        prediction = agent.predict(agent.unroll(rollout))
        error = targets["returns"] - prediction["value"][:-1, :, 0]
        log_pi = log_prob(prediction["pi"][:-1], rollout.action)
        loss = jnp.exp(self.value_cost) * jnp.square(error) - jax.lax.stop_gradient(error) * log_pi
        return loss, {"updates": targets["updates"].astype(loss.dtype)}
