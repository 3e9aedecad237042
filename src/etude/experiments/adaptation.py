"""Learning to adapt in Krazy World and mazes (Stadie et al. 2018, arXiv 1803.01118)."""

import itertools
from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from etude.adaptation.config import AdaptConfig, Algorithm
from etude.adaptation.method import draw_tasks
from etude.envs.krazy_world import KrazyState, KrazyTask
from etude.envs.maze import MazeState, MazeTask
from etude.experiments.base import Options, Panel, Reproduction, Say, Verdict, at_the_end
from etude.experiments.trainings import Trained, Training, train_all
from etude.settings import Settings

Measures = TypeVar("Measures")
BySeed = dict[str, np.ndarray]
"""A value for each seed, by algorithm."""
NAMES: dict[str, Algorithm] = {"MAML": "maml", "E-MAML": "emaml", "RL²": "rl2", "E-RL²": "erl2"}
FRESH_TASKS = 256
NOTES = (
    "Tasks to learn from are always fresh, where the paper has 32.",
    "Steps are counted up to the horizon, even of episodes that end before it.",
)
KRAZY_NOTES = (
    *NOTES,
    "The level is easy; the paper does not say which of its boards are meant.",
    "MAML and E-MAML adapt to 20 episodes of a task, RL² and E-RL² to 3.",
)
MAZE_NOTES = (
    *NOTES,
    "MAML and E-MAML adapt to 10 episodes of a maze, RL² and E-RL² to 3.",
)


def protocol(
    tasks: str, steps: int, options: Options, settings: Mapping[str, Settings]
) -> dict[str, AdaptConfig]:
    """All four algorithms as the paper compares them, but for the notes: one step of adaptation, or
    three episodes to explore and two that are scored, on 64 tasks to test on."""
    shared: Settings = dict(tasks=tasks, steps=steps, seed=options.seed, seeds=options.seeds)
    quick: Settings = dict(steps=1, batch=4) if options.quick else {}
    return {
        label: AdaptConfig(algo=x, **shared | settings.get(x, {}) | quick)
        for label, x in NAMES.items()
    }


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


def compare(claim: str, pairs: Iterable[tuple[str, str]], by_seed: BySeed) -> list[Verdict]:
    """Whether the first of each pair is above the second. Pairs are judged one by one: the best of
    several, seed by seed, would be favoured by chance."""
    return [is_above(claim.format(a, b), by_seed[a] - by_seed[b]) for a, b in pairs]


def curves_panel(title: str, trained: dict[str, Trained], levels: dict[str, float]) -> Panel:
    lines = {label: training.curve() for label, training in trained.items()}
    x_label = "environment steps, up to the horizon"
    return Panel(title, x_label, "return on test tasks", lines, levels)


# --- Krazy World ---------------------------------------------------------------------------------

KRAZY_WORLD = "krazy_world"
KRAZY_STEPS = 25_000_000


def train_krazy(options: Options, say: Say) -> dict[str, Trained]:
    return train_all(protocol(KRAZY_WORLD, KRAZY_STEPS, options, {}), say)


def run_krazy(options: Options, say: Say) -> Reproduction:
    trained = train_krazy(options, say)
    early = {label: up_to(training, 0.4 * KRAZY_STEPS) for label, training in trained.items()}
    late = {label: end(training) for label, training in trained.items()}
    first = [("E-MAML", x) for x in NAMES if x != "E-MAML"]
    last = [("E-RL²", "E-MAML"), ("E-RL²", "RL²"), ("MAML", "RL²")]
    near = late["MAML"] - late["E-MAML"]
    verdicts = [
        *compare("{} is above {} over the first 10M steps", first, early),
        *compare("{} ends above {}", last, late),
        Verdict.about("MAML ends near E-MAML, by 0.1 at the most: difference", near, -0.1, 0.1),
    ]
    levels = {"random": random_return(trained["MAML"])}
    crossing = passing(trained["E-RL²"], trained["E-MAML"])
    passes = f"When E-RL² passes E-MAML for good, in the mean: {crossing} (paper: at about 14M)."
    notes = (*KRAZY_NOTES, passes)
    return Reproduction(verdicts, [curves_panel(KRAZY_WORLD, trained, levels)], notes)


