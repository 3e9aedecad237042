"""A training run on a host simulator: rollouts are played outside JAX while the agent learns."""

import dataclasses
from collections.abc import Sequence
from functools import cached_property
from typing import ClassVar

import jax
import numpy as np
from jaxtyping import Array, Key

from etude.acting.collector import Collector
from etude.acting.host_source import HostSource
from etude.core.learner import Learner
from etude.core.torso import image_notes
from etude.envs import HostTask
from etude.rules import Rule
from etude.runs.run import Outcome, Record
from etude.training.iteration import EpisodeLog, Training, TrainState, seed_keys
from etude.training.run import TrainRun
from etude.training.side_by_side import ByUpdate

OUTCOMES = "outcomes"
"""Under this name, metrics, records and the summary hold what episodes came to."""


@dataclasses.dataclass(frozen=True)
class HostRun(TrainRun[TrainState]):
    """As `TrainRun`, with experience from a host simulator.

    With a lag of 1, rollout k + 1 is played by the agent as it was before update k, while update k
    is computed; with none, the two take turns.
    """

    task: HostTask
    training: Training
    collectors: list[Collector] = dataclasses.field(default_factory=list, compare=False)
    """The one that plays, once there is one."""

    resumed_note: ClassVar[str] = (
        "Note: {env} keeps no checkpoints of its own: its environments begin new episodes."
    )

    def notes(self, resumed: bool = False) -> list[str]:
        notes = image_notes(self.config.env, self.task.observation)
        return notes + [self.resumed_note.format(env=self.config.env)] * resumed

    def again(self, rule: Rule, seed: int) -> "HostRun":
        """A run that differs in nothing that has to be compiled: under a rule of the same form."""
        config = dataclasses.replace(self.config, seed=seed)
        other = dataclasses.replace(self, rule=rule, config=config, collectors=[])
        vars(other)["_compiled"] = self._compiled
        return other

    # --- The programs ----------------------------------------------------------------------------

    @property
    def _seed_keys(self) -> Key[Array, " seeds"]:
        return seed_keys(self.config.seed, self.config.seeds)

    def _lower(self) -> dict[str, jax.stages.Lowered]:
        training, state = self.training, self.shapes()
        blank = jax.vmap(training.blank, out_axes=1)
        rollout, episodes = jax.eval_shape(blank, state.learner.agent)
        axes = (None, 0, 1, 1)
        learn = jax.jit(jax.vmap(training.learn, in_axes=axes), donate_argnums=1)
        programs = {"learn": learn.lower(self.rule, state, rollout, episodes)}
        if self.config.filling_rollouts:
            fill = jax.jit(jax.vmap(training.remember, in_axes=axes[:3]), donate_argnums=1)
            programs["fill"] = fill.lower(self.rule, state, rollout)
        return programs

    @cached_property
    def _leaves(self):
        """Those of the players, apart from those that the next update uses up."""

        def leaves(learner: Learner) -> list[Array]:
            players = jax.vmap(lambda learner: learner.player(self.rule))(learner)
            return jax.tree.leaves(jax.tree.map(jax.numpy.copy, players))

        return jax.jit(leaves)

    @cached_property
    def _act_keys(self):
        return jax.jit(jax.vmap(self.training.act_key))

    # --- Playing and learning --------------------------------------------------------------------

    def open_source(self, seed: int) -> HostSource:
        config = self.config
        player = jax.vmap(lambda learner: learner.player(self.rule))
        form = jax.tree.structure(jax.eval_shape(player, self.shapes().learner))

        def unpack(leaves: Sequence[Array]):
            return jax.tree.unflatten(form, leaves), self.rule.context

        return HostSource(
            self.task, config.seeds, config.num_envs, unpack, workers=config.workers, seed=seed
        )

    def _collector(self, done: int) -> Collector:
        """The one that plays; other episodes are played if a run goes on."""
        if not self.collectors:
            seed = int(np.random.SeedSequence([self.config.seed, done]).generate_state(1)[0] // 2)
            source = self.open_source(seed)
            self.collectors.append(Collector(source, self.config.step_timeout))
        return self.collectors[0]

    def close(self) -> None:
        while self.collectors:
            self.collectors.pop().close()

    def advance(self, state: TrainState, done: int, number: int) -> tuple[TrainState, ByUpdate]:
        collector, length = self._collector(done), self.config.rollout
        if done == 0 and self.config.filling_rollouts:
            state = self._fill(collector, state)
        each, outcomes = [], np.empty(number, object)
        for update in range(done, done + number):
            act_keys, next_keys = self._act_keys(state.key)
            if not collector.asked:
                collector.ask(self._leaves(state.learner), act_keys, length)
            new, episodes = collector.take()
            outcomes[update - done] = collector.outcomes
            if self.config.lag and update + 1 < self.updates:
                act_keys, _ = self._act_keys(next_keys)
                collector.ask(self._leaves(state.learner), act_keys, length)
            state, metrics = self._compiled["learn"](self.rule, state, new, episodes)
            each.append(metrics)
        metrics = jax.tree.map(lambda *xs: np.stack(xs), *jax.device_get(each))
        self._require_finite(metrics, done)
        return state, metrics | {OUTCOMES: outcomes}

    # --- What episodes came to, where the environment tells ---------------------------------------

    def record(self, state: TrainState, metrics: ByUpdate, done: int) -> Record:
        told = dict(metrics)
        outcomes = [x for update in told.pop(OUTCOMES) for x in update]
        record = super().record(state, told, done)
        if not outcomes:
            return record
        seeds = np.array([index // self.config.num_envs for index, _ in outcomes])
        counts = np.bincount(seeds, minlength=self.config.seeds)
        names = {name for _, outcome in outcomes for name in outcome}
        sums = {
            name: np.bincount(
                seeds, [outcome.get(name, 0.0) for _, outcome in outcomes], self.config.seeds
            ).tolist()
            for name in sorted(names)
        }
        return record | {OUTCOMES: {"episodes": counts.tolist(), "sums": sums}}

    def summary(self, outcome: Outcome[TrainState]) -> Record:
        """With the mean outcomes of all episodes of the run, seed by seed."""
        told = [record[OUTCOMES] for record in outcome.curve if OUTCOMES in record]
        if not told:
            return super().summary(outcome)
        counts = np.sum([x["episodes"] for x in told], axis=0)
        names = sorted({name for x in told for name in x["sums"]})
        none = np.zeros(self.config.seeds)
        means = {
            name: np.sum([x["sums"].get(name, none) for x in told], axis=0) / np.maximum(counts, 1)
            for name in names
        }
        found = {name: x.tolist() for name, x in means.items()}
        if self.task.judge is not None:
            each = [self.task.judge({k: x[i] for k, x in found.items()}) for i in range(len(none))]
            found |= {name: [x[name] for x in each] for name in each[0]}
        return super().summary(outcome) | {OUTCOMES: found}

    def played(self, rollouts: int) -> EpisodeLog:
        """How episodes end for the agents as they are at the start."""
        collector, state = self._collector(0), self.init()
        leaves, log, key = self._leaves(state.learner), state.world.episodes, state.key
        add = jax.jit(jax.vmap(EpisodeLog.add, in_axes=(0, 1)))
        for _ in range(rollouts):
            act_keys, key = self._act_keys(key)
            log = add(log, collector.play(leaves, act_keys, self.config.rollout)[1])
        return log

    def _fill(self, collector: Collector, state: TrainState) -> TrainState:
        keys = jax.vmap(self.training.fill_keys, out_axes=1)(self._seed_keys)
        for key in keys:
            collector.ask(self._leaves(state.learner), key, self.config.rollout)
        for _ in keys:
            state = self._compiled["fill"](self.rule, state, collector.take()[0])
        return state
