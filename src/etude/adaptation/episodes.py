"""Whole episodes of one task, and what they are worth."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from etude.core.agent import Agent
from etude.core.distributions import log_prob
from etude.core.returns import gae
from etude.core.trees import choose
from etude.envs.trials import TaskDistribution

Policy = Callable[[PyTree[Array]], Float[Array, "*batch A"]]
"""From observations to the logits of the actions."""


def policy_of(agent: Agent) -> Policy:
    """The policy of an agent without memory."""
    return lambda observation: agent.act(None, observation)[1]


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
    episodes: Episodes, features: Float[Array, "T N inputs"], discount: float, ridge: float = 0.1
) -> Float[Array, "T N"]:
    """A baseline: discounted returns regressed on the features and on powers of time (after Duan et
    al., arXiv 1604.06778). The values of each half of the episodes come from the other half: fitted
    to their own returns, they would leave nothing to learn where few episodes have been. `ridge` is
    a share of the mean diagonal."""
    steps, number = episodes.mask.shape
    half = number // 2
    if half == 0:
        return jnp.zeros((steps, number), features.dtype)
    time = jnp.broadcast_to(jnp.arange(steps)[:, None, None] / steps, (steps, number, 1))
    parts = [features, time, time**2, time**3, jnp.ones_like(time)]
    inputs = jnp.concatenate(parts, axis=-1) * episodes.mask[..., None]
    goals = advantages(episodes, jnp.zeros((steps, number)), discount, 1.0)

    def equations(chosen: slice) -> tuple[Float[Array, "inputs inputs"], Float[Array, " inputs"]]:
        x, y = inputs[:, chosen].reshape(-1, inputs.shape[-1]), goals[:, chosen].ravel()
        normal = x.T @ x
        shrink = ridge * jnp.trace(normal) / x.shape[1] + 1e-8
        return normal + shrink * jnp.eye(x.shape[1]), x.T @ y

    first, second = slice(0, half), slice(half, number)
    # Solved together: two solvers at once can wait for each other for ever (XLA on CPU).
    left, right = jax.tree.map(lambda *x: jnp.stack(x), equations(second), equations(first))
    weights = jnp.linalg.solve(left, right[..., None])[..., 0]
    values = [inputs[:, first] @ weights[0], inputs[:, second] @ weights[1]]
    return jnp.concatenate(values, axis=1)
