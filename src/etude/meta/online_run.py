"""A training run in which each seed's rule learns, too."""

from typing import ClassVar

import jax
import numpy as np
from jaxtyping import PyTree

from etude import envs, rules
from etude.envs import Task
from etude.errors import UserError
from etude.meta.online import OnlineState, OnlineTraining
from etude.rules import Rule
from etude.runs.figures import plot_learned
from etude.runs.folder import RunFolder
from etude.runs.run import Record
from etude.training.config import TrainPlan
from etude.training.iteration import rule_keys, seed_keys
from etude.training.run import TrainRun


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
        return cls(task, start, config, OnlineTraining.create(task, config))

    @classmethod
    def kept_start(cls, folder: RunFolder) -> Rule | None:
        folder.let_import()
        path = folder.path / rules.START_FILE
        return rules.load_kept(path) if path.is_file() else None

    def write_start(self, folder: RunFolder) -> None:
        if all(bool((x == x[:1]).all()) for x in jax.tree.leaves(self.rule)):
            # Or else each seed has its own, which the rule's name makes.
            rules.save(folder.path / rules.START_FILE, jax.tree.map(lambda x: x[0], self.rule))

    def record(self, state: OnlineState, metrics: dict[str, np.ndarray], done: int) -> Record:
        """With what the rules have come to, seed by seed."""
        by_seed = {name: metrics[name].mean(axis=0).tolist() for name in self.rule.watched}
        return super().record(state, metrics, done) | {"learned": by_seed}

    def learned(self, state: OnlineState) -> PyTree:
        return state.rule, state.learner

    def before_saving(self, state: OnlineState, folder: RunFolder) -> None:
        rules.save(folder.path / rules.RULE_FILE, self.kept_rule(state), self._suggested)

    def kept_rule(self, state: OnlineState) -> Rule:
        """The one whose agent did best in the end."""
        last = state.world.episodes.last()
        best = int(np.argmax([x.mean() if len(x) else -np.inf for x in last]))
        return jax.tree.map(lambda x: x[best], state.rule)

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


def training_run(
    plan: TrainPlan, *, task: Task | None = None, rule: Rule | None = None
) -> TrainRun:
    """The run for a plan, in which the rule learns or does not."""
    return (OnlineRun if plan.learn_rule else TrainRun).create(plan, task=task, rule=rule)
