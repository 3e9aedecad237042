"""FRODO's two small experiments (arXiv 2007.08433), and the seed's extension of it on both."""

from typing import Any

import numpy as np

from etude.api import train
from etude.experiments.base import (
    Options,
    Panel,
    Reproduction,
    Say,
    Verdict,
    at_the_end,
)
from etude.experiments.walk import (
    ITERATIONS_PER_SWITCH,
    best_fixed,
    by_switches,
    frodo_errors,
)

# --- Catch: does it learn to bootstrap? ----------------------------------------------------------

CATCH = "catch:rows=6,columns=11"
CEILING = 3 / 11
"""With three transitions and no bootstrapping, pellets of 7 of the 11 columns can be caught."""
RANDOM = -9 / 11
SHORT: dict[str, Any] = dict(batch=32, rollout=3, learning_rate=1e-3, torso=(128, 128))
# With less entropy, or a single layer, agents settle before they ever caught the outer columns.
COSTS = "entropy_cost=0.2"
CRITIC = f"actor_critic:bins=0,td_lambda=1,normalise=false,{COSTS}"
FRODO: dict[str, Any] = dict(
    # An episode has five steps, so that the outer trajectories are whole ones.
    inner_updates=5,
    outer_rollout=5,
    outer=f"actor_critic:td_lambda=1,{COSTS}",
    meta_learning_rate=1e-2,
)
STEPS = 1_000_000


def returns_on_catch(rule: str, options: Options, **settings: Any) -> tuple[np.ndarray, np.ndarray]:
    """Environment steps, and the mean return since the last point of each seed."""
    steps = 20_000 if options.quick else STEPS
    result = train(
        CATCH, rule, steps=steps, seeds=options.seeds, seed=options.seed, **SHORT | settings
    )
    x = np.array([record["steps"] for record in result.curve], float)
    return x, np.array([record["returns"] for record in result.curve], float)


def frodo_on_catch(options: Options, **settings: Any) -> tuple[np.ndarray, np.ndarray]:
    return returns_on_catch(f"frodo:{COSTS}", options, **FRODO | settings)


def run_catch(options: Options, say: Say) -> Reproduction:
    say("FRODO, with three transitions…")
    frodo = frodo_on_catch(options)
    say("The actor-critic, with three transitions and no bootstrapping…")
    blind = returns_on_catch(f"{CRITIC},bootstrap=false", options)
    say("The actor-critic, with three transitions and bootstrapping…")
    bootstrapping = returns_on_catch(CRITIC, options)
    end, blind_end = at_the_end(frodo[1]), at_the_end(blind[1])
    verdicts = [
        Verdict.about(
            "FRODO passes the ceiling of three steps without bootstrapping, 0.273",
            end,
            at_least=CEILING,
        ),
        Verdict.about("FRODO reaches 0.9", end, at_least=0.9),
        Verdict.about(
            "The actor-critic without bootstrapping stays at or below 0.273",
            blind_end,
            at_most=CEILING,
        ),
    ]
    lines = {
        "FRODO": frodo,
        "actor-critic": bootstrapping,
        "actor-critic, no bootstrapping": blind,
    }
    levels = {"ceiling without bootstrapping": CEILING, "random": RANDOM}
    panel = Panel(CATCH, "environment steps", "return", lines, levels)
    return Reproduction(verdicts, [panel])


# --- The random walk: does it follow a world that changes? ---------------------------------------


def run_walk(options: Options, say: Say) -> Reproduction:
    frodo = frodo_errors(options, say)
    fixed, setting = best_fixed(options, say)
    gain = cycles(frodo) - cycles(fixed)
    switches = len(frodo) // ITERATIONS_PER_SWITCH
    early = (frodo - fixed)[: 20 * ITERATIONS_PER_SWITCH]
    verdicts = [
        Verdict.about(
            f"FRODO's value error is below that of the best fixed TD(λ) ({setting}): difference of "
            f"the means over switches {switches // 2} to {switches}",
            gain.mean(axis=0),
            at_most=0.0,
        ),
        Verdict.about(
            "It falls faster after a switch: the same difference 96 steps after it",
            gain[0],
            at_most=0.0,
        ),
        Verdict.about(
            "It is below already over the first 20 switches, while its network is learned",
            early.mean(axis=0),
            at_most=0.0,
        ),
    ]
    lines = {"FRODO": frodo, f"TD(λ), {setting}": fixed}
    whole = Panel(
        "random_walk", "switches", "value error", {k: by_switches(v) for k, v in lines.items()}
    )
    return Reproduction(verdicts, [whole, after_a_switch(lines)])


def cycles(errors: np.ndarray) -> np.ndarray:
    """The mean course of the error between two switches, over the second half: 10 × seeds."""
    late = errors[len(errors) // 2 :]
    return late.reshape(-1, ITERATIONS_PER_SWITCH, errors.shape[1]).mean(axis=0)


def after_a_switch(lines: dict[str, np.ndarray]) -> Panel:
    x = np.arange(1.0, ITERATIONS_PER_SWITCH + 1)
    courses = {label: (x, cycles(errors)) for label, errors in lines.items()}
    return Panel("after a switch", "iterations (96 steps)", "value error", courses)


# --- The extension -------------------------------------------------------------------------------

REVISE = 1.0


def run_extension(options: Options, say: Say) -> Reproduction:
    say("FRODO on Catch, plain and revised…")
    x, plain = frodo_on_catch(options)
    _, revised = frodo_on_catch(options, revise=REVISE)
    verdicts = compared("Catch, return", revised - plain, margin=0.05)
    catch = Panel(
        CATCH,
        "environment steps",
        "return",
        {"FRODO": (x, plain), "with the revision": (x, revised)},
    )
    plain = frodo_errors(options, say)
    revised = frodo_errors(options, say, revise=REVISE)
    verdicts += compared("random walk, negative value error", plain - revised, margin=0.01)
    walk = Panel(
        "random_walk",
        "switches",
        "value error",
        {"FRODO": by_switches(plain), "with the revision": by_switches(revised)},
    )
    return Reproduction(verdicts, [catch, walk])


def compared(what: str, gain: np.ndarray, margin: float) -> list[Verdict]:
    """The gain by seed in the first fifth, and at the end, where a loss of up to the margin, for
    all of its interval, is none."""
    fifth = max(1, len(gain) // 5)
    return [
        Verdict.about(
            f"The extension is better in the first fifth ({what}: difference)",
            np.nanmean(gain[:fifth], axis=0),
            at_least=0.0,
        ),
        Verdict.about(
            f"The extension is no worse at the end, by {margin} at the most ({what}: difference)",
            at_the_end(gain),
            at_least=-margin,
        ),
    ]
