"""PPO in JAX, ours against rejax's: what it reaches on the same steps, and how fast it is.

    python -m venv rejax
    rejax/bin/pip install rejax==0.1.3 'gymnax<1'
    python -m benchmarks.against_rejax rejax/bin/python score [cartpole] [acrobot] [breakout] …
    python -m benchmarks.against_rejax rejax/bin/python speed [cartpole] [breakout]

`score`: rejax at its published settings for CartPole and Acrobot (`configs/gymnax` of its
repository; it has none for MinAtar, where it gets those below), ours at the presets, both with the
same environment steps and number of seeds. Scores are means of 256 fresh episodes per trained agent
with actions sampled; told are the interquartile mean over seeds and its 95% interval, as in
`etude compare`.

`speed`: both with the same environments, rollouts, epochs, minibatches and layers (rejax has two
networks, for policy and value, where ours share the layers), three times in turn, of which the
median counts. Steps per second after compilation. Run that with nothing else running. The last
line is one JSON object.
"""

import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np

import etude
from etude import api
from etude.comparing.statistics import CANNOT_BE_TOLD, Estimate, aggregate

SEEDS = 5
SMALL = dict(num_envs=5, num_steps=100, num_epochs=5, num_minibatches=5, learning_rate=7.5e-4)
SMALL |= dict(max_grad_norm=0.5, agent_kwargs={"activation": "tanh"})
MINATAR = dict(num_envs=64, num_steps=128, num_epochs=4, num_minibatches=8, learning_rate=5e-3)
MINATAR |= dict(max_grad_norm=0.5)
CASES: dict[str, tuple[str, int, dict[str, Any]]] = {
    "cartpole": ("CartPole-v1", 100_000, SMALL),
    "acrobot": ("Acrobot-v1", 100_000, SMALL | dict(normalize_observations=True)),
    "asterix": ("Asterix-MinAtar", 1_000_000, MINATAR),
    "breakout": ("Breakout-MinAtar", 1_000_000, MINATAR),
    "freeway": ("Freeway-MinAtar", 1_000_000, MINATAR),
    "spaceinvaders": ("SpaceInvaders-MinAtar", 1_000_000, MINATAR),
}
SPEED = {"cartpole": 500_000, "breakout": 1_000_000}
"""Environment steps of a measurement."""
LINE = 10_000
"""Updates that fit into one call, more than a measurement has."""


def theirs(python: str, what: str, case: str, seeds: int, steps: int) -> dict[str, Any]:
    name, _, settings = CASES[case]
    settings = settings | dict(env=name, total_timesteps=steps, seeds=seeds, seed=0)
    script = Path(__file__).with_name("rejax_ppo.py")
    command = [python, str(script), what, json.dumps(settings)]
    ran = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(ran.stdout.splitlines()[-1])


def our_returns(case: str, steps: int) -> list[float]:
    env = f"gymnax/{CASES[case][0]}"
    with tempfile.TemporaryDirectory() as out:
        settings: dict[str, Any] = dict(steps=steps, seeds=SEEDS, eval_episodes=256)
        ran = etude.train(env, "ppo", out=f"{out}/run", **settings)
    return ran.summary["evaluation"]["sampled"]


def our_speed(case: str, steps: int) -> float:
    """Of one seed, with rejax's settings as far as both have them."""
    name, _, given = CASES[case]
    settings: dict[str, Any] = dict(
        batch=given["num_envs"], rollout=given["num_steps"], torso=(64, 64)
    )
    settings |= dict(epochs=given["num_epochs"], minibatches=given["num_minibatches"])
    run = api.setup(f"gymnax/{name}", "ppo", steps=steps, log_every=LINE, **settings)
    run.prepare()
    state = jax.block_until_ready(run.init())
    begun = time.perf_counter()
    jax.block_until_ready(run.advance(state, 0, run.updates))
    return run.steps_after(run.updates) / (time.perf_counter() - begun)


def told(returns: list[float]) -> tuple[Estimate, str]:
    found = aggregate(np.array([returns]))
    return found, f"{found.value:.4g} ({found.low:.4g} to {found.high:.4g})"


def compare_scores(python: str, cases: list[str]) -> dict[str, Any]:
    results = {}
    print("| environment | steps | ours | rejax | ours is |\n|---|---|---|---|---|", flush=True)
    for case in cases or CASES:
        name, steps, _ = CASES[case]
        mine, other = our_returns(case, steps), theirs(python, "score", case, SEEDS, steps)
        (our, ours), (their, text) = told(mine), told(other["returns"])
        verdict = "above" if our.value > their.value else "below"
        verdict = CANNOT_BE_TOLD if our.overlaps(their) else verdict
        print(f"| {name} | {steps:,} | {ours} | {text} | {verdict} |", flush=True)
        results |= {case: {"ours": mine, "rejax": other["returns"]}}
    return results


def compare_speed(python: str, cases: list[str]) -> dict[str, Any]:
    results = {}
    for case in cases or SPEED:
        steps = SPEED[case]
        pairs = [
            (our_speed(case, steps), theirs(python, "speed", case, 1, steps)["steps_per_s"])
            for _ in range(3)
        ]
        mine, other = (statistics.median(x) for x in zip(*pairs, strict=True))
        results |= {f"{case}_ours": mine, f"{case}_rejax": other, f"{case}_ratio": mine / other}
        print(
            f"{case}: {mine:.0f} against {other:.0f} steps/s, {mine / other:.2f} times", flush=True
        )
    return {what: round(x, 2) for what, x in results.items()}


if __name__ == "__main__":
    python, what, *chosen = sys.argv[1:]
    compare_what = {"score": compare_scores, "speed": compare_speed}[what]
    print(json.dumps(compare_what(python, chosen)))
