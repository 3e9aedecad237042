"""Experience from JAX environments: an agent acts in parallel copies, all in one compiled scan."""

import dataclasses
from collections.abc import Callable
from typing import Protocol, TypeVar, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key, PRNGKeyArray, PyTree

from etude.core.players import Player
from etude.core.trees import choose
from etude.core.types import Context, Episodes, Rollout
from etude.envs import JaxTask
from etude.envs.base import Action, Environment, TaskEnvironment
from etude.envs.trials import TaskDistribution

Seen = TypeVar("Seen")
Now = TypeVar("Now")


@runtime_checkable
class Steps(Protocol):
    """An environment that can be stepped without beginning anew."""

    def step_env(self, key: Array, state: PyTree, action: Action, params: PyTree) -> tuple: ...


@runtime_checkable
class Limited(Protocol):
    """An environment with a time limit. That of a task is its horizon, which whoever plays it
    sees to."""

    def is_truncated(self, state: PyTree, params: PyTree) -> Array: ...


class Actors(eqx.Module):
    """B environments between two steps, and what their player remembers."""

    env_state: PyTree[Array]
    observation: PyTree[Array]
    next_first: PyTree[Array]
    """What follows the next seam: where an episode was just cut by its time limit, the first
    observation of the next one; where there is to be none, the last of the one that was played."""
    at_seam: Bool[Array, " B"]
    """Whether the next slot of the rollout is such a seam."""
    episode_return: Float[Array, " B"]
    episode_length: Int[Array, " B"]
    memory: PyTree[Array]
    """Before the observation; forgotten already where an episode begins."""


@dataclasses.dataclass(frozen=True)
class JaxSource:
    """Parallel copies of an environment that JAX can trace."""

    task: JaxTask
    num_envs: int
    once: bool = False
    """Whether each environment plays one episode only. The rest of a rollout is then seams."""

    def reset(self, player: Player, key: PRNGKeyArray) -> Actors:
        """Fresh environments."""
        keys = jax.random.split(key, self.num_envs)
        reset = jax.vmap(self.task.env.reset, in_axes=(0, None))
        observation, env_state = reset(keys, self.task.params)
        return Actors(
            env_state=env_state,
            observation=observation,
            next_first=observation,
            at_seam=jnp.zeros(self.num_envs, bool),
            episode_return=jnp.zeros(self.num_envs),
            episode_length=jnp.zeros(self.num_envs, jnp.int32),
            memory=player.start(self.num_envs),
        )

    def collect(
        self,
        player: Player,
        actors: Actors,
        key: PRNGKeyArray,
        length: int,
        context: Context | None = None,
    ) -> tuple[Actors, Rollout, Episodes]:
        """`length` steps of every environment. `context` makes what the player is told."""
        actors, rollout, episodes, _ = self.watch(
            player, actors, key, length, lambda state: None, context
        )
        return actors, rollout, episodes

    def watch(
        self,
        player: Player,
        actors: Actors,
        key: PRNGKeyArray,
        length: int,
        see: Callable[[PyTree[Array]], Seen],
        context: Context | None = None,
    ) -> tuple[Actors, Rollout, Episodes, Seen]:
        """As `collect`, with what is to `see` of the environments' state before each step."""
        memory = jax.tree.map(lambda x: x[None], actors.memory)

        def step(actors: Actors, key: PRNGKeyArray):
            after, played = self.step(player, actors, key, context)
            return after, (*played, see(actors.env_state))

        actors, (rollout, episodes, seen) = jax.lax.scan(
            step, actors, jax.random.split(key, length)
        )
        observation, logits = jax.tree.map(
            lambda xs, last: jnp.concatenate([xs, last[None]]),
            (rollout.observation, rollout.behaviour_logits),
            (actors.observation, _act(player, actors, context)[1]),
        )
        rollout = eqx.tree_at(
            lambda r: (r.observation, r.behaviour_logits, r.memory),
            rollout,
            (observation, logits, memory),
            is_leaf=lambda x: x is None,
        )
        return actors, rollout.told_by(context), episodes, seen

    def step(
        self, player: Player, actors: Actors, key: PRNGKeyArray, context: Context | None = None
    ) -> tuple[Actors, tuple[Rollout, Episodes]]:
        """One step of every environment; the rollout is of this one step, without a time axis."""
        action_key, env_key = jax.random.split(key)
        memory, logits = _act(player, actors, context)
        action = jax.random.categorical(action_key, logits)
        keys = jax.random.split(env_key, self.num_envs)
        next_observation, env_state, reward, terminated, truncated, info = self._step_envs(
            keys, actors.env_state, action
        )

        # At a seam nothing is played: the environment stays as it is, reset already or at its end.
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
            next_first=observation if self.once else next_observation,
            at_seam=ended | seam if self.once else cut,
            episode_return=jnp.where(ended, 0.0, returns),
            episode_length=jnp.where(ended, 0, lengths),
            memory=choose(terminal | seam, player.start(self.num_envs), memory),
        )
        transition = Rollout(
            observation=actors.observation,
            action=action,
            reward=reward,
            terminal=terminal,
            seam=seam,
            behaviour_logits=logits,
            mask=~seam,
        )
        return after, (transition, Episodes(ended, returns, lengths))

    def _step_envs(
        self, keys: Key[Array, " B"], states: PyTree[Array], actions: Int[Array, " B"]
    ) -> tuple:
        """As an environment's `step`, which starts an episode each time, in case it is needed.
        Where that would cost more than all else, episodes start only where one has ended."""
        env, params = self.task.env, self.task.params
        costly = isinstance(env, Environment) and env.starts_are_costly(params)
        if not (self.once or costly):
            return jax.vmap(env.step, in_axes=(0, 0, 0, None))(keys, states, actions, params)
        assert isinstance(env, Steps)
        step_keys, reset_keys = jax.vmap(jax.random.split, out_axes=1)(keys)
        step = jax.vmap(env.step_env, in_axes=(0, 0, 0, None))
        last, states, reward, terminated, info = step(step_keys, states, actions, params)
        truncated, now = jnp.zeros_like(terminated), (last, states)
        own_limits = isinstance(env, TaskEnvironment) and env.own_limits
        if isinstance(env, Limited) and (own_limits or not isinstance(env, TaskDistribution)):
            truncated = jax.vmap(env.is_truncated, in_axes=(0, None))(states, params)
        if not self.once:
            now = self._restart(terminated | truncated, reset_keys, now)
        return *now, reward, terminated, truncated, info | {"final_observation": last}

    def _restart(self, over: Bool[Array, " B"], keys: Key[Array, " B"], now: Now) -> Now:
        """Observations and states, those of a new episode where one is over, a few at a time."""
        reset = jax.vmap(self.task.env.reset, in_axes=(0, None))

        def some(carry):
            over, now = carry
            which = jnp.flatnonzero(over, size=min(AT_ONCE, self.num_envs), fill_value=over.size)
            fresh = reset(keys[which], self.task.params)
            now = jax.tree.map(lambda x, new: x.at[which].set(new, mode="drop"), now, fresh)
            return over.at[which].set(False, mode="drop"), now

        return jax.lax.while_loop(lambda carry: jnp.any(carry[0]), some, (over, now))[1]


AT_ONCE = 4
"""Episodes that are started together where that is costly."""


def _act(player: Player, actors: Actors, context: Context | None):
    told = None if context is None else context(actors.observation)
    return player.act(actors.memory, actors.observation, context=told)
