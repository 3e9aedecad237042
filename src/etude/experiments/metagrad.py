"""Learned γ and λ (arXiv 1805.09801): on a chain of noise and signal, and on CartPole."""

from typing import Any

import jax
import numpy as np

from etude import envs, rules
from etude.api import train
from etude.experiments.base import Options, Panel, Reproduction, Say, Verdict
from etude.meta.online import OnlineTraining
from etude.training.config import TrainRequest
from etude.training.iteration import rule_keys, seed_keys
from etude.training.presets import resolve

# --- The chain: does a γ for each state cut the noise? -------------------------------------------

WINDOWS = 10_000
CHAIN = TrainRequest(
    env="signal_chain",
    rule="metagrad:per_state=true,discount=0.9,td_lambda=0.999,tell=false,normalise=false",
    learn_rule=True,
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
    config = resolve(CHAIN, "metagrad")
    task = envs.make(config.env)
    training = OnlineTraining.create(task, config)
    make = rules.maker(config.rule, task.observation)
    pieces = 5 if options.quick else 50
    env: Any = task.env

    def piece(state, _):
        length = windows(options) // pieces
        state = jax.lax.fori_loop(0, length, lambda _, s: training.iterate(s)[0], state)
        return state, state.rule.coefficients(env.observations())

    def one_seed(rule_key, key):
        return jax.lax.scan(piece, training.init(make(rule_key), key), length=pieces)[1]

    keys = seed_keys(options.seed, options.seeds)
    found = jax.jit(jax.vmap(one_seed, out_axes=1))(rule_keys(keys), keys)
    return np.asarray(found), np.asarray(env.noisy())


def windows(options: Options) -> int:
    return 50 if options.quick else WINDOWS


def run_chain(options: Options, say: Say) -> Reproduction:
    say("A γ and a λ for each state of the chain…")
    coefficients, noisy = learned_coefficients(options)
    reached = np.arange(len(noisy)) > 0  # nothing leads to the first state
    before_noise = coefficients[:, :, noisy & reached].mean(axis=2)
    before_signal = coefficients[:, :, ~noisy].mean(axis=2)
    verdicts = [
        Verdict.about(
            f"{symbol} is smaller before noise than before the signal: difference at the end",
            (before_noise - before_signal)[-1, :, i],
            at_most=0.0,
        )
        for i, symbol in enumerate("γλ")
    ]
    verdicts.append(
        Verdict.about(
            "γ before the signal is kept: at the end above 0.9, where it started",
            before_signal[-1, :, 0],
            at_least=0.9,
        )
    )
    x = np.linspace(0, windows(options), len(coefficients) + 1)[1:]
    panels = [
        Panel(
            "signal_chain",
            "updates of γ and λ",
            f"learned {symbol}",
            {
                "before noise": (x, before_noise[..., i]),
                "before the signal": (x, before_signal[..., i]),
            },
        )
        for i, symbol in enumerate("γλ")
    ]
    return Reproduction(verdicts, panels)


# --- Control: does a poor γ get better? ----------------------------------------------------------

CARTPOLE = "gymnax/CartPole-v1"
GRID = (0.8, 0.9, 0.95, 0.99, 0.995)
CONTROL: dict[str, Any] = dict(
    batch=16, rollout=16, learning_rate=2e-3, torso=(64, 64), schedule="cosine"
)
MARGIN = 50.0
COSTS = "td_lambda=0.95,entropy_cost=0.01"


def run_control(options: Options, say: Say) -> Reproduction:
    steps = 20_000 if options.quick else 1_000_000

    def returns(rule: str, **settings: Any):
        say(f"{rule} on CartPole…")
        more: dict[str, Any] = dict(steps=steps, seeds=options.seeds, seed=options.seed)
        result = train(CARTPOLE, rule, **more | CONTROL | settings)
        final = np.array(result.summary["final_return"]["per_seed"], float)
        return result.curve, final

    curves, finals = {}, {}
    for gamma in GRID:
        rule = f"actor_critic:bins=0,discount={gamma},{COSTS}"
        curves[f"γ = {gamma}"], finals[gamma] = returns(rule)
    learned, final = returns(
        f"metagrad:discount=0.9,{COSTS}",
        outer=f"actor_critic:discount=0.99,{COSTS}",
        inner_updates=5,
        meta_learning_rate=3e-2,
    )
    best = max(GRID, key=lambda gamma: finals[gamma].mean())
    verdicts = [
        Verdict.about(
            f"Return no worse than with the best fixed γ, {best}, by {MARGIN:.0f} of 500 at the "
            "most: difference",
            final - finals[best],
            at_least=-MARGIN,
        ),
        Verdict.about(
            "Return better than with γ = 0.9, where it started: difference",
            final - finals[0.9],
            at_least=0.0,
        ),
    ]
    lines = {label: _by_seed(curve) for label, curve in curves.items()}
    lines["learned γ and λ, from γ = 0.9"] = _by_seed(learned)
    x = np.array([record["steps"] for record in learned], float)
    coefficients = {
        f"learned {symbol}": (x, np.array([record["learned"][name] for record in learned]))
        for symbol, name in (("γ", "gamma"), ("λ", "lambda"))
    }
    panels = [
        Panel(CARTPOLE, "environment steps", "return", lines),
        Panel("learned", "environment steps", "γ, λ", coefficients),
    ]
    return Reproduction(verdicts, panels)


def _by_seed(curve: list[dict[str, Any]]) -> tuple[np.ndarray, np.ndarray]:
    seen = [record for record in curve if np.isfinite(record["return"])]
    x = np.array([record["steps"] for record in seen], float)
    return x, np.array([record["returns"] for record in seen], float)
