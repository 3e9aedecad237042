"""Whole episodes of one task, and what they are worth."""

from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from etude.distributions import log_prob
from etude.returns import gae
from etude.trees import choose

Policy = Callable[[PyTree[Array]], Float[Array, "*batch A"]]
"""From observations to the logits of the actions."""

EXPECTED_REWARD = "expected_reward"
"""An environment whose rewards are noisy may give their means by this name among its infos."""


@runtime_checkable
class TaskDistribution(Protocol):
    """An environment whose parameters are the task, and which can draw such tasks."""

    @property
    def horizon(self) -> int:
        """The most steps that an episode has."""
        ...

    @property
    def num_actions(self) -> int: ...

    def sample_task(self, key: PRNGKeyArray) -> Any: ...

    def reset_env(self, key: Any, params: Any) -> tuple[Any, Any]: ...

    def step_env(self, key: Any, state: Any, action: Any, params: Any) -> tuple: ...


def masked_mean(x: Float[Array, "T N"], mask: Bool[Array, "T N"]) -> Float[Array, ""]:
    weight = mask.astype(x.dtype)
    return jnp.sum(weight * x) / jnp.maximum(jnp.sum(weight), 1.0)


def standardised(x: Float[Array, "T N"], mask: Bool[Array, "T N"]) -> Float[Array, "T N"]:
    """With mean 0 and variance 1 over the steps that count, and 0 elsewhere."""
    centred = x - masked_mean(x, mask)
    scale = jnp.sqrt(masked_mean(jnp.square(centred), mask) + 1e-8)
    return jnp.where(mask, centred / scale, 0.0)


class Episodes(eqx.Module):
    """N episodes of one task; those that end early are filled up with steps that do not count."""

    observation: PyTree[Array]
    action: Int[Array, "T N"]
    reward: Float[Array, "T N"]
    log_prob: Float[Array, "T N"]
    """Of the actions, under the policy that played."""
    mask: Bool[Array, "T N"]
    """Steps that were really played."""
    last_state: PyTree[Array]
    """Of the environment at the end of each episode, for measuring."""

    @property
    def returns(self) -> Float[Array, " N"]:
        return jnp.sum(self.reward, axis=0)

    def mean(self, x: Float[Array, "T N"]) -> Float[Array, ""]:
        """Over all steps that count."""
        return masked_mean(x, self.mask)

    def log_likelihood(self, policy: Policy) -> Float[Array, "T N"]:
        """Of the actions under another policy; 0 where nothing was played."""
        return jnp.where(self.mask, log_prob(policy(self.observation), self.action), 0.0)


def play(
    env: TaskDistribution, policy: Policy, task: PyTree, key: PRNGKeyArray, number: int
) -> Episodes:
    """`number` episodes of one task, side by side."""
    reset_key, key = jax.random.split(key)
    reset = jax.vmap(env.reset_env, in_axes=(0, None))
    observation, state = reset(jax.random.split(reset_key, number), task)

    def step(carry, key):
        state, observation, alive = carry
        action_key, env_key = jax.random.split(key)
        logits = policy(observation)
        action = jax.random.categorical(action_key, logits)
        keys = jax.random.split(env_key, number)
        after, moved, reward, ended, _ = jax.vmap(env.step_env, in_axes=(0, 0, 0, None))(
            keys, state, action, task
        )

        record = (
            observation,
            action,
            jnp.where(alive, reward, 0.0),
            log_prob(logits, action),
            alive,
        )
        state, observation = choose(alive, (moved, after), (state, observation))
        return (state, observation, alive & ~ended), record

    start = (state, observation, jnp.ones(number, bool))
    (state, *_), record = jax.lax.scan(step, start, jax.random.split(key, env.horizon))
    return jax.lax.stop_gradient(Episodes(*record, last_state=state))


def advantages(
    episodes: Episodes, values: Float[Array, "T N"], discount: float, td_lambda: float
) -> Float[Array, "T N"]:
    """Generalised advantage estimates. An episode's end, by whatever cause, is worth nothing."""
    goes_on = jnp.concatenate([episodes.mask[1:], jnp.zeros_like(episodes.mask[:1])])
    gamma = jnp.where(goes_on, discount, 0.0)
    padded = jnp.concatenate([values, jnp.zeros_like(values[:1])])
    trace = jnp.full_like(values, td_lambda)
    return jnp.where(episodes.mask, gae(padded, episodes.reward, gamma, trace), 0.0)


def linear_values(
    episodes: Episodes, features: Float[Array, "T N inputs"], discount: float, ridge: float = 1e-4
) -> Float[Array, "T N"]:
    """A baseline: the discounted returns of these very episodes, regressed on the features, their
    squares, and powers of time (as in Duan et al., arXiv 1604.06778). `ridge` is a share of the
    mean diagonal: where features repeat each other, single precision needs no less."""
    steps, number = episodes.mask.shape
    time = jnp.broadcast_to(jnp.arange(steps)[:, None, None] / 100.0, (steps, number, 1))
    parts = [features, features**2, time, time**2, time**3, jnp.ones_like(time)]
    inputs = jnp.concatenate(parts, axis=-1)
    goals = advantages(episodes, jnp.zeros((steps, number)), discount, 1.0)
    counted = inputs * episodes.mask[..., None]
    x, y = counted.reshape(steps * number, -1), goals.ravel()
    normal = x.T @ x
    normal = normal + (ridge * jnp.trace(normal) / x.shape[1] + 1e-8) * jnp.eye(x.shape[1])
    weights = jnp.linalg.solve(normal, x.T @ y)
    return counted @ weights
