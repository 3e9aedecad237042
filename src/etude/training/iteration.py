"""Training as one compiled program: act, remember, update, and again."""

import dataclasses
from collections.abc import Callable
from typing import TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding
from jax.typing import DTypeLike
from jaxtyping import Array, Float, Int, Key, PRNGKeyArray, PyTree

from etude.acting.jax_source import Actors, JaxSource
from etude.acting.replay import Replay, join
from etude.core import optim
from etude.core.agent import Agent
from etude.core.learner import Learner, Passes
from etude.core.players import Player
from etude.core.types import Context, Episodes, Metrics, Rollout
from etude.envs import JaxTask, Task
from etude.errors import UserError
from etude.placing.devices import along
from etude.rules import Rule
from etude.training.config import TrainPlan

State = TypeVar("State")

LAST_EPISODES = 100
SHUFFLE_KEY = 1
"""Folded into the key of an iteration for the order of its minibatches."""


class EpisodeLog(eqx.Module):
    """The returns of the last 100 episodes, in a ring, and how many there ever were."""

    returns: Float[Array, " last"]
    count: Int[Array, ""]

    @staticmethod
    def empty() -> "EpisodeLog":
        return EpisodeLog(jnp.zeros(LAST_EPISODES), jnp.zeros((), jnp.int32))

    def add(self, episodes: Episodes) -> "EpisodeLog":
        ended, returns = episodes.ended.ravel(), episodes.returns.ravel()
        number = jnp.cumsum(ended)
        total = number[-1]
        # Each episode that ended has its own place; those that would be overwritten are left out.
        keep = ended & (number > total - LAST_EPISODES)
        place = jnp.where(keep, (self.count + number - 1) % LAST_EPISODES, LAST_EPISODES)
        ring = self.returns.at[place].set(returns.astype(self.returns.dtype), mode="drop")
        return EpisodeLog(ring, self.count + total)

    def last(self) -> list[np.ndarray]:
        """Where the seeds are the first axis: the returns of each one's last 100 episodes."""
        returns, counts = jax.device_get((self.returns, self.count))
        return [row[: min(n, LAST_EPISODES)] for row, n in zip(returns, counts, strict=True)]


class World(eqx.Module):
    """An agent's side of experience: its environments, what it remembers, how episodes ended."""

    actors: Actors | None
    """None if they are outside JAX."""
    replay: Replay | None
    episodes: EpisodeLog


class TrainState(eqx.Module):
    """All that a run must not lose: this tree is the checkpoint."""

    learner: Learner
    world: World
    key: PRNGKeyArray


