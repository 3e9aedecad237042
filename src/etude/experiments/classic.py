"""Classic strategies on bandits and tabular MDPs, against their printed figures (Duan et al. 2016,
arXiv 1611.02779, tables 1 and 2)."""

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray

from etude.adaptation.classics import (
    BANDIT_STRATEGIES,
    MDP_STRATEGIES,
    Choice,
    Plan,
    gittins,
    play_bandits,
    play_mdps,
    ucb1,
    ucrl2,
)
from etude.adaptation.gittins import gittins_indices
from etude.envs.bandit import Bandit
from etude.envs.tabular_mdp import TabularMDP
from etude.experiments.base import Options, Panel, Reproduction, Say, Verdict

Figures = dict[str, float]

TASKS = 8192
"""That a strategy is judged by for each seed, on bandits of up to 100 pulls; fewer of longer ones
and of MDPs, as many as take about as long."""
FEWER = {500: 2048}
MDP_TASKS = {10: 2048, 25: 1024, 50: 512}
PRINTED_TASKS = 1000
"""That a printed mean is over, as far as we know: none of our sources confirms it."""
ROWS = ("random", "Gittins", "Thompson sampling", "UCB1", "greedy", "RL²")
BANDITS: dict[tuple[int, int], Figures] = {
    (10, 5): dict(zip(ROWS, (5.0, 6.6, 5.7, 6.7, 6.6, 6.7), strict=True)),
    (10, 10): dict(zip(ROWS, (5.0, 6.6, 5.5, 6.7, 6.6, 6.7), strict=True)),
    (100, 5): dict(zip(ROWS, (49.9, 78.3, 74.7, 78.0, 74.8, 78.7), strict=True)),
    (100, 10): dict(zip(ROWS, (49.9, 82.8, 76.7, 82.4, 77.1, 83.5), strict=True)),
    (500, 5): dict(zip(ROWS, (249.8, 405.8, 402.0, 405.8, 380.6, 401.6), strict=True)),
}
"""By pulls and arms: the printed sums of rewards."""
MDP_ROWS = ("random", "PSRL", "OPSRL", "UCRL2", "RL²")
MDPS: dict[int, Figures] = {
    10: dict(zip(MDP_ROWS, (100.1, 138.1, 144.1, 146.6, 156.2), strict=True)),
    25: dict(zip(MDP_ROWS, (250.2, 408.8, 425.2, 424.1, 445.7), strict=True)),
    50: dict(zip(MDP_ROWS, (499.7, 904.4, 930.7, 918.9, 936.1), strict=True)),
}
"""By episodes."""
WIDTHS = (0.05, 0.1, 0.2, 0.3, 0.5, 1.0)
"""Of UCB1's bonus; the best is taken, as the source tuned it, on tasks of its own."""
DISCOUNTS = (0.9, 0.97, 0.99)
"""Of Gittins indices; the best is taken in the same way."""
BOUNDS = (0.003, 0.01, 0.03, 0.1, 0.3)
"""Of UCRL2's widths; likewise."""


class Totals(NamedTuple):
    """What is earned in whole trials."""

    by_seed: np.ndarray
    """The mean over each seed's fresh tasks."""
    deviation: float
    """Of single trials."""


def played(play: Callable[[int, PRNGKeyArray], jax.Array], options: Options, tasks: int) -> Totals:
    """By a classic strategy, on fresh tasks for each seed."""
    keys = jax.random.split(jax.random.key(options.seed), options.seeds)
    play_all = jax.jit(partial(play, 8 if options.quick else tasks))
    totals = np.stack([play_all(key) for key in keys])
    return Totals(totals.mean(axis=1), float(totals.std()))


def elsewhere(options: Options) -> Options:
    """To choose on: other tasks."""
    return dataclasses.replace(options, seed=options.seed ^ 2**31)


def verdict(where: str, name: str, ours: Totals, printed: float) -> Verdict:
    """Ours must be as near as the error of the printed mean and its last digit allow."""
    error = 1.96 * ours.deviation / PRINTED_TASKS**0.5 + 0.05
    claim = f"{where}: {name} earns {printed}, within its sampling error, {error:.2g}"
    return Verdict.about(claim, ours.by_seed, at_least=printed - error, at_most=printed + error)


def run_bandits(options: Options, say: Say) -> Reproduction:
    verdicts, panels = [], []
    for (n, k), printed in list(BANDITS.items())[: 1 if options.quick else None]:
        where = f"n={n}, k={k}"
        say(f"{where}…")
        found = bandit_totals(Bandit(arms=k, pulls=n), options)
        verdicts += [verdict(where, name, x, printed[name]) for name, x in found.items()]
        bars = {name: x.by_seed for name, x in found.items()}
        panels.append(Panel(where, "", "sum of rewards in a trial", {}, bars=bars))
    note = "The width of UCB1 and the discount of Gittins indices are the best of a few, on others."
    return Reproduction(verdicts, panels, (note,))


def bandit_totals(bandit: Bandit, options: Options) -> dict[str, Totals]:
    tasks = FEWER.get(bandit.pulls, TASKS)

    def earned(choose: Choice, options: Options = options) -> Totals:
        return played(lambda number, key: play_bandits(choose, bandit, number, key), options, tasks)

    def best_of(choices: list[Choice]) -> Choice:
        if options.quick:
            return choices[0]
        return max(choices, key=lambda x: earned(x, elsewhere(options)).by_seed.mean())

    tables = [jnp.asarray(gittins_indices(x, bandit.pulls)) for x in DISCOUNTS]
    strategies = BANDIT_STRATEGIES | {
        "UCB1": best_of([partial(ucb1, width=width) for width in WIDTHS]),
        "Gittins": best_of([partial(gittins, indices=table) for table in tables]),
    }
    return {name: earned(choose) for name, choose in strategies.items()}


def run_mdps(options: Options, say: Say) -> Reproduction:
    verdicts, panels = [], []
    for episodes, printed in list(MDPS.items())[: 1 if options.quick else None]:
        where = f"n={episodes}"
        say(f"{where}…")
        found = mdp_totals(episodes, options)
        verdicts += [verdict(where, name, x, printed[name]) for name, x in found.items()]
        bars = {name: x.by_seed for name, x in found.items()}
        panels.append(Panel(where, "", "sum of rewards in a trial", {}, bars=bars))
    note = "The width of UCRL2's bounds is the best of a few, on other tasks."
    return Reproduction(verdicts, panels, (note,))


def mdp_totals(episodes: int, options: Options) -> dict[str, Totals]:
    def earned(plan: Plan, options: Options = options) -> Totals:
        def play(number: int, key: PRNGKeyArray) -> jax.Array:
            return play_mdps(plan, TabularMDP(), episodes, number, key)

        return played(play, options, MDP_TASKS[episodes])

    bounds: list[Plan] = [partial(ucrl2, width=width) for width in BOUNDS]
    if options.quick:
        bounds = bounds[:1]
    judge = lambda plan: earned(plan, elsewhere(options)).by_seed.mean()  # noqa: E731
    best = bounds[0] if len(bounds) == 1 else max(bounds, key=judge)
    named = {name: MDP_STRATEGIES[name] for name in ("random", "PSRL", "OPSRL")}
    return {name: earned(plan) for name, plan in (named | {"UCRL2": best}).items()}
