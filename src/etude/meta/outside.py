"""Windows whose experience is played outside JAX.

Before each update, agents play in a host simulator as they then are. One compiled program takes the
rollouts in and makes the update, which it records; after the last, all that was recorded is the
window that a gradient is taken through.
"""

import dataclasses
from collections.abc import Sequence
from functools import partial
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.stages import Compiled, Lowered
from jaxtyping import Array, Key, PRNGKeyArray

from etude.acting.collector import Collector
from etude.acting.host_source import HostSource
from etude.core.learner import Learner
from etude.core.packing import Packed
from etude.core.players import Player
from etude.core.rule import Rule
from etude.core.types import Episodes, Metrics, Rollout
from etude.envs import HostTask
from etude.meta.config import Collect, Recording
from etude.meta.gradient import Update, Window, chunk_length, update
from etude.meta.problem import Problem
from etude.training.iteration import Training, World


@runtime_checkable
class Learns(Protocol):
    """What the updates of a window change, an agent among it."""

    @property
    def learner(self) -> Learner: ...


State = TypeVar("State", bound=Learns)
Tree = TypeVar("Tree")


class Recorded(eqx.Module, Generic[State]):
    """A window's pieces. The agents are the first axis of each leaf."""

    states: list[Packed[State]]
    """Before each chunk of updates."""
    updates: list[Update]
    played: list[Metrics]
    """To log, of each update."""
    final: Packed[State]

    def window(self, start: State) -> Window[State]:
        """Of one agent."""
        return Window(start, stacked(self.states), stacked(self.updates), self.final.unpack())


def stacked(trees: Sequence[Tree]) -> Tree:
    return jax.tree.map(lambda *xs: jnp.stack(xs), *trees)


@dataclasses.dataclass(frozen=True)
class Outside(Generic[State]):
    """How windows of agents are recorded that play outside JAX."""

    problem: Problem[Rule, State, Any]
    training: Training
    inner_updates: int
    rule_axis: int | None
    """That of the agents in the rule; None if they share one."""
    recording: Recording = "each"
    collect: Collect = "fresh"

    # --- One agent -------------------------------------------------------------------------------

    def begin(self, rule: Rule, state: State) -> tuple[Packed[State], list[Array]]:
        """The state before the first update, and the leaves of what acts."""
        state = jax.tree.map(jnp.copy, self.problem.begin(rule, state))  # the old one is used up
        return Packed.pack(state), jax.tree.leaves(_acting(rule, state.learner))

    def update(
        self,
        rule: Rule,
        packed: Packed[State],
        world: World,
        new: Rollout,
        episodes: Episodes,
        key: PRNGKeyArray,
    ) -> tuple[World, Packed[State], list[Array], Update, Metrics]:
        """An update on the batch that `Training.play` would make of the rollout with this key."""
        new, replay_key = new.told_by(rule.context), jax.random.split(key)[1]
        world, batch, played = self.training.take_in(world, new, episodes, replay_key)
        state, made = update(self.problem, rule, packed.unpack(), batch)
        acting = jax.tree.leaves(_acting(rule, state.learner))
        return world, Packed.pack(state), acting, made, played

    def blank(
        self, state: State, length: int | None = None, batch: int | None = None
    ) -> tuple[Rollout, Episodes]:
        """Zeros in the form of what is played."""
        return self.training.blank(state.learner.agent, length, batch)

    # --- All agents ------------------------------------------------------------------------------

    def lower(
        self, rule: Rule, state: State, world: World
    ) -> tuple[dict[str, Lowered], Recorded[State]]:
        """The programs that `record` needs, and the form of what it returns; given shapes."""
        players = jax.tree.leaves(state)[0].shape[0]
        keys = jax.eval_shape(lambda: jax.random.split(jax.random.key(0), players))
        begin = jax.jit(jax.vmap(self.begin, in_axes=(self.rule_axis, 0)))
        axes = (self.rule_axis, 0, 0, 1, 1, 0)
        one_update = jax.jit(jax.vmap(self.update, in_axes=axes), donate_argnums=2)
        packed, _ = jax.eval_shape(begin, rule, state)
        played = jax.eval_shape(jax.vmap(self.blank, out_axes=1), state)
        arguments = (rule, packed, world, *played, keys)
        *_, made, log = jax.eval_shape(one_update, *arguments)
        programs = {"begin": begin.lower(rule, state), "update": one_update.lower(*arguments)}
        return programs, jax.eval_shape(self._like, packed, made, log)

    def _like(self, packed: Packed[State], made: Update, log: Metrics) -> Recorded[State]:
        number = self.inner_updates
        states = [packed] * (number // self._chunk)
        return Recorded(states, [made] * number, [log] * number, packed)

    def record(
        self,
        programs: dict[str, Compiled],
        rule: Rule,
        state: State,
        world: World,
        collector: Collector,
        keys: Key[Array, "agents updates"],
    ) -> tuple[World, Recorded[State], list[Array]]:
        """The updates of a window, each with its key. Returns the world afterwards (that before is
        used up), the window's pieces, and the leaves of what acts next."""
        packed, acting = programs["begin"](rule, state)
        states, updates, logs = [], [], []
        for i in range(self.inner_updates):
            if i % self._chunk == 0:
                states.append(packed)
            played = collector.play(acting, act_keys(keys[:, i]), self.training.config.rollout)
            world, packed, latest, made, log = programs["update"](
                rule, packed, world, *played, keys[:, i]
            )
            acting = latest if self.collect == "fresh" else acting
            updates.append(made)
            logs.append(log)
        return world, Recorded(states, updates, logs, packed), acting

    @property
    def _chunk(self) -> int:
        return chunk_length(self.inner_updates, self.recording)

    def open(
        self, rule: Rule, learners: Learner, keys: Key[Array, " agents"], num_envs: int
    ) -> Collector:
        """One that plays with what acts; `keys` say which episodes are played."""
        task, config = self.training.task, self.training.config
        assert isinstance(task, HostTask)
        acting = jax.vmap(_acting, in_axes=(self.rule_axis, 0))
        form, players = jax.tree.structure(jax.eval_shape(acting, rule, learners)), keys.shape[0]
        source = HostSource(
            task,
            players,
            num_envs,
            partial(_unpack, form),
            workers=config.workers,
            seed=int(jax.random.bits(keys[0]) // 2),
        )
        return Collector(source, config.step_timeout)


@jax.jit
def act_keys(keys: Key[Array, " agents"]) -> Key[Array, " agents"]:
    """Those by which `Training.play` would act."""
    return jax.vmap(jax.random.split)(keys)[:, 0]


def _acting(rule: Rule, learner: Learner) -> tuple[Player, Rule | None]:
    """The rule as well, if it tells agents anything."""
    return learner.player(rule), None if rule.context is None else rule


def _unpack(form: jax.tree_util.PyTreeDef, leaves: Sequence[Array]):
    player, rule = jax.tree.unflatten(form, leaves)
    return player, None if rule is None else rule.context