def random_return(training: Trained) -> float:
    """Of one episode of a policy that has learned nothing: nearly, but not quite, uniform."""
    run = training.parts[0].run
    return float(np.mean(run.judge(run.init().policy, FRESH_TASKS).before))


# --- Mazes ---------------------------------------------------------------------------------------

MAZE, LARGER_MAZE = "maze:size=10", "maze:size=20"
MAZE_STEPS = 25_000_000
MAZE_ADAM: Settings = dict(learning_rate=3e-3, schedule="cosine")
MAZE_STEP = MAZE_ADAM | dict(inner_rate=1.0, batch=16, episodes=10)
MAZE_SETTINGS = dict(maml=MAZE_STEP, emaml=MAZE_STEP, rl2=MAZE_ADAM, erl2=MAZE_ADAM)
"""By MAML's default step of adaptation, or Adam's, nothing is learned here; see the docs."""
MAZE_ORDER = [*itertools.product(("RL²", "E-RL²"), ("MAML", "E-MAML"))]
MAZE_ORDER += [("E-RL²", "RL²"), ("E-MAML", "MAML")]
"""Who was above whom, as published."""


def run_mazes(options: Options, say: Say, maze: str = MAZE) -> Reproduction:
    trained = train_all(protocol(maze, MAZE_STEPS, options, MAZE_SETTINGS), say)
    late = {label: end(training) for label, training in trained.items()}
    shares = {label: solved(training) for label, training in trained.items()}
    verdicts = [
        *compare("{} ends above {}", MAZE_ORDER, late),
        *compare("{} solves more mazes than {}", MAZE_ORDER, shares),
    ]
    levels = {"random": random_return(trained["MAML"])}
    panels = [
        curves_panel(maze, trained, levels),
        Panel("solved after adapting", "", "share of episodes on fresh mazes", {}, bars=shares),
    ]
    return Reproduction(verdicts, panels, MAZE_NOTES)


def run_larger_mazes(options: Options, say: Say) -> Reproduction:
    return run_mazes(options, say, LARGER_MAZE)


def solved(training: Trained) -> np.ndarray:
    """Each seed's share of episodes after adapting to fresh mazes that end at the goal."""

    def share(tasks: MazeTask, before: MazeState, after: MazeState) -> Float[Array, ""]:
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
    return Reproduction(verdicts, [panel], KRAZY_NOTES)


# --- Exploration ---------------------------------------------------------------------------------

MEASURED = 2**31 + 4
"""Folded into the seed's key; see `adaptation.trainer`."""


def measured(training: Training, measure: Callable[..., Measures]) -> Measures:
    """What `measure` says of fresh tasks and of the last states of episodes on them (tasks ×
    episodes), before adapting and after."""
    method, config = training.run.method, training.run.config
    task_key, key = jax.random.split(jax.random.fold_in(jax.random.key(config.seed), MEASURED))

    def play(policies: PyTree) -> Measures:
        policy = jax.tree.map(lambda x: x[0], policies)
        tasks = draw_tasks(method.env, task_key, FRESH_TASKS)
        return measure(tasks, *method.last_states(policy, tasks, key))

    return jax.device_get(jax.jit(play)(training.policies))


KINDS, DEATHS = "kinds of tiles entered while exploring", "deaths while exploring"
FOUND, REACHED = "goals reached while exploring", "goals reached afterwards"


def explored(tasks: KrazyTask, before: KrazyState, after: KrazyState) -> dict[str, jax.Array]:
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
    more_kinds = [*(("E-MAML", x) for x in NAMES if x != "E-MAML"), ("E-RL²", "RL²")]
    more_goals = [(x, "RL²") for x in NAMES if x != "RL²"]
    verdicts = [
        *compare("{} enters more kinds of tiles than {}", more_kinds, by_name[KINDS]),
        *compare("{} then reaches more goals than {}", more_goals, by_name[REACHED]),
    ]
    y_label = "mean of an episode"
    panels = [Panel(name, "", y_label, {}, bars=bars) for name, bars in by_name.items()]
    return Reproduction(verdicts, panels, KRAZY_NOTES)
