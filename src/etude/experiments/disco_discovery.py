"""Many small discoveries: what a window, a part of the rule, or one more environment buys."""

import numpy as np

from etude.api import discover
from etude.experiments.base import APART, Options, Panel, Reproduction, Say, Verdict
from etude.settings import Settings

BySeed = dict[str, np.ndarray]
"""The return of fresh agents under the rule of each seed's discovery, by what was discovered."""
BRIEF: Settings = dict(
    agents=2, batch=4, rollout=4, validation_batch=4, torso=(8,), model=8, head=8, log_every=1
)
BRIEF |= dict(check_updates=4, check_seeds=2, value_torso=(8,))


def discovered(
    variants: dict[str, Settings], options: Options, say: Say, where: list[str] | None = None
) -> BySeed:
    """How fresh agents do in the environments `where`, by default those of the population, under
    the last rule of each discovery; on seeds of agents that no discovery saw."""
    found: dict[str, list[float]] = {label: [] for label in variants}
    for i in range(options.seeds):
        for label, settings in variants.items():
            say(f"{label}, discovery {i + 1} of {options.seeds}…")
            seed = options.seed * APART + i
            brief = BRIEF if options.quick else {}
            meta_steps = settings["meta_steps"]
            result = discover(seed=seed, check_every=meta_steps, **settings | brief)
            check = result.summary["final_check"]["returns"]
            names = where or result.config.env_names
            found[label].append(float(np.mean([check[name]["mean"] for name in names])))
    return {label: np.array(x) for label, x in found.items()}


def above(claim: str, first: np.ndarray, second: np.ndarray) -> Verdict:
    return Verdict.about(f"{claim}: difference", first - second, at_least=0.0)


def bars(title: str, by_seed: BySeed) -> Panel:
    return Panel(title, "", "return of fresh agents", {}, bars=by_seed)


KEPT = "Each discovery is judged by the better of its start and its last rule."

# --- The window -----------------------------------------------------------------------------------

WINDOWS = (1, 2, 5, 10, 20)
SLIDING = ((10, 5), (20, 5))
"""Updates of a window, and how many of them are new."""


def run_window(options: Options, say: Say) -> Reproduction:
    updates = options.size(20, 1600, 8000)
    variants: dict[str, Settings] = {
        f"N = {n}": dict(inner_updates=n, meta_steps=updates // n) for n in WINDOWS
    }
    for n, stride in SLIDING:
        settings = dict(inner_updates=n, stride=stride, meta_steps=updates // stride)
        variants[f"N = {n},\nstride {stride}"] = settings
    found = discovered(variants, options, say)
    longer = [(20, n) for n in WINDOWS if n < 20]
    verdicts = [
        above(f"A window of {a} is better than one of {b}", found[f"N = {a}"], found[f"N = {b}"])
        for a, b in longer
    ]
    verdicts += [
        above(
            f"Sliding by {stride} is better than windows of {n} that do not overlap",
            found[f"N = {n},\nstride {stride}"],
            found[f"N = {n}"],
        )
        for n, stride in SLIDING
    ]
    notes = (
        f"All have {updates:,} agent updates per agent; short windows so have more meta-steps.",
        "The source has a window of 20, and no figures for others.",
        KEPT,
    )
    return Reproduction(verdicts, [bars("windows at equal agent updates", found)], notes)


# --- Without some part ----------------------------------------------------------------------------

NO_COSTS = "target_mean_cost=0,target_kl_cost=0,prediction_entropy_cost=0"
ABLATIONS: dict[str, Settings] = {
    "whole": {},
    "without\ny and z": dict(rule_settings="predictions=false"),
    "without\np": dict(rule_settings="aux_cost=0"),
    "without\nvalues": dict(rule_settings="values=false"),
    "without\nmeta-value": dict(meta_value=False),
    "without\nmeta-RNN": dict(rule_settings="meta_rnn=false"),
    "without\nregularisers": dict(rule_settings=NO_COSTS, meta_entropy_cost=0.0),
}
PRINTED = {"without\ny and z": 5.0, "without\nvalues": 2.9}
"""On Atari, with 57 games, where the whole has 11.6; of the others our sources print nothing."""


def run_ablations(options: Options, say: Say) -> Reproduction:
    shared: Settings = dict(inner_updates=10, meta_steps=options.size(2, 200, 800))
    variants = {label: shared | settings for label, settings in ABLATIONS.items()}
    found = discovered(variants, options, say)
    verdicts = []
    for label in list(ABLATIONS)[1:]:
        name = label.replace("\n", " ")
        printed = f" (paper, Atari: 11.6 against {PRINTED[label]})" if label in PRINTED else ""
        verdicts.append(
            above(f"The whole is better than {name}{printed}", found["whole"], found[label])
        )
    return Reproduction(verdicts, [bars("Catch 5×5", found)], (KEPT,))


# --- More environments ----------------------------------------------------------------------------

SIZES = [(r, c) for r in (5, 6, 4, 7) for c in (5, 4, 6, 3)]
"""Rows and columns of Catch, in the order in which they join the population."""
HELD_OUT = [(8, 5), (5, 8), (8, 8)]
NUMBERS = (1, 2, 4, 8, 16)


def catch(size: tuple[int, int]) -> str:
    return f"catch:rows={size[0]},columns={size[1]}"


def run_scaling(options: Options, say: Say) -> Reproduction:
    numbers = NUMBERS[:2] if options.quick else NUMBERS
    held_out = [catch(size) for size in (HELD_OUT[:1] if options.quick else HELD_OUT)]
    shared: Settings = dict(inner_updates=10, meta_steps=options.size(2, 150, 800), agents=16)
    variants = {
        str(n): shared | dict(envs=",".join(map(catch, SIZES[:n])), held_out=",".join(held_out))
        for n in numbers
    }
    found = discovered(variants, options, say, held_out)
    most, least = str(numbers[-1]), str(numbers[0])
    slope = np.polyfit(np.log2(numbers), np.stack([found[str(n)] for n in numbers]), 1)[0]
    verdicts = [
        above(f"{most} environments are better than {least}", found[most], found[least]),
        Verdict.about("The return rises with each doubling: slope", slope, at_least=0.0),
    ]
    lines = {"held out": (np.array(numbers, float), np.stack([found[str(n)] for n in numbers]))}
    panel = Panel(
        "Catch of sizes never seen",
        "environments in the population",
        "return of fresh agents",
        lines,
    )
    notes = (
        "The family is Catch of 16 sizes, held-out ones larger; 16 agents whatever their number.",
        KEPT,
    )
    return Reproduction(verdicts, [panel], notes)
