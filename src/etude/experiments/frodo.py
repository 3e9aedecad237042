"""FRODO's two small experiments (arXiv 2007.08433), and the seed's extension of it on both."""

import numpy as np

from etude.api import train
from etude.experiments.base import Line, Options, Panel, Reproduction, Say, Verdict, at_the_end
from etude.experiments.walk import (
    ENV,
    ITERATIONS_PER_SWITCH,
    best_fixed,
    by_switches,
    frodo_errors,
    late,
)
from etude.runs.figures import curve_arrays
from etude.settings import Settings

# --- Catch: does it learn to bootstrap? ----------------------------------------------------------

CATCH = "catch:rows=6,columns=11"
CEILING = 3 / 11
"""With three transitions and no bootstrapping, pellets of 7 of the 11 columns can be caught."""
RANDOM = -9 / 11
SHORT: Settings = dict(batch=32, rollout=3, learning_rate=1e-3, torso=(128, 128))
# With less entropy, or a single layer, agents settle before they ever caught the outer columns.
COSTS = "entropy_cost=0.2"
CRITIC = f"actor_critic:bins=0,td_lambda=1,normalise=false,{COSTS}"
FRODO: Settings = dict(
    # An episode has five steps, so that the outer trajectories are whole ones.
    inner_updates=5,
    outer_rollout=5,
    outer=f"actor_critic:td_lambda=1,{COSTS}",
    meta_learning_rate=1e-2,
)
STEPS = 1_000_000


def returns_on_catch(rule: str, options: Options, settings: Settings | None = None) -> Line:
    """Environment steps, and the mean return since the last point of each seed."""
    steps = 20_000 if options.quick else STEPS
    more = SHORT | (settings or {})
    result = train(CATCH, rule, steps=steps, seeds=options.seeds, seed=options.seed, **more)
    return curve_arrays(result.curve)


def frodo_on_catch(options: Options, revise: float = 0.0) -> Line:
    return returns_on_catch(f"frodo:{COSTS}", options, FRODO | dict(revise=revise))


def catch_panel(lines: dict[str, Line], levels: dict[str, float]) -> Panel:
    return Panel(CATCH, "environment steps", "return", lines, levels)


def run_catch(options: Options, say: Say) -> Reproduction:
    say("FRODO, with three transitions…")
    frodo = frodo_on_catch(options)
    say("The actor-critic, with three transitions and no bootstrapping…")
    blind = returns_on_catch(f"{CRITIC},bootstrap=false", options)
    say("The actor-critic, with three transitions and bootstrapping…")
    bootstrapping = returns_on_catch(CRITIC, options)
    end, blind_end = at_the_end(frodo[1]), at_the_end(blind[1])
    passes = "FRODO passes the ceiling of three steps without bootstrapping, 0.273"
    stays = "The actor-critic without bootstrapping stays at or below 0.273"
    verdicts = [
        Verdict.about(passes, end, at_least=CEILING),
        Verdict.about("FRODO reaches 0.9", end, at_least=0.9),
        Verdict.about(stays, blind_end, at_most=CEILING),
    ]
    lines = {"FRODO": frodo, "actor-critic": bootstrapping, "actor-critic, no bootstrapping": blind}
    levels = {"ceiling without bootstrapping": CEILING, "random": RANDOM}
    return Reproduction(verdicts, [catch_panel(lines, levels)])


# --- The random walk: does it follow a world that changes? ---------------------------------------


def run_walk(options: Options, say: Say) -> Reproduction:
    frodo = frodo_errors(options, say)
    fixed, setting = best_fixed(options, say)
    gain = cycles(frodo) - cycles(fixed)
    switches = len(frodo) // ITERATIONS_PER_SWITCH
    early = (frodo - fixed)[: 20 * ITERATIONS_PER_SWITCH]
    by_claim = {
        f"FRODO's value error is below that of the best fixed TD(λ) ({setting}): difference of "
        f"the means over switches {switches // 2} to {switches}": gain.mean(axis=0),
        "It falls faster after a switch: the same difference 96 steps after it": gain[0],
        "It is below already over the first 20 switches, while its network is learned": early.mean(
            axis=0
        ),
    }
    verdicts = [Verdict.about(claim, x, at_most=0.0) for claim, x in by_claim.items()]
    lines = {"FRODO": frodo, f"TD(λ), {setting}": fixed}
    return Reproduction(verdicts, [walk_panel(lines), after_a_switch(lines)])


def walk_panel(errors: dict[str, np.ndarray]) -> Panel:
    return Panel(ENV, "switches", "value error", {k: by_switches(v) for k, v in errors.items()})


def cycles(errors: np.ndarray) -> np.ndarray:
    """The mean course of the error between two switches, over the second half: 10 × seeds."""
    return late(errors).reshape(-1, ITERATIONS_PER_SWITCH, errors.shape[1]).mean(axis=0)


def after_a_switch(lines: dict[str, np.ndarray]) -> Panel:
    x = np.arange(1.0, ITERATIONS_PER_SWITCH + 1)
    courses = {label: (x, cycles(errors)) for label, errors in lines.items()}
    return Panel("after a switch", "iterations (96 steps)", "value error", courses)


# --- The extension -------------------------------------------------------------------------------

REVISE = 1.0


def run_extension(options: Options, say: Say) -> Reproduction:
    say("FRODO on Catch, plain and revised…")
    plain, revised = frodo_on_catch(options), frodo_on_catch(options, REVISE)
    verdicts = compared("Catch, return", revised[1] - plain[1], margin=0.05)
    catch = catch_panel({"FRODO": plain, "with the revision": revised}, {})
    before, after = frodo_errors(options, say), frodo_errors(options, say, REVISE)
    verdicts += compared("random walk, negative value error", before - after, margin=0.01)
    walk = walk_panel({"FRODO": before, "with the revision": after})
    return Reproduction(verdicts, [catch, walk])


def compared(what: str, gain: np.ndarray, margin: float) -> list[Verdict]:
    """The gain by seed in the first fifth, and at the end, where a loss of up to the margin, for
    all of its interval, is none."""
    early = np.nanmean(gain[: max(1, len(gain) // 5)], axis=0)
    better = f"The extension is better in the first fifth ({what}: difference)"
    no_worse = f"The extension is no worse at the end, by {margin} at the most ({what}: difference)"
    return [
        Verdict.about(better, early, at_least=0.0),
        Verdict.about(no_worse, at_the_end(gain), at_least=-margin),
    ]
