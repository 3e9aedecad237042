"""Learning to explore where there is something to explore: Krazy World's harder levels, all four
algorithms at the best of as many settings each (Stadie et al. 2018, arXiv 1803.01118)."""

import dataclasses
from functools import partial

import jax
import numpy as np
from jaxtyping import Array, Float, PyTree

from etude.adaptation.config import AdaptConfig
from etude.adaptation.method import draw_tasks
from etude.adaptation.rl2 import Recurrent
from etude.experiments.adaptation import (
    DEATHS,
    FOUND,
    FRESH_TASKS,
    KINDS,
    NAMES,
    REACHED,
    BySeed,
    compare,
    curves_panel,
    explored,
    measured,
    random_return,
    up_to,
)
from etude.experiments.base import Options, Panel, Reproduction, Say, Verdict
from etude.experiments.trainings import Trained, Training, train_all
from etude.settings import Settings

AWAY = 700
"""Seeds that settings are chosen on are so far, times a thousand, from those that are shown."""
CHOOSING_SEEDS = 2
TRIAL, SCORED = 5, 2
"""Episodes of a trial, and how many of the last ones are scored, however many are to explore."""
EXACT = 20.0
"""The weight of E-MAML's term that its gradient has: the number of episodes it adapts to."""
LARGER: Settings = dict(hidden=128, minibatches=4, schedule="cosine")
CANDIDATES: dict[str, dict[str, Settings]] = {
    "MAML": {f"step {x:g}": dict(inner_rate=x) for x in (1.0, 2.0, 5.0, 10.0)}
    | {"learned steps": dict(learn_rates=True)},
    "E-MAML": {f"weight {x:g}": dict(exploration=x) for x in (1.0, 3.0, 10.0, EXACT)}
    | {"exact, per task": dict(exploration=EXACT, adaptations=4)},
    "RL²": {f"rate {x:g}": LARGER | dict(learning_rate=x) for x in (3e-4, 1e-3, 3e-3)}
    | {"defaults": {}, "rate 0.003, defaults": dict(learning_rate=3e-3)},
    "E-RL²": {f"{p} to explore": LARGER | dict(explore=p) for p in (1, 2, 3)}
    | {f"{p} to explore, defaults": dict(explore=p) for p in (2, 3)},
}
"""As many for each algorithm."""
NOTES = (
    "Each algorithm has the best of five settings by the return on fresh tasks, on other seeds and "
    "in shorter runs; its return is that of a trial's last two episodes.",
    "MAML and E-MAML adapt to 20 episodes of a task, RL² and E-RL² to 3.",
    "Steps are counted up to the horizon, even of episodes that end before it.",
)


def run(level: str, train_tasks: int, options: Options, say: Say) -> Reproduction:
    shared: Settings = dict(tasks=f"krazy_world:level={level}", train_tasks=train_tasks)
    best, panels = chosen(shared, options, say)
    steps = options.size(1, 5_000_000, 25_000_000)
    trained = train_all(
        {
            label: config(label, shared | dict(steps=steps) | settings, options)
            for label, (_, settings) in best.items()
        },
        say,
    )
    ends = {label: returns(training) for label, training in trained.items()}
    levels = {"random": random_return(trained["MAML"])}
    measures, verdicts = judged(trained, steps)
    panels = [
        curves_panel(shared["tasks"], trained, levels),
        Panel("fresh tasks, last two episodes", "", "return", {}, bars=ends),
        *measures,
        *panels,
    ]
    last = [("E-RL²", "E-MAML"), ("E-RL²", "RL²"), ("E-MAML", "MAML"), ("MAML", "RL²")]
    verdicts = [*verdicts, *compare("{} ends above {}", last, ends)]
    settings = ", ".join(f"{label}: {name}" for label, (name, _) in best.items())
    tasks = f"{train_tasks} tasks" if train_tasks else "tasks that are always fresh"
    notes = (*NOTES, f"Chosen were {settings}.", f"Learned from {tasks}; tested on 64 others.")
    return Reproduction(verdicts, panels, notes)


run_hard, run_medium = partial(run, "hard", 0), partial(run, "medium", 0)
run_few = partial(run, "hard", 32)


def config(label: str, settings: Settings, options: Options) -> AdaptConfig:
    shared: Settings = dict(seed=options.seed, seeds=options.seeds)
    if options.quick:
        shared |= dict(batch=4)
    return AdaptConfig(algo=NAMES[label], **shared | settings)


def chosen(
    shared: Settings, options: Options, say: Say
) -> tuple[dict[str, tuple[str, Settings]], list[Panel]]:
    """The best settings of each algorithm with their names, on seeds that are not shown."""
    elsewhere = dataclasses.replace(options, seed=options.seed + AWAY, seeds=CHOOSING_SEEDS)
    short = shared | dict(steps=options.size(1, 2_000_000, 5_000_000))
    best, panels = {}, []
    for label, all_of_them in CANDIDATES.items():
        candidates = dict(list(all_of_them.items())[: 1 if options.quick else None])
        configs = {k: config(label, short | v, elsewhere) for k, v in candidates.items()}
        found = {name: returns(training) for name, training in train_all(configs, say).items()}
        name = max(found, key=lambda name: found[name].mean())
        best[label] = (name, candidates[name])
        panels.append(Panel(f"{label}, seeds to choose on", "", "return", {}, bars=found))
    return best, panels


def returns(trained: Trained) -> np.ndarray:
    """On fresh tasks, after adapting, of each seed: of all episodes then, or of a trial's last."""
    return np.array([one_return(part) for part in trained.parts], float)


def one_return(part: Training) -> float:
    run, method = part.run, part.run.method
    if not isinstance(method, Recurrent):
        return float(np.mean(run.judge(part.policies, FRESH_TASKS).after))
    task_key, key = jax.random.split(jax.random.key(run.config.seed))

    def last_episodes(policies: PyTree) -> Float[Array, " tasks"]:
        policy = jax.tree.map(lambda x: x[0], policies)
        tasks = draw_tasks(method.env, task_key, FRESH_TASKS)
        trial = method.play(policy, tasks, key, lambda state: None)
        return trial.returns(TRIAL - SCORED, TRIAL)

    return float(np.mean(jax.jit(last_episodes)(part.policies)))


def judged(trained: dict[str, Trained], steps: int) -> tuple[list[Panel], list[Verdict]]:
    """Figure 7's measures, and what is claimed of them and of the first part of learning."""
    found = {label: [measured(x, explored) for x in y.parts] for label, y in trained.items()}
    by_name: dict[str, BySeed] = {
        name: {label: np.array([x[name] for x in found[label]]) for label in found}
        for name in (KINDS, DEATHS, FOUND, REACHED)
    }
    panels = [Panel(name, "", "mean of an episode", {}, bars=x) for name, x in by_name.items()]
    early = {label: up_to(training, 0.4 * steps) for label, training in trained.items()}
    first = [("E-MAML", x) for x in NAMES if x != "E-MAML"]
    verdicts = [
        *compare("{} is above {} over the first 40% of training", first, early),
        *compare("{} enters more kinds of tiles than {}", first, by_name[KINDS]),
        *compare(
            "{} then reaches more goals than {}",
            [(x, "RL²") for x in NAMES if x != "RL²"],
            by_name[REACHED],
        ),
    ]
    return panels, verdicts
