"""Learning to adapt in Krazy World and mazes (Stadie et al. 2018, arXiv 1803.01118)."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from etude.adaptation.algorithms import ByGradient
from etude.adaptation.config import AdaptConfig, Algorithm
from etude.adaptation.method import draw_tasks
from etude.experiments.base import (
    Experiment,
    Options,
    Panel,
    Reproduction,
    Say,
    Verdict,
    at_the_end,
)
from etude.experiments.trainings import Trained, Training, train_all

SOURCE = "Stadie et al. 2018, arXiv 1803.01118"
NAMES: dict[str, Algorithm] = {"MAML": "maml", "E-MAML": "emaml", "RL²": "rl2", "E-RL²": "erl2"}
FRESH_TASKS = 256
NOTES = (
    "Tasks to learn from are always fresh; 32 of them, as in the paper, are learned by heart.",
    "Steps are counted up to the horizon, even of episodes that end before it.",
    "MAML and E-MAML adapt to 20 episodes of a task, RL² and E-RL² to 3.",
)


def protocol(tasks: str, steps: int, options: Options, **settings: Any) -> dict[str, AdaptConfig]:
    """All four algorithms as the paper compares them, but for `NOTES`: one step of adaptation, or
    three episodes to explore and two that are scored, on 64 tasks to test on."""
    shared: dict[str, Any] = dict(tasks=tasks, steps=steps, seed=options.seed, seeds=options.seeds)
    if options.quick:
        shared |= dict(steps=1, batch=4)
    return {label: AdaptConfig(algo=x, **shared | settings) for label, x in NAMES.items()}


def up_to(training: Trained, steps: float) -> np.ndarray:
    """Each seed's mean over the first part of its curve."""
    x, returns = training.curve()
    return returns[x <= max(steps, x[0])].mean(axis=0)


def end(training: Trained) -> np.ndarray:
    return at_the_end(training.curve()[1])


def passing(first: Trained, second: Trained) -> str:
    """When the mean curve of the first goes above that of the second for good."""
    steps, ours = first.curve()
    theirs = np.interp(steps, second.curve()[0], second.curve()[1].mean(axis=1))
    behind = np.flatnonzero(ours.mean(axis=1) <= theirs)
    if not len(behind):
        return "at the start"
    return "never" if behind[-1] == len(steps) - 1 else f"at {steps[behind[-1] + 1]:,.0f} steps"


def is_above(claim: str, gain: np.ndarray) -> Verdict:
    return Verdict.about(f"{claim}: difference", gain, at_least=0.0)


def curves_panel(title: str, trained: dict[str, Trained], levels: dict[str, float]) -> Panel:
    lines = {label: training.curve() for label, training in trained.items()}
    return Panel(
        title, "environment steps, up to the horizon", "return on test tasks", lines, levels
    )


# --- Krazy World ---------------------------------------------------------------------------------

KRAZY_WORLD = "krazy_world"
KRAZY_STEPS = 25_000_000


def train_krazy(options: Options, say: Say) -> dict[str, Trained]:
    return train_all(protocol(KRAZY_WORLD, KRAZY_STEPS, options), say)


def run_krazy(options: Options, say: Say) -> Reproduction:
    trained = train_krazy(options, say)
    early = {label: up_to(training, 0.4 * KRAZY_STEPS) for label, training in trained.items()}
    late = {label: end(training) for label, training in trained.items()}
    verdicts = [
        is_above("E-MAML is above MAML over the first 10M steps", early["E-MAML"] - early["MAML"]),
        is_above("E-MAML is above RL² over the first 10M steps", early["E-MAML"] - early["RL²"]),
        is_above(
            "E-MAML is above E-RL² over the first 10M steps", early["E-MAML"] - early["E-RL²"]
        ),
        is_above("E-RL² ends above E-MAML", late["E-RL²"] - late["E-MAML"]),
        Verdict.about(
            "MAML ends near E-MAML, by 0.1 at the most: difference",
            late["MAML"] - late["E-MAML"],
            at_least=-0.1,
            at_most=0.1,
        ),
        is_above("E-RL² ends above RL²", late["E-RL²"] - late["RL²"]),
        is_above("MAML ends above RL²", late["MAML"] - late["RL²"]),
    ]
    levels = {"random": random_return(trained["MAML"])}
    crossing = passing(trained["E-RL²"], trained["E-MAML"])
    notes = (*NOTES, f"In the mean, E-RL² passes E-MAML for good {crossing} (paper: about 14M).")
    return Reproduction(verdicts, [curves_panel(KRAZY_WORLD, trained, levels)], notes)


def random_return(training: Trained) -> float:
    """Of one episode of a policy that has learned nothing."""
    run = training.parts[0].run
    return float(np.mean(run.judge(run.init().policy, FRESH_TASKS).before))


# --- Mazes ---------------------------------------------------------------------------------------

MAZE = "maze:size=10"
MAZE_STEPS = 25_000_000


