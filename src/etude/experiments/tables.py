"""RL² against classic strategies, on bandits and tabular MDPs (Duan et al. 2016, arXiv 1611.02779,
tables 1 and 2)."""

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import PRNGKeyArray

from etude.adaptation.classics import (
    BANDIT_STRATEGIES,
    MDP_STRATEGIES,
    Choice,
    play_bandits,
    play_mdps,
    ucb1,
)
from etude.adaptation.config import AdaptConfig
from etude.envs.bandit import Bandit
from etude.envs.tabular_mdp import TabularMDP
from etude.experiments.base import Options, Panel, Reproduction, Say, Verdict
from etude.experiments.trainings import Trained, train_all
from etude.settings import Settings

Figures = dict[str, float]

FRESH_TASKS = 16_384
"""That each seed's policy is judged by; classic strategies are judged by as many for each seed."""
PRINTED_TASKS = 1000
"""That a printed mean is over, as far as we know: none of our sources confirms it."""
NOTES = (
    "RL² is paid what was drawn, not its mean (`expected` is off).",
    "It sees products of observation, action and reward, and its memory is gated (`associative`).",
)


class Totals(NamedTuple):
    """What is earned in whole trials."""

    by_seed: np.ndarray
    """The mean over each seed's fresh tasks."""
    deviation: float
    """Of single trials."""


def trials(tasks: str, steps: int, options: Options, **settings: object) -> AdaptConfig:
    """RL² as a strategy: all of a trial counts, and no task is met twice."""
    shared: Settings = dict(seed=options.seed, seeds=options.seeds, explore=0) | settings
    if options.quick:
        shared |= dict(batch=8, minibatches=1, hidden=8)
        steps = 1
    return AdaptConfig(algo="rl2", tasks=tasks, steps=steps, **shared)


def fresh_tasks(options: Options) -> int:
    return 64 if options.quick else FRESH_TASKS


def played(play: Callable[[int, PRNGKeyArray], jax.Array], options: Options) -> Totals:
    """By a classic strategy, on fresh tasks for each seed."""
    keys = jax.random.split(jax.random.key(options.seed), options.seeds)
    play_all = jax.jit(partial(play, fresh_tasks(options)))
    totals = np.stack([play_all(key) for key in keys])
    return Totals(totals.mean(axis=1), float(totals.std()))


def learned(where: str, by_seed: np.ndarray, printed: float) -> Verdict:
    """With all of its interval, RL² must be within 2% of what was printed, or above."""
    claim = f"{where}: RL² earns {printed}, 2% less, or more"
    return Verdict.about(claim, by_seed, at_least=0.98 * printed)


def classic(where: str, name: str, ours: Totals, printed: float) -> Verdict:
    """Ours must be as near as the error of the printed mean and its last digit allow."""
    error = 1.96 * ours.deviation / PRINTED_TASKS**0.5 + 0.05
    claim = f"{where}: {name} earns {printed}, within its sampling error, {error:.2g}"
    return Verdict.about(claim, ours.by_seed, at_least=printed - error, at_most=printed + error)


def compared(
    where: str, training: Trained, classics: dict[str, Totals], printed: Figures, options: Options
) -> tuple[list[Verdict], Panel]:
    """What is earned in whole trials, by RL² in the mean over fresh tasks."""
    episodes = training.config.episodes or 1
    ours = episodes * training.judge(fresh_tasks(options))[1]
    verdicts = [classic(where, name, x, printed[name]) for name, x in classics.items()]
    levels = {name: float(np.mean(x.by_seed)) for name, x in classics.items()}
    steps, returns = training.curve()
    lines = {"RL²": (steps, episodes * returns)}
    panel = Panel(where, "environment steps", "sum of rewards in a trial", lines, levels)
    return [*verdicts, learned(where, ours, printed["RL²"])], panel


# --- Bandits -------------------------------------------------------------------------------------

