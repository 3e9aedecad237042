"""DiscoRL as released: Disco103 on Catch, a rule discovered from nothing, and what predictions
tell."""

import itertools

import numpy as np

from etude.api import discover, train
from etude.experiments.base import APART, Options, Panel, Reproduction, Say, Verdict, at_the_end
from etude.inspection.inspect import Inspection, inspect, subject
from etude.inspection.targets import HEADS
from etude.runs.figures import column, curve_arrays
from etude.settings import Settings

RULE = "disco103"

# --- Disco103 on Catch ----------------------------------------------------------------------------

SOLVED = 0.95
CATCH_UPDATES = 1000
NEW_PER_UPDATE = 56
"""Environment steps: two environments, 28 transitions."""
FILLING = 32
"""Rollouts before the first update."""


def run_catch(options: Options, say: Say) -> Reproduction:
    say("Disco103 on Catch of 8×8, as in the released notebook…")
    updates = 8 if options.quick else CATCH_UPDATES
    steps = NEW_PER_UPDATE * (updates + FILLING)
    result = train("catch", RULE, steps=steps, seeds=options.seeds, seed=options.seed)
    x, returns = curve_arrays(result.curve)
    done = x / NEW_PER_UPDATE - FILLING
    passed = np.array([first_above(done, curve, SOLVED, float(updates)) for curve in returns.T])
    verdicts = [
        Verdict.about("Catch is solved: return at the end", at_the_end(returns), at_least=SOLVED),
        Verdict.about(
            f"{SOLVED} is passed within {updates} updates", passed, at_most=float(updates)
        ),
    ]
    panel = Panel("catch", "updates", "return", {"Disco103": (done, returns)}, {"solved": 1.0})
    return Reproduction(verdicts, [panel])


def first_above(x: np.ndarray, curve: np.ndarray, level: float, otherwise: float) -> float:
    """Where a curve first reaches a level."""
    above = np.flatnonzero(curve >= level)
    return float(x[above[0]]) if len(above) else otherwise


# --- The released meta-training -------------------------------------------------------------------

CHANCE = -0.6 / 4
"""Mean reward of a transition: a random policy catches one pellet in five, each after 4 steps."""
BRIEF: Settings = dict(meta_steps=4, check_every=4, check_updates=4, log_every=1, size="tiny")
BRIEF |= dict(torso=(16,), model=16, head=16, batch=8, validation_batch=8, rollout=4, check_seeds=2)


def run_meta_train(options: Options, say: Say) -> Reproduction:
    results = []
    for i in range(options.seeds):
        say(f"Discovery {i + 1} of {options.seeds}…")
        seed = options.seed * APART + i
        results.append(discover(preset="notebook", seed=seed, **BRIEF if options.quick else {}))
    x = column(results[0].curve, "updates")
    reward = np.stack([column(result.curve, "reward") for result in results], axis=1)
    end, gain = at_the_end(reward), [gain_over_start(x.summary["final_check"]) for x in results]
    grown = end - at_the_end(reward[::-1])
    fresh = "Fresh agents return more under the rule than under its start: difference"
    verdicts = [
        Verdict.about("The population's mean reward rises: end − beginning", grown, at_least=0.0),
        Verdict.about("It ends above chance, −0.15", end, at_least=CHANCE),
        Verdict.about(fresh, np.array(gain), at_least=0.0),
    ]
    lines = {"mean reward of the population": (x, reward)}
    panel = Panel("the released meta-training", "meta-steps", "reward", lines, {"chance": CHANCE})
    notes = (
        "The rule kept is the best of the start and two checks; fresh agents are on other seeds.",
        "Validation rollouts are played in environments of their own.",
    )
    return Reproduction(verdicts, [panel], notes)


def gain_over_start(check: dict) -> float:
    """Of fresh agents, in the mean over environments."""
    pairs = [(x["mean"], check["start"][name]["mean"]) for name, x in check["returns"].items()]
    return float(np.mean([rule - start for rule, start in pairs]))


# --- What predictions tell ------------------------------------------------------------------------

HALFWAY = NEW_PER_UPDATE * (600 + FILLING)
"""Agents that still make mistakes: once all is caught, there is less to predict."""
PLAIN = ("return", "next reward", "value of the next state", "entropy now")
"""What is shown, too, but not judged: the source claims nothing of it."""
AHEAD = (1, 2, 4)


def run_predictions(options: Options, say: Say) -> Reproduction:
    say("Agents that learn Catch under Disco103…")
    steps = NEW_PER_UPDATE * (FILLING + 4) if options.quick else HALFWAY
    agents = subject(RULE, dict(env="catch", steps=steps, seeds=options.seeds, seed=options.seed))
    found = inspect(agents, 64 if options.quick else 256, 32, options.seed, say)
    return Reproduction(prediction_verdicts(found), prediction_panels(found))


def prediction_verdicts(found: Inspection) -> list[Verdict]:
    """y and z are judged one by one: the better of two, agent by agent, would be favoured by
    chance."""
    events = (*(f"large reward within {k}" for k in AHEAD), *(f"entropy in {k}" for k in AHEAD))
    verdicts = []
    for name, ours, other in itertools.product(events, ("y", "z"), ("value", "policy")):
        gain = found.probes[name][ours] - found.probes[name][other]
        if np.isfinite(gain).all():
            claim = f"{ours} tells more of {name} steps than the {other}: difference of R²"
            verdicts.append(Verdict.about(claim, gain, at_least=0.0))
    last = np.flatnonzero(np.isfinite(found.horizon).all(axis=(1, 2)))[-1]
    for i, head in enumerate(HEADS[1:], 1):
        share = found.horizon[last, i] / found.horizon[0, i]
        claim = f"{head} looks {last} steps ahead: its change there is over 1% of that at once"
        verdicts.append(Verdict.about(claim, share, at_least=0.01))
    return verdicts


def prediction_panels(found: Inspection) -> list[Panel]:
    names = [*PLAIN, *(f"{x} {k}" for x in ("large reward within", "entropy in") for k in AHEAD)]
    probed = [name for name in names if name in found.probes]
    known = [name for name in probed if np.isfinite(list(found.probes[name].values())).all()]
    bars = [
        Panel(name, "", "R² on held-out episodes", {}, bars=found.probes[name]) for name in known
    ]
    within = np.isfinite(found.horizon).all(axis=(1, 2))
    x = np.arange(len(found.horizon))[within]
    lines = {head: (x, found.horizon[within, i]) for i, head in enumerate(found.heads)}
    ahead = Panel("how far targets look", "steps ahead", "KL divergence", lines)
    most = np.argsort(-found.ablation[:, 1].mean(axis=-1))[:8]
    reads = {found.inputs[j]: found.ablation[j, 1] for j in most}
    return [*bars, ahead, Panel("ŷ without an input", "", "KL divergence", {}, bars=reads)]
