"""All that is found out about a rule and the agents that learned under it."""

import dataclasses
from collections.abc import Callable
from pathlib import Path

import jax
import numpy as np

from etude import kinds, rules
from etude.api import setup
from etude.core.learner import Learner
from etude.core.rule import Rule
from etude.envs import JaxTask
from etude.errors import UserError
from etude.inspection.playing import rollouts, whole_episodes
from etude.inspection.probes import probe
from etude.inspection.targets import HEADS, horizon, reads
from etude.rules.disco.rule import Disco
from etude.runs.folder import CONFIG, Record, RunFolder
from etude.runs.loop import advance_to_end
from etude.runs.reading import is_file
from etude.settings import Settings
from etude.training.planning import read_plan
from etude.training.run import TrainRun

ROLLOUTS = 64
"""That the targets are asked about, each as long as those of training."""


@dataclasses.dataclass(frozen=True)
class Subject:
    """Agents under a rule, some way into their lives."""

    task: JaxTask
    rule: Disco
    rollout: int
    """Transitions per trajectory of their training."""
    learners: Learner
    """Each leaf has the seeds as its first axis."""
    seeds: int

    def learner(self, seed: int) -> Learner:
        return jax.tree.map(lambda x: x[seed], self.learners)


@dataclasses.dataclass(frozen=True)
class Inspection:
    """What was found, of each seed along the last axis."""

    env: str
    rule: str
    probes: dict[str, dict[str, np.ndarray]]
    """R² on held-out episodes, by what is looked for and what it is read from."""
    horizon: np.ndarray
    """How much a reward k steps ahead changes the targets: k × heads × seeds."""
    inputs: list[str]
    gradient: np.ndarray
    """How much each input moves the targets: inputs × heads × seeds."""
    ablation: np.ndarray
    """How much the targets change without it: inputs × heads × seeds."""
    heads: tuple[str, ...] = HEADS

    def summary(self) -> Record:
        heads = {name: i for i, name in enumerate(self.heads)}
        influences = {"gradient": self.gradient, "ablation": self.ablation}
        return {
            "env": self.env,
            "rule": self.rule,
            "probes": self.probes,
            "horizon": {name: self.horizon[:, i] for name, i in heads.items()},
            "inputs": {
                what: {
                    name: {x: numbers[j, i] for x, i in heads.items()}
                    for j, name in enumerate(self.inputs)
                }
                for what, numbers in influences.items()
            },
        }


def subject(
    what: str, training: Settings, say: Callable[[str], None] = lambda text: None
) -> Subject:
    """The agents of a training run, or new ones that are trained under a rule: one with a name, in
    a file, or of a run of discovery. `training`: settings for that, of which a run has its own."""
    if is_file(Path(what) / CONFIG) and kinds.open_folder(what).kind != "discover":
        return _in_folder(kinds.open_folder(what, "train"), training)
    if (kind := rules.kind_named(what)) != "disco":
        raise UserError(f"{kind} is not of the kind disco: it has no network to look into.")
    run = setup(rule=what, **training)
    rule, task = _require_disco(run.rule), _require_jax(run)
    say("Agents are trained…")
    learners = advance_to_end(run).state.learner
    return Subject(task, rule, run.config.rollout, learners, run.config.seeds)


def _in_folder(folder: RunFolder, training: Settings) -> Subject:
    if training:
        raise UserError(f"{folder.path} holds trained agents: there is nothing to set about that.")
    plan = read_plan(folder)
    if plan.learn_rule:
        raise UserError("In a run whose rule learns, each agent has its own: there is not one.")
    kind = kinds.class_of(folder)
    assert issubclass(kind, TrainRun)
    run = kind.untraced(plan, rule=kind.kept_start(folder))
    rule, task = _require_disco(run.rule), _require_jax(run)
    if not folder.has_checkpoint:
        raise UserError(f"{folder.path} holds no checkpoint yet.")
    learners = folder.kept(run.shapes().learner, "learner")
    return Subject(task, rule, plan.rollout, learners, plan.seeds)


def _require_disco(rule: Rule) -> Disco:
    if not isinstance(rule, Disco):
        raise UserError(
            f"{rules.kind_of(rule)} is not of the kind disco: it has no network to look into."
        )
    if not rule.config.predictions:
        raise UserError("Under a rule without y and z there are no predictions to inspect.")
    return rule


def _require_jax(run: TrainRun) -> JaxTask:
    if not isinstance(run.task, JaxTask):
        raise UserError(f"{run.config.env} runs outside JAX; what is inspected must run in it.")
    return run.task


def inspect(
    agents: Subject, length: int, number: int, seed: int, say: Callable[[str], None]
) -> Inspection:
    """Plays `number` environments for `length` steps with each agent, and asks its rule."""
    probes, curves, influences = [], [], []
    for i in range(agents.seeds):
        say(f"Agent {i + 1} of {agents.seeds}…")
        learner = agents.learner(i)
        keys = jax.random.split(jax.random.fold_in(jax.random.key(seed), i))
        steps = whole_episodes(agents.task, agents.rule, learner, keys[0], length, number)
        probes.append(probe(steps, agents.rule.config.discount, seed=seed))
        rollout = rollouts(agents.task, agents.rule, learner, keys[1], agents.rollout, ROLLOUTS)
        curves.append(horizon(agents.rule, learner, rollout))
        influences.append(reads(agents.rule, learner, rollout))
    by_seed = {
        name: {source: np.array([x[name][source] for x in probes]) for source in by}
        for name, by in probes[0].items()
    }
    gradient, ablation = (np.stack(x, axis=-1) for x in zip(*influences, strict=True))
    return Inspection(
        env=agents.task.name,
        rule=rules.spec_of(agents.rule),
        probes=by_seed,
        horizon=np.stack(curves, axis=-1),
        inputs=agents.rule.network.input_names,
        gradient=gradient,
        ablation=ablation,
    )