ROWS = ("random", "greedy", "Thompson sampling", "UCB1", "RL²")
BANDITS: dict[tuple[int, int], Figures] = {
    (10, 5): dict(zip(ROWS, (5.0, 6.6, 5.7, 6.7, 6.7), strict=True)),
    (10, 10): dict(zip(ROWS, (5.0, 6.6, 5.5, 6.7, 6.7), strict=True)),
    (100, 5): dict(zip(ROWS, (49.9, 74.8, 74.7, 78.0, 78.7), strict=True)),
}
"""By pulls and arms: the printed sums of rewards."""
BANDIT_STEPS = {10: 4_000_000, 100: 8_000_000}
LEARNING: Settings = dict(associative=True, learning_rate=3e-3, schedule="cosine", minibatches=4)
BANDIT_SETTINGS = LEARNING | dict(batch=256, discount=0.995, td_lambda=0.95)
WIDTHS = (0.05, 0.1, 0.2, 0.3, 0.5, 1.0)
"""Of UCB1's bonus; the best is taken, as the source tuned it, on tasks of its own."""


def run_bandits(options: Options, say: Say) -> Reproduction:
    configs = {
        f"n={n}, k={k}": trials(
            f"bandit:arms={k},pulls={n}", BANDIT_STEPS[n], options, episodes=1, **BANDIT_SETTINGS
        )
        for n, k in BANDITS
    }
    trained = train_all(configs, say)
    verdicts, panels = [], []
    for (where, training), (n, k) in zip(trained.items(), BANDITS, strict=True):
        classics = classic_bandits(Bandit(arms=k, pulls=n), options)
        found, panel = compared(where, training, classics, BANDITS[n, k], options)
        verdicts += found
        panels.append(panel)
    return Reproduction(verdicts, panels, NOTES)


def classic_bandits(bandit: Bandit, options: Options) -> dict[str, Totals]:
    def earned(choose: Choice, options: Options = options) -> Totals:
        return played(lambda number, key: play_bandits(choose, bandit, number, key), options)

    elsewhere = dataclasses.replace(options, seed=options.seed ^ 2**31)
    widths = {x: np.mean(earned(partial(ucb1, width=x), elsewhere).by_seed) for x in WIDTHS}
    best = max(widths, key=lambda x: widths[x])
    choices = BANDIT_STRATEGIES | {"UCB1": partial(ucb1, width=best)}
    return {name: earned(choose) for name, choose in choices.items()}


# --- MDPs ----------------------------------------------------------------------------------------

MDPS: dict[int, Figures] = {10: {"random": 100.1, "PSRL": 138.1, "RL²": 156.2}}
"""By episodes: the printed sums of rewards."""
MDP_STEPS = 20_000_000
MDP_SETTINGS = LEARNING | dict(batch=128, hidden=128)
MDP_SETTINGS |= dict(discount=0.7, td_lambda=0.3, entropy_cost=0.02)


def run_mdps(options: Options, say: Say) -> Reproduction:
    configs = {
        f"n={n}": trials("tabular_mdp", MDP_STEPS, options, episodes=n, **MDP_SETTINGS)
        for n in MDPS
    }
    verdicts, panels = [], []
    for (where, training), n in zip(train_all(configs, say).items(), MDPS, strict=True):
        classics = {name: classic_mdps(name, n, options) for name in ("random", "PSRL")}
        found, panel = compared(where, training, classics, MDPS[n], options)
        verdicts += found
        panels.append(panel)
    discount = f"Its discount is {MDP_SETTINGS['discount']}, not 0.99."
    return Reproduction(verdicts, panels, (*NOTES, discount))


def classic_mdps(strategy: str, episodes: int, options: Options) -> Totals:
    plan, mdp = MDP_STRATEGIES[strategy], TabularMDP()
    return played(lambda number, key: play_mdps(plan, mdp, episodes, number, key), options)
