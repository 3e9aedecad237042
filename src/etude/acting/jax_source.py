"""Acting: an agent's policy in parallel copies of a JAX environment, as one compiled scan."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from etude.core.trees import choose
from etude.core.types import Rollout
from etude.envs import Task

Policy = Callable[[PyTree[Array]], Float[Array, "B A"]]
"""From observations to the logits of the actions."""


class Actors(eqx.Module):
    """B environments between two steps."""

    env_state: PyTree[Array]
    observation: PyTree[Array]
    next_first: PyTree[Array]
    """Where an episode was just cut by its time limit: the first observation of the next one."""
    at_seam: Bool[Array, " B"]
    """Whether the next slot of the rollout is such a seam."""
    episode_return: Float[Array, " B"]
    episode_length: Int[Array, " B"]


class Episodes(eqx.Module):
    """The episodes that ended at each step: their return and length, where `ended`."""

    ended: Bool[Array, "*T B"]
    returns: Float[Array, "*T B"]
    lengths: Int[Array, "*T B"]


def reset(task: Task, key: PRNGKeyArray, num_envs: int) -> Actors:
    """B fresh environments."""
    keys = jax.random.split(key, num_envs)
    observation, env_state = jax.vmap(task.env.reset, in_axes=(0, None))(keys, task.params)
    return Actors(
        env_state=env_state,
        observation=observation,
        next_first=observation,
        at_seam=jnp.zeros(num_envs, bool),
        episode_return=jnp.zeros(num_envs),
        episode_length=jnp.zeros(num_envs, jnp.int32),
    )


def step(
    task: Task, policy: Policy, actors: Actors, key: PRNGKeyArray
) -> tuple[Actors, tuple[Rollout, Episodes]]:
    """One step of every environment; the rollout is that of this one step, without a time axis."""
    num_envs = actors.at_seam.shape[0]
    action_key, env_key = jax.random.split(key)
    logits = policy(actors.observation)
    action = jax.random.categorical(action_key, logits)
    next_observation, env_state, reward, terminated, truncated, info = jax.vmap(
        task.env.step, in_axes=(0, 0, 0, None)
    )(jax.random.split(env_key, num_envs), actors.env_state, action, task.params)

    # At a seam nothing is played: the environment, reset already, stays as it is.
    seam = actors.at_seam
    env_state = choose(seam, actors.env_state, env_state)
    reward = jnp.where(seam, 0.0, reward).astype(actors.episode_return.dtype)
    terminal = terminated.astype(bool) & ~seam
    cut = truncated.astype(bool) & ~terminal & ~seam
    observation = choose(cut, info["final_observation"], next_observation)
    observation = choose(seam, actors.next_first, observation)

    ended = terminal | cut
    returns = actors.episode_return + reward
    lengths = actors.episode_length + ~seam
    after = Actors(
        env_state=env_state,
        observation=observation,
        next_first=next_observation,
        at_seam=cut,
        episode_return=jnp.where(ended, 0.0, returns),
        episode_length=jnp.where(ended, 0, lengths),
    )
    transition = Rollout(
        observation=actors.observation,
        action=action,
        reward=reward,
        terminal=terminal,
        truncated=seam,
        behaviour_logits=logits,
        mask=~seam,
    )
    return after, (transition, Episodes(ended, returns, lengths))


def unroll(
    task: Task, policy: Policy, actors: Actors, key: PRNGKeyArray, length: int
) -> tuple[Actors, Rollout, Episodes]:
    """`length` steps of every environment, and the observation and policy after the last."""
    actors, (rollout, episodes) = jax.lax.scan(
        lambda actors, key: step(task, policy, actors, key), actors, jax.random.split(key, length)
    )

    def with_last(xs, last):
        return jax.tree.map(lambda x, y: jnp.concatenate([x, y[None]]), xs, last)

    rollout = eqx.tree_at(
        lambda r: (r.observation, r.behaviour_logits),
        rollout,
        (
            with_last(rollout.observation, actors.observation),
            with_last(rollout.behaviour_logits, policy(actors.observation)),
        ),
    )
    return actors, rollout, episodes
