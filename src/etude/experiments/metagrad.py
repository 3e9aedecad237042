"""Learned γ and λ (arXiv 1805.09801): on a chain of noise and signal, and on CartPole."""

import jax
import numpy as np
from jaxtyping import Array

from etude.api import train
from etude.envs.signal_chain import SignalChain
from etude.experiments.base import Options, Panel, Reproduction, Say, Verdict
from etude.experiments.online import followed
from etude.meta.online import OnlineState, OnlineTraining
from etude.runs.figures import column, curve_arrays
from etude.runs.folder import Record
from etude.settings import Settings

# --- The chain: does a γ for each state cut the noise? -------------------------------------------

WINDOWS = 10_000
CHAIN: Settings = dict(
    env="signal_chain",
    rule="metagrad:per_state=true,discount=0.9,td_lambda=0.999,tell=false,normalise=false",
    outer="actor_critic:discount=1,td_lambda=1,normalise=false",
    # One trajectory and a large step: what it costs to look ahead to noise must be felt.
    batch=1,
    rollout=10,
    inner_updates=1,
    torso=(32,),
    optimiser="sgd",
    learning_rate=0.3,
    meta_learning_rate=3e-2,
)


def learned_coefficients(options: Options) -> tuple[np.ndarray, np.ndarray]:
    """γ and λ of each state after each piece of training (pieces × seeds × states × 2), and which
    states come before noise."""
    env, pieces = SignalChain(), 5 if options.quick else 50

    def follow(training: OnlineTraining, state: OnlineState) -> Array:
        def piece(state, _):
            length = windows(options) // pieces
            state = jax.lax.fori_loop(0, length, lambda _, s: training.iterate(s)[0], state)
            return state, state.rule.coefficients(env.observations())

        return jax.lax.scan(piece, state, length=pieces)[1]

    return followed(CHAIN, options, follow), np.asarray(env.noisy())


def windows(options: Options) -> int:
    return 50 if options.quick else WINDOWS


def run_chain(options: Options, say: Say) -> Reproduction:
    say("A γ and a λ for each state of the chain…")
    coefficients, noisy = learned_coefficients(options)
    reached = np.arange(len(noisy)) > 0  # nothing leads to the first state
    before_noise = coefficients[:, :, noisy & reached].mean(axis=2)
    before_signal = coefficients[:, :, ~noisy].mean(axis=2)
    difference = (before_noise - before_signal)[-1]
    smaller = "{} is smaller before noise than before the signal: difference at the end"
    kept = "γ before the signal is kept: at the end above 0.9, where it started"
    verdicts = [
        Verdict.about(smaller.format("γ"), difference[:, 0], at_most=0.0),
        Verdict.about(smaller.format("λ"), difference[:, 1], at_most=0.0),
        Verdict.about(kept, before_signal[-1, :, 0], at_least=0.9),
    ]
    x = np.linspace(0, windows(options), len(coefficients) + 1)[1:]
    by_label = {"before noise": before_noise, "before the signal": before_signal}
    panels = [
        Panel(
            "signal_chain",
            "updates of γ and λ",
            f"learned {symbol}",
            {label: (x, learned[..., i]) for label, learned in by_label.items()},
        )
        for i, symbol in enumerate("γλ")
    ]
    return Reproduction(verdicts, panels)


# --- Control: does a poor γ get better? ----------------------------------------------------------

CARTPOLE = "gymnax/CartPole-v1"
GRID = (0.8, 0.9, 0.95, 0.99, 0.995)
CONTROL: Settings = dict(
    batch=16, rollout=16, learning_rate=2e-3, torso=(64, 64), schedule="cosine"
)
LEARNED: Settings = dict(inner_updates=5, meta_learning_rate=3e-2)
MARGIN = 50.0
COSTS = "td_lambda=0.95,entropy_cost=0.01"


def run_control(options: Options, say: Say) -> Reproduction:
    steps = 20_000 if options.quick else 1_000_000
    shared = CONTROL | dict(steps=steps, seeds=options.seeds, seed=options.seed)

    def returns(rule: str, settings: Settings) -> tuple[list[Record], np.ndarray]:
        say(f"{rule} on CartPole…")
        result = train(CARTPOLE, rule, **settings)
        return result.curve, np.array(result.summary["final_return"]["per_seed"], float)

    curves, finals = {}, {}
    for gamma in GRID:
        rule = f"actor_critic:bins=0,discount={gamma},{COSTS}"
        curves[f"γ = {gamma}"], finals[gamma] = returns(rule, shared)
    outer = f"actor_critic:discount=0.99,{COSTS}"
    learned, final = returns(f"metagrad:discount=0.9,{COSTS}", shared | LEARNED | {"outer": outer})
    curves["learned γ and λ, from γ = 0.9"] = learned
    best = max(GRID, key=lambda gamma: finals[gamma].mean())
    no_worse = f"Return no worse than with the best fixed γ, {best}, by {MARGIN:.0f} of 500 at the "
    better = "Return better than with γ = 0.9, where it started: difference"
    verdicts = [
        Verdict.about(f"{no_worse}most: difference", final - finals[best], at_least=-MARGIN),
        Verdict.about(better, final - finals[0.9], at_least=0.0),
    ]
    lines = {label: curve_arrays(curve) for label, curve in curves.items()}
    told = [record["learned"] for record in learned]
    coefficients = {
        f"learned {symbol}": (column(learned, "steps"), column(told, name))
        for symbol, name in (("γ", "gamma"), ("λ", "lambda"))
    }
    panels = [
        Panel(CARTPOLE, "environment steps", "return", lines),
        Panel("learned", "environment steps", "γ, λ", coefficients),
    ]
    return Reproduction(verdicts, panels)
