"""PPO on host simulators, ours against Stable-Baselines3's, in turn in one run.

    python -m venv sb3
    sb3/bin/pip install torch==2.13.0 stable-baselines3 ale-py opencv-python-headless
    python -m benchmarks.against_sb3 sb3/bin/python [cartpole] [breakout]

Both have 8 environments, rollouts of 128 steps, 4 epochs of 4 minibatches, and networks of the same
size: two layers of 64, or the classic three convolutions and a layer of 512. Steps per second after
compilation and a first update; each is measured three times, and the median counts. The last line
is one JSON object. Run it with nothing else running.
"""

import json
import statistics
import subprocess
import sys
from pathlib import Path

from benchmarks.host import ROLLOUT, Timed, run_on

ENVS = 8
CASES = {
    "cartpole": ("CartPole-v1", "gym/CartPole-v1", dict(torso=(64, 64)), 30),
    "breakout": (
        "Breakout",
        "atari/Breakout",
        dict(conv=(32, 64, 64), conv_kind="classic", frame_stack=4, torso=(512,)),
        5,
    ),
}


def theirs(python: str, name: str, updates: int) -> float:
    script = Path(__file__).with_name("sb3_ppo.py")
    ran = subprocess.run(
        [python, str(script), name, str(updates)], check=True, capture_output=True, text=True
    )
    return float(ran.stdout.split()[-1])


def ours(env: str, settings: dict, updates: int) -> float:
    return ENVS * ROLLOUT / Timed(run_on(env, ENVS, lag=1, **settings), updates).total


if __name__ == "__main__":
    python, *chosen = sys.argv[1:]
    results = {}
    for case in chosen or CASES:
        name, env, settings, updates = CASES[case]
        pairs = [(ours(env, settings, updates), theirs(python, name, updates)) for _ in range(3)]
        mine, other = (statistics.median(x) for x in zip(*pairs, strict=True))
        results |= {f"{case}_ours": mine, f"{case}_sb3": other, f"{case}_ratio": mine / other}
        print(
            f"{case}: {mine:.0f} against {other:.0f} steps/s, {mine / other:.2f} times", flush=True
        )
    print(json.dumps({what: round(x, 2) for what, x in results.items()}))
