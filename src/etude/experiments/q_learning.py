"""Q-learning on single tasks of Krazy World: the baseline of arXiv 1803.01118, which has 1.2."""

import dataclasses

import jax
import numpy as np

from etude import envs
from etude.api import train
from etude.experiments.base import Line, Options, Panel, Reproduction, Say, Verdict
from etude.runs.figures import curve_arrays
from etude.settings import Settings

LEVELS = ("easy", "medium", "hard")
PRINTED = 1.2
STEPS = 5_000_000
LEARNING: Settings = dict(batch=32, rollout=16, learning_rate=1e-3, torso=(128, 128))
RULE = "q_learning:epsilon_updates=4000"


def run(options: Options, say: Say) -> Reproduction:
    lines: dict[str, Line] = {}
    verdicts = []
    for level in LEVELS[: 1 if options.quick else None]:
        say(f"{level}: {options.seeds} tasks…")
        lines[level], ends = learned(level, options)
        claim = f"Q-learning on a task of its own reaches {PRINTED} or more ({level})"
        verdicts.append(Verdict.about(claim, ends, at_least=PRINTED))
    panel = Panel("a task of its own", "environment steps", "return", lines, {"printed": PRINTED})
    notes = (
        "Each seed is a task; the source does not say which level its figure is of.",
        "The settings of Q(λ) are its defaults; none was chosen here.",
    )
    return Reproduction(verdicts, [panel], notes)


def learned(level: str, options: Options) -> tuple[Line, np.ndarray]:
    """The curve on tasks of a level, one per seed, and the return at the end on each."""
    task = envs.make_jax(f"krazy_world:level={level}")
    settings: Settings = LEARNING | dict(steps=2000 if options.quick else STEPS)
    curves, ends = [], []
    for key in jax.random.split(jax.random.key(options.seed), options.seeds):
        own = dataclasses.replace(task, params=task.env.sample_task(key))  # type: ignore[attr-defined]
        result = train(own, RULE, seed=options.seed, **settings)
        x, returns = curve_arrays(result.curve)
        curves.append((x, returns[:, 0]))
        ends.append(result.summary["final_return"]["mean"])
    return (curves[0][0], np.stack([y for _, y in curves], axis=1)), np.array(ends, float)