def run_mazes(options: Options, say: Say) -> Reproduction:
    trained = train_all(protocol(MAZE, MAZE_STEPS, options), say)
    late = {label: end(training) for label, training in trained.items()}
    by_memory = np.minimum(late["RL²"], late["E-RL²"])
    by_gradient = np.maximum(late["MAML"], late["E-MAML"])
    verdicts = [
        is_above("RL² and E-RL² end above MAML and E-MAML", by_memory - by_gradient),
        is_above("E-RL² ends above RL²", late["E-RL²"] - late["RL²"]),
        is_above("E-MAML ends above MAML", late["E-MAML"] - late["MAML"]),
    ]
    levels = {"random": random_return(trained["MAML"])}
    shares = {label: solved(training) for label, training in trained.items()}
    panels = [
        curves_panel(MAZE, trained, levels),
        Panel("solved after adapting", "", "share of episodes on fresh mazes", {}, bars=shares),
    ]
    return Reproduction(verdicts, panels, NOTES)


def solved(training: Trained) -> np.ndarray:
    """Each seed's share of episodes after adapting to fresh mazes that end at the goal."""

    def share(tasks: Any, before: Any, after: Any) -> jax.Array:
        return jnp.mean(jnp.all(after.place == tasks.goal[:, None], axis=-1).astype(float))

    return np.array([measured(part, share) for part in training.parts])


# --- Before and after ----------------------------------------------------------------------------


def run_gap(options: Options, say: Say) -> Reproduction:
    bars, verdicts = {}, []
    for label, training in train_krazy(options, say).items():
        before, after = training.judge(FRESH_TASKS)
        plain = training.judge_untrained(FRESH_TASKS)
        bars |= {f"{label}\nuntrained": plain, f"{label}\nbefore": before, f"{label}\nafter": after}
        verdicts += [
            is_above(f"{label} is better after adapting than before", after - before),
            is_above(f"{label} adapts better than an untrained policy", after - plain),
        ]
    panel = Panel(KRAZY_WORLD, "", f"return on {FRESH_TASKS} fresh tasks", {}, bars=bars)
    return Reproduction(verdicts, [panel], NOTES)


# --- Exploration ---------------------------------------------------------------------------------

MEASURED = 2**31 + 4
"""Folded into the seed's key; see `adaptation.trainer`."""


def measured(training: Training, measure: Callable[[Any, Any, Any], Any]) -> Any:
    """What is said of fresh tasks and of the last states of episodes on them (tasks × episodes),
    before adapting and after."""
    method, config = training.run.method, training.run.config
    task_key, key = jax.random.split(jax.random.fold_in(jax.random.key(config.seed), MEASURED))

    def play(policies: Any) -> Any:
        policy = jax.tree.map(lambda x: x[0], policies)
        tasks = draw_tasks(method.env, task_key, FRESH_TASKS)
        played, _ = method.collect(policy, tasks, key)
        if isinstance(method, ByGradient):
            before, after = (x.episodes.last_state for x in (played.inner[0], played.outer))
        else:
            before, after = (
                jax.tree.map(lambda x, part=part: jnp.swapaxes(x[part], 0, 1), played.last_state)
                for part in (slice(config.explore), slice(config.explore, None))
            )
        return measure(tasks, before, after)

    return jax.device_get(jax.jit(play)(training.policies))


KINDS, DEATHS = "kinds of tiles entered while exploring", "deaths while exploring"
FOUND, REACHED = "goals reached while exploring", "goals reached afterwards"


def explored(tasks: Any, before: Any, after: Any) -> dict[str, jax.Array]:
    """Means over episodes."""
    return {
        KINDS: jnp.mean(jnp.sum(before.visited, axis=-1)),
        DEATHS: jnp.mean(before.dead.astype(float)),
        FOUND: jnp.mean(before.goals),
        REACHED: jnp.mean(after.goals),
    }


def run_exploration(options: Options, say: Say) -> Reproduction:
    found = {
        label: [measured(part, explored) for part in trained.parts]
        for label, trained in train_krazy(options, say).items()
    }
    by_name = {
        name: {label: np.array([x[name] for x in found[label]]) for label in found}
        for name in (KINDS, DEATHS, FOUND, REACHED)
    }
    kinds, goals = by_name[KINDS], by_name[REACHED]
    most = np.maximum.reduce([kinds[x] for x in kinds if x != "E-MAML"])
    fewest = np.minimum.reduce([goals[x] for x in goals if x != "RL²"])
    verdicts = [
        is_above("E-MAML enters more kinds of tiles than all others", kinds["E-MAML"] - most),
        is_above("All others then reach more goals than RL²", fewest - goals["RL²"]),
        is_above("E-RL² enters more kinds of tiles than RL²", kinds["E-RL²"] - kinds["RL²"]),
    ]
    panels = [
        Panel(name, "", "mean of an episode", {}, bars=bars) for name, bars in by_name.items()
    ]
    return Reproduction(verdicts, panels, NOTES)


EXPERIMENTS = {
    "krazy-world": Experiment(
        "Four ways to adapt, in Krazy World.", f"{SOURCE}, figure 4", run_krazy, seeds=3
    ),
    "mazes": Experiment("Four ways to adapt, in mazes.", f"{SOURCE}, figure 5", run_mazes, seeds=3),
    "adaptation-gap": Experiment(
        "Krazy World before adapting and after.", f"{SOURCE}, figure 6", run_gap, seeds=3
    ),
    "exploration": Experiment(
        "What is explored before adapting.", f"{SOURCE}, figure 7", run_exploration, seeds=3
    ),
}
