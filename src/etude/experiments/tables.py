"""RL² and MAML on bandits and tabular MDPs (Duan et al. 2016, arXiv 1611.02779, tables 1 and 2;
MAML's figures are those that Mishra et al. 2018, arXiv 1707.03141, print beside them)."""

import jax
import numpy as np
from jaxtyping import Array, Float, PyTree

from etude.adaptation.by_gradient import ByGradient
from etude.adaptation.config import AdaptConfig
from etude.adaptation.method import draw_tasks
from etude.experiments.base import Options, Panel, Reproduction, Say, Verdict
from etude.experiments.classic import BANDITS, MDPS, Figures
from etude.experiments.trainings import Trained, Training, train_all
from etude.settings import Settings

FRESH_TASKS = 16_384
"""That each seed's policy is judged by on short trials; fewer on long ones."""
SEEN = "It sees products of observation, action and reward, and its memory is gated."
DRAWN = "RL² is paid what was drawn, not its mean (`expected` is off)."
EXPECTED = "RL² is paid the mean of each reward (`--expected`), and sees what was drawn."


def trials(tasks: str, steps: int, options: Options, **settings: object) -> AdaptConfig:
    """RL² as a strategy: all of a trial counts, and no task is met twice."""
    shared: Settings = dict(seed=options.seed, seeds=options.seeds, explore=0) | settings
    if options.quick:
        shared |= dict(batch=8, minibatches=1, hidden=8)
        steps = 1
    return AdaptConfig(algo="rl2", tasks=tasks, steps=steps, **shared)


def learned(where: str, by_seed: np.ndarray, printed: float, who: str = "RL²") -> Verdict:
    """With all of its interval, it must be within 2% of what was printed, or above."""
    claim = f"{where}: {who} earns {printed}, 2% less, or more"
    return Verdict.about(claim, by_seed, at_least=0.98 * printed)


