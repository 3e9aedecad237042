"""FRODO's two small experiments (arXiv 2007.08433), and the seed's extension of it on both."""

from typing import Any

import numpy as np

from etude.experiments.base import Experiment, Options, Panel, Reproduction, Say, Verdict
from etude.experiments.walk import best_fixed, frodo_errors, switches_axis
from etude.trainer import train

SOURCE = "Xu et al. 2020, arXiv 2007.08433, section 5"
EXTENSION = "Qiu 2021, after Meta Pseudo Labels"

# --- Catch: does it learn to bootstrap? ----------------------------------------------------------

CATCH = "catch:rows=6,columns=11"
CEILING = 3 / 11
"""With three transitions and no bootstrapping, pellets of 7 of the 11 columns can be caught."""
RANDOM = -9 / 11
SHORT: dict[str, Any] = dict(batch=32, rollout=3, learning_rate=3e-3, torso=(256,))
FRODO: dict[str, Any] = dict(inner_updates=5, outer_rollout=5, meta_learning_rate=1e-3)
OUTER = "actor_critic:td_lambda=1,entropy_cost=0.03"
STEPS = 2_000_000


def returns_on_catch(rule: str, options: Options, **settings: Any) -> tuple[np.ndarray, np.ndarray]:
    """Environment steps, and the mean return since the last point of each seed."""
    steps = 20_000 if options.quick else STEPS
    result = train(
        CATCH, rule, steps=steps, seeds=options.seeds, seed=options.seed, **SHORT | settings
    )
    x = np.array([record["steps"] for record in result.curve], float)
    return x, np.array([record["returns"] for record in result.curve], float)


def frodo_on_catch(options: Options, **settings: Any) -> tuple[np.ndarray, np.ndarray]:
    rule = "frodo:entropy_cost=0.03"
    return returns_on_catch(rule, options, outer=OUTER, **FRODO | settings)


def at_the_end(returns: np.ndarray, share: float = 0.1) -> np.ndarray:
    """Each seed's mean over the last part of its curve."""
    return np.nanmean(returns[-max(1, round(share * len(returns))) :], axis=0)


def run_catch(options: Options, say: Say) -> Reproduction:
    say("FRODO, with three transitions…")
    frodo = frodo_on_catch(options)
    say("The actor-critic, with three transitions and no bootstrapping…")
    blind = returns_on_catch("actor_critic:bootstrap=false,td_lambda=1,entropy_cost=0.03", options)
    end, blind_end = at_the_end(frodo[1]), at_the_end(blind[1])
    verdicts = [
        Verdict.about(
            "FRODO passes the ceiling of three steps without bootstrapping, 0.273",
            end,
            lambda mean, low, high: low > CEILING,
        ),
        Verdict.about("FRODO reaches 0.9", end, lambda mean, low, high: mean >= 0.9),
        Verdict.about(
            "The actor-critic that sees three steps and does not bootstrap stays below 0.273",
            blind_end,
            lambda mean, low, high: low <= CEILING,
        ),
    ]
    lines = {"FRODO": frodo, "actor-critic, no bootstrapping": blind}
    levels = {"ceiling without bootstrapping": CEILING, "random": RANDOM}
    panel = Panel(CATCH, "environment steps", "return", lines, levels)
    return Reproduction(verdicts, [panel])


# --- The random walk: does it follow a world that changes? ---------------------------------------


def run_walk(options: Options, say: Say) -> Reproduction:
    frodo = frodo_errors(options, say)
    fixed, setting = best_fixed(options, say)
    half = len(frodo) // 2
    gain = (frodo - fixed)[half:].mean(axis=0)
    verdict = Verdict.about(
        f"After a switch, FRODO's value error falls faster than that of the best fixed TD(λ) "
        f"({setting}): difference of the mean errors over the second half",
        gain,
        lambda mean, low, high: high < 0,
    )
    x = switches_axis(len(frodo))
    lines = {"FRODO": (x, frodo), f"TD(λ), {setting}": (x, fixed)}
    whole = Panel("random_walk", "switches", "value error", lines)
    return Reproduction([verdict], [whole, after_a_switch(lines)])


def after_a_switch(lines: dict[str, tuple[np.ndarray, np.ndarray]]) -> Panel:
    """The mean course of the error between two switches, over the second half."""
    courses = {}
    for label, (_, errors) in lines.items():
        late = errors[len(errors) // 2 :]
        course = late.reshape(-1, 10, errors.shape[1]).mean(axis=0)
        courses[label] = (np.arange(1, 11.0), course)
    return Panel("after a switch", "iterations (96 steps)", "value error", courses)


# --- The extension -------------------------------------------------------------------------------

REVISE = 1.0


def run_extension(options: Options, say: Say) -> Reproduction:
    say("FRODO on Catch, plain and revised…")
    x, plain = frodo_on_catch(options)
    _, revised = frodo_on_catch(options, revise=REVISE)
    verdicts = compared("Catch, return", revised - plain)
    catch = Panel(
        CATCH,
        "environment steps",
        "return",
        {"FRODO": (x, plain), "with the revision": (x, revised)},
    )
    plain = frodo_errors(options, say)
    revised = frodo_errors(options, say, revise=REVISE)
    verdicts += compared("random walk, negative value error", plain - revised)
    x = switches_axis(len(plain))
    walk = Panel(
        "random_walk",
        "switches",
        "value error",
        {"FRODO": (x, plain), "with the revision": (x, revised)},
    )
    return Reproduction(verdicts, [catch, walk])


def compared(what: str, gain: np.ndarray) -> list[Verdict]:
    """The gain by seed in the first fifth, and at the end."""
    fifth = max(1, len(gain) // 5)
    return [
        Verdict.about(
            f"The extension is better in the first fifth ({what}: difference)",
            np.nanmean(gain[:fifth], axis=0),
            lambda mean, low, high: low > 0,
        ),
        Verdict.about(
            f"The extension is no worse at the end ({what}: difference)",
            at_the_end(gain),
            lambda mean, low, high: high >= 0,
        ),
    ]


EXPERIMENTS = {
    "frodo-catch": Experiment("FRODO learns to bootstrap on Catch.", SOURCE, run_catch),
    "frodo-random-walk": Experiment("FRODO follows values that change.", SOURCE, run_walk),
    "frodo-extension": Experiment(
        "FRODO that also answers for what the agent learned before.", EXTENSION, run_extension
    ),
}
