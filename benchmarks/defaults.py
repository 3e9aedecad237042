"""Which environments learn at their defaults: a table in Markdown, a row as soon as it is known.

    python -m benchmarks.defaults --rules ppo,actor_critic --steps 200000 --seeds 3

Trained are all environments that `etude envs` lists and that have something to be chosen, each with
its defaults but for the budget, which is the default number of steps where that is smaller. What is
compared is the return of the last 100 episodes per seed with that of the same agents untrained,
with 95% bootstrap intervals: where these overlap, it cannot be told.
"""

import dataclasses
from typing import Any

import tyro

import etude
from etude.envs.catalogue import available, caution
from etude.errors import UserError
from etude.settings import split_specs
from etude.training.config import TrainRequest
from etude.training.planning import plan_named

HEADER = "environment,rule,steps,untrained,trained,95% interval,seconds,verdict,told beforehand"


@dataclasses.dataclass(frozen=True)
class Options:
    rules: str = "ppo,actor_critic"
    envs: str = ""
    """Those to be trained, with commas between; by default all."""
    steps: int = 200_000
    seeds: int = 3
    seed: int = 500


def final(env: str, rule: str, **settings: Any) -> Any:
    return etude.train(env, rule, **settings).summary


def row(env: str, rule: str, options: Options) -> list[str]:
    """Trains an environment under a rule, and says what came of it."""
    steps = min(options.steps, plan_named(TrainRequest(env=env, rule=rule)).plan.steps)
    settings = dict(seed=options.seed, seeds=options.seeds)
    untrained = final(env, rule, steps=steps // 10, learning_rate=1e-12, **settings)["final_return"]
    summary = final(env, rule, steps=steps, **settings)
    trained = summary["final_return"]
    verdict = "cannot be told"
    if None in (trained["mean"], untrained["mean"]):
        verdict = "no episode ended"
    elif trained["low"] > untrained["high"]:
        verdict = "learns"
    elif trained["high"] < untrained["low"]:
        verdict = "worse"
    interval = f"{number(trained['low'])} to {number(trained['high'])}"
    figures = [number(untrained["mean"]), number(trained["mean"]), interval]
    figures.append(f"{summary['seconds']:.0f}")
    return [env, rule, f"{steps:,}", *figures, verdict, caution(env) or ""]


def number(x: float | None) -> str:
    return "–" if x is None else f"{x:.3g}"


def main(options: Options) -> None:
    listed = [name for name, env in available().items() if env.actions > 1]
    print("|", " | ".join(HEADER.split(",")), "|")
    print("|---" * len(HEADER.split(",")) + "|")
    for env in split_specs(options.envs) or listed:
        for rule in split_specs(options.rules):
            try:
                cells = row(env, rule, options)
            except UserError as error:
                cells = [env, rule, *[""] * 5, str(error), caution(env) or ""]
            print("|", " | ".join(cells), "|", flush=True)


if __name__ == "__main__":
    main(tyro.cli(Options))