@dataclasses.dataclass(frozen=True)
class Training:
    """How one agent is trained: pure functions of the rule and the state."""

    task: Task
    config: TrainPlan
    optimiser: optax.GradientTransformation
    mesh: Mesh | None = None
    """The devices that share out each batch, if there are several."""

    @staticmethod
    def create(task: Task, config: TrainPlan) -> "Training":
        if config.replay_share and config.batch == config.num_envs:
            raise UserError(
                f"A batch of {config.batch} has no room for a replay share of "
                f"{config.replay_share}: choose a larger batch, or a replay share of 0."
            )
        return Training(task, config, make_optimiser(config))

    def with_params(self, params: PyTree[Array]) -> "Training":
        """The same in an environment with other parameters."""
        assert isinstance(self.task, JaxTask), "only an environment in JAX has parameters"
        return dataclasses.replace(self, task=dataclasses.replace(self.task, params=params))

    def shared_out(self, mesh: Mesh) -> "Training":
        """With batches that devices share out, if there are several."""
        config = self.config
        for what, number in (("environments", config.num_envs), ("trajectories", config.batch)):
            if number % mesh.size:
                raise UserError(
                    f"{mesh.size} devices cannot share out {number} {what} of a batch equally."
                )
        return self if mesh.size == 1 else dataclasses.replace(self, mesh=mesh)

    def layout(self, state: TrainState, mesh: Mesh) -> PyTree[NamedSharding]:
        """Where a state is whose batches are shared out, by its form: each device has its share of
        the environments, and all else. (Of replay too: batches are drawn from all of it.)"""
        everywhere = jax.tree.map(lambda _: along(mesh, None), state)
        actors = jax.tree.map(lambda _: along(mesh, 1), state.world.actors)
        return eqx.tree_at(lambda s: s.world.actors, everywhere, actors)

    @property
    def source(self) -> JaxSource:
        assert isinstance(self.task, JaxTask), "a host simulator was to be traced"
        return JaxSource(self.task, self.config.num_envs)

    @property
    def passes(self) -> Passes:
        return Passes(self.config.epochs, self.config.minibatches)

    def init(self, rule: Rule, key: PRNGKeyArray) -> TrainState:
        if not isinstance(self.task, JaxTask):
            return self.init_outside(rule, key)
        agent_key, world_key, key = jax.random.split(key, 3)
        learner = self._new_learner(rule, agent_key)
        world = self._new_world(learner.player(rule), world_key, rule.context)
        return TrainState(learner, world, key)

    def _new_learner(self, rule: Rule, key: PRNGKeyArray) -> Learner:
        task, heads = self.task, rule.heads(self.task.num_actions)
        agent = Agent(task.observation, task.num_actions, heads, self.config.network, key=key)
        return Learner.create(agent, rule, self.optimiser, self.config.agent_updates)

    def iterate(self, rule: Rule, state: TrainState) -> tuple[TrainState, Metrics]:
        """One iteration: every environment plays a trajectory, then the agent is updated once."""
        play_key, key = jax.random.split(state.key)
        player = state.learner.player(rule)
        world, batch, played = self.play(player, state.world, play_key, context=rule.context)
        learner, metrics = self._update(rule, state.learner, batch, play_key)
        told = {OBSERVATION: _what_is_not_finite(batch.observation)}
        return TrainState(learner, world, key), metrics | played | told

    def _update(
        self, rule: Rule, learner: Learner, batch: Rollout, play_key: PRNGKeyArray
    ) -> tuple[Learner, Metrics]:
        shuffle_key = jax.random.fold_in(play_key, SHUFFLE_KEY)
        return self.passes.update(rule, self.optimiser, learner, batch, shuffle_key)

    def play(
        self,
        player: Player,
        world: World,
        key: PRNGKeyArray,
        length: int | None = None,
        context: Context | None = None,
    ) -> tuple[World, Rollout, Metrics]:
        """The batch of an update: a new trajectory from each environment, the rest replayed."""
        act_key, replay_key = jax.random.split(key)
        length, actors = length or self.config.rollout, world.actors
        assert actors is not None
        actors, new, episodes = self.source.collect(player, actors, act_key, length, context)
        world = World(actors, world.replay, world.episodes)
        return self.take_in(world, new, episodes, replay_key)

    def take_in(
        self, world: World, new: Rollout, episodes: Episodes, key: PRNGKeyArray
    ) -> tuple[World, Rollout, Metrics]:
        """What was just played goes into replay and the log of episodes; a batch comes out."""
        replay, batch = world.replay, new
        if replay is not None:
            replay = replay.add(new)
            batch = join(new, replay.sample(key, self.config.batch - self.config.num_envs))
        if self.mesh is not None:
            batch = jax.lax.with_sharding_constraint(batch, along(self.mesh, 1))
        metrics = {
            "reward": new.mean(new.reward),
            "episodes": jnp.sum(episodes.ended),
            "episode_return": jnp.sum(jnp.where(episodes.ended, episodes.returns, 0.0)),
            "episode_length": jnp.sum(jnp.where(episodes.ended, episodes.lengths, 0)),
        }
        return World(world.actors, replay, world.episodes.add(episodes)), batch, metrics

    def _new_world(self, player: Player, key: PRNGKeyArray, context: Context | None) -> World:
        """Fresh environments; replay holds enough for a batch that is not a few copies."""
        env_key, fill_key = jax.random.split(key)
        actors, config = self.source.reset(player, env_key), self.config
        if config.batch == config.num_envs:
            return World(actors, None, EpisodeLog.empty())

        def collect(actors: Actors, key: PRNGKeyArray) -> tuple[Actors, Rollout, Episodes]:
            return self.source.collect(player, actors, key, config.rollout, context)

        def fill(carry, key):
            actors, replay = carry
            actors, new, _ = collect(actors, key)
            return (actors, replay.add(new)), None

        replay = self._empty_replay(jax.eval_shape(lambda: collect(actors, key)[1]))
        keys = jax.random.split(fill_key, config.filling_rollouts)
        (actors, replay), _ = jax.lax.scan(fill, (actors, replay), keys)
        return World(actors, replay, EpisodeLog.empty())

    def _empty_replay(self, like: Rollout) -> Replay:
        capacity, width = self.config.replay_capacity, self.config.num_envs
        if capacity < width:
            raise UserError(
                f"--replay-capacity must be at least {width}, the number of environments."
            )
        return Replay.empty(like, capacity // width * width)

    # --- Experience from outside JAX -------------------------------------------------------------

    def init_outside(self, rule: Rule, key: PRNGKeyArray) -> TrainState:
        """As `init`, for experience that will be given: replay, if there is one, is empty."""
        agent_key, _, key = jax.random.split(key, 3)
        learner = self._new_learner(rule, agent_key)
        replay = None
        if self.config.batch != self.config.num_envs:
            replay = self._empty_replay(self.blank_rollout(learner.agent, rule.context))
        return TrainState(learner, World(None, replay, EpisodeLog.empty()), key)

    def fill_keys(self, key: PRNGKeyArray) -> Key[Array, " rollouts"]:
        """Those of the rollouts that fill replay, of an agent that `key` makes."""
        fill_key = jax.random.split(jax.random.split(key, 3)[1])[1]
        return jax.random.split(fill_key, self.config.filling_rollouts)

    def act_key(self, key: PRNGKeyArray) -> tuple[PRNGKeyArray, PRNGKeyArray]:
        """For the next rollout, from a state's key, and the key of the state after that."""
        play_key, key = jax.random.split(key)
        return jax.random.split(play_key)[0], key

    def remember(self, rule: Rule, state: TrainState, new: Rollout) -> TrainState:
        """With a rollout put into replay, before there are any updates."""
        replay = state.world.replay
        assert replay is not None
        new = new.told_by(rule.context)
        return eqx.tree_at(lambda s: s.world.replay, state, replay.add(new))

    def learn(
        self, rule: Rule, state: TrainState, new: Rollout, episodes: Episodes
    ) -> tuple[TrainState, Metrics]:
        """As `iterate`, on what was played elsewhere with the key that `act_key` gives."""
        play_key, key = jax.random.split(state.key)
        _, replay_key = jax.random.split(play_key)
        new = new.told_by(rule.context)
        world, batch, played = self.take_in(state.world, new, episodes, replay_key)
        learner, metrics = self._update(rule, state.learner, batch, play_key)
        return TrainState(learner, world, key), metrics | played

    def blank(
        self, agent: Agent, length: int | None = None, batch: int | None = None
    ) -> tuple[Rollout, Episodes]:
        """Zeros in the form of what is played outside."""
        rollout = self.blank_rollout(agent, None, length, batch)
        return rollout, Episodes(rollout.seam, rollout.reward, rollout.action)

    def blank_rollout(
        self,
        agent: Agent,
        context: Context | None,
        length: int | None = None,
        batch: int | None = None,
    ) -> Rollout:
        """A rollout of zeros, by default as long and wide as those of training."""
        length, batch = length or self.config.rollout, batch or self.config.num_envs

        def zeros(dtype: DTypeLike) -> Array:
            return jnp.zeros((length, batch), dtype)

        observation = jax.tree.map(
            lambda x: jnp.zeros((length + 1, batch, *x.shape), x.dtype), self.task.observation
        )
        rollout = Rollout(
            observation=observation,
            action=zeros(jnp.int32),
            reward=zeros(jnp.float32),
            terminal=zeros(bool),
            seam=zeros(bool),
            behaviour_logits=jnp.zeros((length + 1, batch, self.task.num_actions)),
            mask=zeros(bool),
            memory=jax.tree.map(lambda x: x[None], agent.start(batch)),
        )
        return rollout.told_by(context)

    def run(
        self, rule: Rule, state: TrainState, number: int | Int[Array, ""], room: int
    ) -> tuple[TrainState, Metrics]:
        """Several iterations, and the metrics of each. One program serves any number up to `room`:
        the metrics have that many entries, of which the first `number` count."""
        return repeat(lambda state: self.iterate(rule, state), state, number, room)


def repeat(
    iterate: Callable[[State], tuple[State, Metrics]],
    state: State,
    number: int | Int[Array, ""],
    room: int,
) -> tuple[State, Metrics]:
    """Several iterations, and the metrics of each: `room` entries, the first `number` of which
    count."""
    form = jax.eval_shape(iterate, state)[1]
    logs = jax.tree.map(lambda x: jnp.zeros((room, *x.shape), x.dtype), form)

    def body(i, carry):
        state, logs = carry
        state, metrics = iterate(state)
        return state, jax.tree.map(lambda log, x: log.at[i].set(x), logs, metrics)

    return jax.lax.fori_loop(0, number, body, (state, logs))


OBSERVATION = "observation"
"""The metric that tells whether what was observed is finite."""


def _what_is_not_finite(observation: PyTree[Array]) -> Float[Array, ""]:
    """0, or a sum of what is not finite in an observation."""
    numbers = [x for x in jax.tree.leaves(observation) if jnp.issubdtype(x.dtype, jnp.floating)]
    return sum((jnp.sum(jnp.where(jnp.isfinite(x), 0.0, x)) for x in numbers), jnp.zeros(()))


def make_optimiser(config: TrainPlan) -> optax.GradientTransformation:
    rate, descents = config.learning_rate, config.epochs * config.minibatches
    warmup = config.warmup * config.updates_per_update // config.steps_per_update * descents
    schedule: optax.ScalarOrSchedule = rate
    if config.schedule == "cosine":
        decay = max(1, config.agent_updates * descents - warmup)
        schedule = optax.warmup_cosine_decay_schedule(
            0.0 if warmup else rate, rate, warmup, warmup + decay
        )
    elif warmup:
        schedule = optax.linear_schedule(0.0, rate, warmup)
    return optim.make_optimiser(config.optimiser, schedule, config.max_update, config.weight_decay)


RULE_KEY = 1
"""Folded into a seed's key for the rule it learns, which so shares nothing with its agent."""


def rule_keys(keys: Key[Array, " seeds"]) -> Key[Array, " seeds"]:
    return jax.vmap(lambda key: jax.random.fold_in(key, RULE_KEY))(keys)


def seed_keys(seed: int, number: int) -> Key[Array, " seeds"]:
    """One random key a seed: that of seed number i does not depend on how many there are."""
    root = jax.random.key(seed)
    return jax.vmap(lambda i: jax.random.fold_in(root, i))(jnp.arange(number))