def compared(
    where: str, training: Trained, printed: Figures, options: Options
) -> tuple[Verdict, Panel]:
    """What is earned in whole trials, in the mean over fresh tasks."""
    episodes = training.config.episodes or 1
    length = episodes * training.parts[0].run.method.env.horizon
    tasks = 64 if options.quick else min(FRESH_TASKS, 100 * FRESH_TASKS // length)
    ours = episodes * training.judge(tasks)[1]
    steps, returns = training.curve()
    lines = {"RL²": (steps, episodes * returns)}
    levels = {f"{name}, printed": x for name, x in printed.items()}
    panel = Panel(where, "environment steps", "sum of rewards in a trial", lines, levels)
    return learned(where, ours, printed["RL²"]), panel


def judged(
    configs: dict[str, AdaptConfig],
    printed: dict[str, Figures],
    options: Options,
    say: Say,
    notes: tuple[str, ...],
) -> Reproduction:
    trained = train_all(configs, say)
    found = [compared(where, x, printed[where], options) for where, x in trained.items()]
    return Reproduction([verdict for verdict, _ in found], [panel for _, panel in found], notes)


# --- Bandits -------------------------------------------------------------------------------------

BANDIT_STEPS = {10: 4_000_000, 100: 8_000_000, 500: 16_000_000}
LEARNING: Settings = dict(associative=True, learning_rate=3e-3, schedule="cosine", minibatches=4)
BANDIT_SETTINGS = LEARNING | dict(batch=256, discount=0.995, td_lambda=0.95)


def bandit_trials(options: Options, expected: bool) -> tuple[dict[str, AdaptConfig], dict]:
    configs, printed = {}, {}
    for (n, k), figures in BANDITS.items():
        where, tasks = f"n={n}, k={k}", f"bandit:arms={k},pulls={n}"
        settings = BANDIT_SETTINGS | dict(episodes=1, expected=expected)
        configs[where] = trials(tasks, BANDIT_STEPS[n], options, **settings)
        printed[where] = figures
    return configs, printed


def run_bandits(options: Options, say: Say) -> Reproduction:
    return judged(*bandit_trials(options, expected=False), options, say, (DRAWN, SEEN))


# --- MDPs ----------------------------------------------------------------------------------------

MDP_STEPS = 20_000_000
MDP_SETTINGS = LEARNING | dict(batch=128, hidden=128)
MDP_SETTINGS |= dict(discount=0.7, td_lambda=0.3, entropy_cost=0.02)
DISCOUNT = f"Its discount is {MDP_SETTINGS['discount']}, not 0.99."


def mdp_trials(options: Options, expected: bool) -> tuple[dict[str, AdaptConfig], dict]:
    configs, printed = {}, {}
    for n, figures in MDPS.items():
        settings = MDP_SETTINGS | dict(episodes=n, expected=expected)
        configs[f"n={n}"] = trials("tabular_mdp", MDP_STEPS, options, **settings)
        printed[f"n={n}"] = figures
    return configs, printed


def run_mdps(options: Options, say: Say) -> Reproduction:
    return judged(*mdp_trials(options, expected=False), options, say, (DRAWN, SEEN, DISCOUNT))


def run_expected(options: Options, say: Say) -> Reproduction:
    """Both, paid expected rewards, to set beside those that were paid what was drawn."""
    (configs, printed), (more, also) = (f(options, True) for f in (bandit_trials, mdp_trials))
    mdps = {f"MDPs, {x}": config for x, config in more.items()}
    also = {f"MDPs, {x}": figures for x, figures in also.items()}
    return judged(configs | mdps, printed | also, options, say, (EXPECTED, SEEN, DISCOUNT))


# --- MAML on bandits -----------------------------------------------------------------------------

MAML: dict[tuple[int, int], float] = {(10, 5): 6.5, (100, 5): 67.1}
"""The printed sums of rewards, by pulls and arms."""
PARTS = 5
"""A trial's pulls in equal parts, between which the policy takes a step of adaptation."""
MAML_STEPS = {10: 4_000_000, 100: 8_000_000}
MAML_SETTINGS: Settings = dict(
    episodes=1, inner_steps=PARTS - 1, learn_rates=True, batch=256, torso=(32,), discount=1.0
)


def run_maml(options: Options, say: Say) -> Reproduction:
    configs = {f"n={n}, k={k}": maml_trials(k, n, options) for n, k in MAML}
    verdicts, bars = [], {}
    for (where, training), printed in zip(
        train_all(configs, say).items(), MAML.values(), strict=True
    ):
        number = 64 if options.quick else FRESH_TASKS // 4
        bars[where] = np.array([earned(part, number) for part in training.parts])
        verdicts.append(learned(where, bars[where], printed, "MAML"))
    notes = (
        f"A trial has {PARTS} parts of equal length, and a step of adaptation after all but the "
        "last; our sources do not say how the printed figures were had.",
        "The settings were not tuned.",
    )
    panel = Panel("MAML", "", "sum of rewards in a trial", {}, bars=bars)
    return Reproduction(verdicts, [panel], notes)


def maml_trials(arms: int, pulls: int, options: Options) -> AdaptConfig:
    settings: Settings = MAML_SETTINGS | dict(seed=options.seed, seeds=options.seeds)
    steps = MAML_STEPS[pulls]
    if options.quick:
        settings |= dict(batch=4)
        steps = 1
    tasks = f"bandit:arms={arms},pulls={pulls // PARTS}"
    return AdaptConfig(algo="maml", tasks=tasks, steps=steps, **settings)


def earned(part: Training, number: int) -> float:
    """In whole trials, what is pulled to adapt among them, in the mean over fresh tasks."""
    method = part.run.method
    assert isinstance(method, ByGradient)
    task_key, key = jax.random.split(jax.random.key(part.run.config.seed))

    def play(policies: PyTree) -> Float[Array, ""]:
        policy = jax.tree.map(lambda x: x[0], policies)
        played, _ = method.collect(policy, draw_tasks(method.env, task_key, number), key)
        return total(played.inner.returns, played.outer.returns)

    return float(jax.jit(play)(part.policies))


def total(inner: Float[Array, "tasks steps 1"], outer: Float[Array, "tasks 1"]) -> Float[Array, ""]:
    """Of all parts of a trial, in the mean over tasks."""
    return (inner.sum(axis=(1, 2)) + outer.sum(axis=1)).mean()
