"""FRODO's two small experiments (arXiv 2007.08433), and the seed's extension of it on both."""

import dataclasses
import itertools
from collections.abc import Callable

import numpy as np

from etude.api import train
from etude.experiments.base import Line, Options, Panel, Reproduction, Say, Verdict, at_the_end
from etude.experiments.walk import (
    ENV,
    ITERATIONS_PER_SWITCH,
    NONE,
    Revision,
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
WHOLE = 5
"""Transitions of an episode."""
# With less entropy, or a single layer, agents settle before they ever caught the outer columns.
COSTS = "entropy_cost=0.2"
CRITIC = f"actor_critic:bins=0,td_lambda=1,normalise=false,{COSTS}"
FRODO: Settings = dict(
    inner_updates=5,
    outer_rollout=WHOLE,
    outer=f"actor_critic:td_lambda=1,{COSTS}",
    meta_learning_rate=1e-2,
)
EQUAL = FRODO | dict(outer_rollout=3, outer=f"actor_critic:td_lambda=1,normalise=false,{COSTS}")
EPSILON = "epsilon_updates=2000"
FRODO_Q: Settings = dict(
    inner_updates=5, outer_rollout=WHOLE, outer="q_learning:td_lambda=1", meta_learning_rate=1e-2
)
STEPS = 1_000_000
EVEN = 0.05
"""A return that is lower by this is still no worse."""


def returns_on_catch(
    rule: str, options: Options, settings: Settings | None = None, share: float = 1.0
) -> Line:
    """Environment steps, and the mean return since the last point of each seed."""
    steps = round(share * (20_000 if options.quick else STEPS))
    more = SHORT | (settings or {})
    result = train(CATCH, rule, steps=steps, seeds=options.seeds, seed=options.seed, **more)
    return curve_arrays(result.curve)


def frodo_on_catch(options: Options, revision: Revision = NONE, share: float = 1.0) -> Line:
    return returns_on_catch(f"frodo:{COSTS}", options, FRODO | revision._asdict(), share)


def catch_panel(lines: dict[str, Line], levels: dict[str, float]) -> Panel:
    return Panel(CATCH, "environment steps", "return", lines, levels)


PLAYERS: dict[str, tuple[str, Settings]] = {
    "FRODO, outer loss like the actor-critic's": (f"frodo:{COSTS}", EQUAL),
    "actor-critic": (CRITIC, {}),
    "actor-critic, no bootstrapping": (f"{CRITIC},bootstrap=false", {}),
    "actor-critic, whole episodes": (f"{CRITIC},bootstrap=false", dict(rollout=WHOLE)),
}
BY_VALUES: dict[str, tuple[str, Settings]] = {
    "FRODO for action values": (f"frodo_q:{EPSILON}", FRODO_Q),
    "Q(λ)": (f"q_learning:{EPSILON}", {}),
    "Q(λ), whole episodes": (f"q_learning:{EPSILON}", dict(rollout=WHOLE)),
}
SEEN = (
    "All learn from 3 transitions at a time, but those of whole episodes, which have 5. FRODO's "
    "outer loss is that of an actor-critic with normalised advantages on whole episodes; where it "
    "is like the actor-critic's, it sees 3 transitions, bootstraps, and normalises nothing.",
    "All see the same board; FRODO's network sees rewards, discounts and values only. Its steps "
    "include those of the outer loss.",
)


def run_catch(options: Options, say: Say) -> Reproduction:
    say("FRODO, with three transitions…")
    lines = {"FRODO": frodo_on_catch(options)}
    for label, (rule, settings) in {**PLAYERS, **BY_VALUES}.items():
        say(f"{label}…")
        lines[label] = returns_on_catch(rule, options, settings)
    panels = [
        catch_panel({label: lines[label] for label in ("FRODO", *PLAYERS)}, LEVELS),
        catch_panel({label: lines[label] for label in BY_VALUES}, LEVELS),
    ]
    end = {label: at_the_end(line[1]) for label, line in lines.items()}
    return Reproduction(catch_verdicts(end), panels, SEEN)


LEVELS = {"ceiling without bootstrapping": CEILING, "random": RANDOM}


def catch_verdicts(end: dict[str, np.ndarray]) -> list[Verdict]:
    """From the return of each seed at the end."""
    equal, values = "FRODO, outer loss like the actor-critic's", "FRODO for action values"
    passes = "{} passes the ceiling of three steps without bootstrapping, 0.273"
    even = "{} ends no lower than {}, by {} at the most: difference"
    blind = "actor-critic, no bootstrapping"
    return [
        *(Verdict.about(passes.format(x), end[x], CEILING) for x in ("FRODO", equal, values)),
        *(Verdict.about(f"{x} reaches 0.9", end[x], 0.9) for x in ("FRODO", equal, values)),
        Verdict.about(f"The {blind}, stays at or below 0.273", end[blind], at_most=CEILING),
        *(
            Verdict.about(even.format(a, b, EVEN), end[a] - end[b], -EVEN)
            for a, b in ((equal, "actor-critic"), ("FRODO", "actor-critic, whole episodes"))
        ),
        Verdict.about(even.format(values, "Q(λ)", EVEN), end[values] - end["Q(λ)"], -EVEN),
    ]


# --- The random walk: does it follow a world that changes? ---------------------------------------


def run_walk(options: Options, say: Say) -> Reproduction:
    say("FRODO on the random walk…")
    frodo = frodo_errors(options)
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

REVISIONS = tuple(Revision(*x) for x in itertools.product((0.1, 0.3, 1.0, 3.0), (True, False)))
CHOOSING_SEEDS = 4
AWAY = 500_000
"""Seeds that a revision is chosen on are so far from those that are shown."""
EARLY = 0.2
"""The share of training in which the extension is said to be better."""
Score = Callable[[Options, Revision], np.ndarray]
"""How good the first part of training is with a revision, for each seed."""


def run_extension(options: Options, say: Say) -> Reproduction:
    say("FRODO on Catch, with revisions of several weights…")
    revision, catch_bars = chosen(options, early_return)
    plain, revised = frodo_on_catch(options), frodo_on_catch(options, revision)
    verdicts = compared(f"Catch, {named(revision)}, return", revised[1] - plain[1], margin=EVEN)
    catch = catch_panel({"FRODO": plain, named(revision): revised}, {})
    say("FRODO on the random walk, with revisions of several weights…")
    on_walk, walk_bars = chosen(options, lambda o, r: -frodo_errors(o, r, EARLY).mean(axis=0))
    before, after = frodo_errors(options), frodo_errors(options, on_walk)
    verdicts += compared(
        f"random walk, {named(on_walk)}, negative value error", before - after, margin=0.01
    )
    walk = walk_panel({"FRODO": before, named(on_walk): after})
    bars = [
        Panel("Catch, seeds to choose on", "", "early return", {}, bars=catch_bars),
        Panel("walk, seeds to choose on", "", "early value error, negative", {}, bars=walk_bars),
    ]
    note = (
        f"The weight was chosen on {CHOOSING_SEEDS} other seeds, from the first fifth of training."
    )
    return Reproduction(verdicts, [catch, walk, *bars], (note,))


def early_return(options: Options, revision: Revision) -> np.ndarray:
    return np.nanmean(frodo_on_catch(options, revision, EARLY)[1], axis=0)


def named(revision: Revision) -> str:
    if not revision.revise:
        return "none"
    return f"b₁ = {revision.revise:g}{'' if revision.revise_fades else ', constant'}"


def chosen(options: Options, score: Score) -> tuple[Revision, dict[str, np.ndarray]]:
    """The best revision on seeds that are not shown, and how good each is there."""
    elsewhere = dataclasses.replace(options, seed=options.seed + AWAY, seeds=CHOOSING_SEEDS)
    revisions = REVISIONS[:1] if options.quick else REVISIONS
    found = {revision: score(elsewhere, revision) for revision in (NONE, *revisions)}
    best = max(revisions, key=lambda revision: found[revision].mean())
    return best, {named(revision): x for revision, x in found.items()}


def compared(what: str, gain: np.ndarray, margin: float) -> list[Verdict]:
    """The gain by seed in the first fifth, and at the end, where a loss of up to the margin, for
    all of its interval, is none."""
    early = np.nanmean(gain[: max(1, round(EARLY * len(gain)))], axis=0)
    better = f"The extension is better in the first fifth ({what}: difference)"
    no_worse = f"The extension is no worse at the end, by {margin} at the most ({what}: difference)"
    return [
        Verdict.about(better, early, at_least=0.0),
        Verdict.about(no_worse, at_the_end(gain), at_least=-margin),
    ]
