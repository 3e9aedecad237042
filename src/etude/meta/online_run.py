"""A training run in which each seed's rule learns, too."""

import dataclasses
from functools import cached_property
from typing import ClassVar

import equinox as eqx
import jax
import numpy as np
from jax.stages import Lowered
from jaxtyping import PyTree

from etude import envs, rules
from etude.acting.collector import Collector
from etude.core.torso import image_notes
from etude.core.types import Metrics
from etude.envs import HostTask, Task
from etude.errors import UserError
from etude.meta.online import Life, OnlineState, OnlineTraining
from etude.meta.outside import Outside, act_keys
from etude.rules import Rule
from etude.runs.figures import plot_learned
from etude.runs.folder import RunFolder
from etude.runs.reading import is_file
from etude.runs.run import Record
from etude.training.config import TrainPlan
from etude.training.host_run import HostRun
from etude.training.iteration import rule_keys, seed_keys
from etude.training.run import TrainRun, require_one_device
from etude.training.side_by_side import ByUpdate


class OnlineRun(TrainRun[OnlineState]):
    """As `TrainRun`, where `rule` is where the seeds' rules start, each leaf with the seeds as its
    first axis."""

    kind: ClassVar[str] = "online"
    given_axis: ClassVar[int | None] = 0

    @classmethod
    def untraced(
        cls, config: TrainPlan, *, task: Task | None = None, rule: Rule | None = None
    ) -> "OnlineRun":
        task = envs.make(config.env) if task is None else task
        make = rules.maker(config.rule, task.observation) if rule is None else lambda key: rule
        keys = rule_keys(seed_keys(config.seed, config.seeds))
        start = jax.vmap(make, axis_size=config.seeds)(keys)
        if not jax.tree.leaves(start):
            raise UserError(f"{config.rule} has no parameters, so nothing to learn online.")
        kind = cls
        if isinstance(task, HostTask):
            require_one_device(config)
            kind = HostOnlineRun
        return kind(task, start, config, OnlineTraining.create(task, config))

    @classmethod
    def kept_start(cls, folder: RunFolder) -> Rule | None:
        if not is_file(folder.path / rules.START_FILE):
            return None
        return rules.load_kept(folder, rules.START_FILE)

    def write_start(self, folder: RunFolder) -> None:
        if all(bool((x == x[:1]).all()) for x in jax.tree.leaves(self.rule)):
            # Or else each seed has its own, which the rule's name makes.
            rules.save_kept(folder, rules.START_FILE, jax.tree.map(lambda x: x[0], self.rule))

    def record(self, state: OnlineState, metrics: dict[str, np.ndarray], done: int) -> Record:
        """With what the rules have come to, seed by seed."""
        by_seed = {name: metrics[name].mean(axis=0).tolist() for name in self.rule.watched}
        return super().record(state, metrics, done) | {"learned": by_seed}

    def learned(self, state: OnlineState) -> PyTree:
        return state.rule, state.learner

    def before_saving(self, state: OnlineState, folder: RunFolder) -> None:
        rules.save_kept(folder, rules.RULE_FILE, self.kept_rule(state), self._suggested)

    def kept_rule(self, state: OnlineState) -> Rule:
        """The one whose agent did best in the end."""
        last = state.world.episodes.last()
        best = int(np.argmax([x.mean() if len(x) else -np.inf for x in last]))
        return jax.tree.map(lambda x: x[best], state.rule)

    def acting_rule(self, state: OnlineState) -> Rule:
        return state.rule

    def _kept_rules(self, folder: RunFolder) -> list[Rule]:
        learned = folder.kept(self.shapes().rule, "rule")
        return [jax.tree.map(lambda x, i=i: x[i], learned) for i in range(self.config.seeds)]

    def draw(self, folder: RunFolder) -> None:
        super().draw(folder)
        if followed := self.rule.watched:
            plot_learned(folder.metrics(), followed, folder.path / "learned.png")

    @property
    def _suggested(self) -> dict[str, object]:
        """The settings of training that a rule learned here is used to."""
        names = "batch rollout replay_share epochs minibatches learning_rate schedule max_update"
        names += (
            " torso conv conv_kind embedding frame_stack memory memory_size memory_gate optimiser"
        )
        return {name: getattr(self.config, name) for name in names.split()}


@dataclasses.dataclass(frozen=True)
class HostOnlineRun(OnlineRun):
    """As `OnlineRun`, with experience from a host simulator, by the agents as they then are."""

    training: OnlineTraining
    collectors: list[Collector] = dataclasses.field(default_factory=list, compare=False)
    """The one that plays, once there is one."""

    def notes(self, resumed: bool = False) -> list[str]:
        notes = image_notes(self.config.env, self.task.observation)
        return notes + [HostRun.resumed_note.format(env=self.config.env)] * resumed

    @cached_property
    def _outside(self) -> Outside[Life]:
        problem = self.training.problem
        return Outside(problem, problem.training, problem.online.inner_updates, rule_axis=0)

    def _lower(self) -> dict[str, Lowered]:
        state, outside = self.shapes(), self._outside
        life = jax.eval_shape(lambda state: state.life, state)
        programs, recorded = outside.lower(state.rule, life, state.world)
        length = self.training.problem.online.outer_rollout
        blank = jax.vmap(lambda life: outside.blank(life, length), out_axes=1)
        last = jax.eval_shape(blank, life)
        conclude = jax.vmap(self.training.conclude, in_axes=(0, 0, 1, 1))
        conclude = jax.jit(conclude, donate_argnums=0)
        return programs | {"conclude": conclude.lower(state, recorded, *last)}

    def advance(self, state: OnlineState, done: int, number: int) -> tuple[OnlineState, ByUpdate]:
        each = []
        for _ in range(number):
            state, metrics = self._window(state)
            each.append(metrics)
        metrics = jax.tree.map(lambda *xs: np.stack(xs), *jax.device_get(each))
        self._require_finite(metrics, done)
        return state, metrics

    def _window(self, state: OnlineState) -> tuple[OnlineState, Metrics]:
        collector, programs = self._collector(state), self._compiled
        outer_keys, _, keys = self._window_keys(state.key)
        world, recorded, acting = self._outside.record(
            programs, state.rule, state.life, state.world, collector, keys
        )
        length = self.training.problem.online.outer_rollout
        last = collector.play(acting, act_keys(outer_keys), length)
        state = eqx.tree_at(lambda s: s.world, state, world)
        return programs["conclude"](state, recorded, *last)

    @cached_property
    def _window_keys(self):
        return jax.jit(jax.vmap(self.training.window_keys))

    def _collector(self, state: OnlineState) -> Collector:
        if not self.collectors:
            learners, number = state.learner, self.config.num_envs
            self.collectors.append(self._outside.open(state.rule, learners, state.key, number))
        return self.collectors[0]

    def close(self) -> None:
        while self.collectors:
            self.collectors.pop().close()


def training_run(
    plan: TrainPlan, *, task: Task | None = None, rule: Rule | None = None
) -> TrainRun:
    """The run for a plan, in which the rule learns or does not."""
    return (OnlineRun if plan.learn_rule else TrainRun).create(plan, task=task, rule=rule)
