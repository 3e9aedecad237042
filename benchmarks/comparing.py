"""What a comparison costs beyond the work of its cells, and how fast a cell starts.

    python -m benchmarks.comparing [--steps 100000] [--seeds 5]

Four rules on six environments are compared twice, in fresh folders: first with an empty cache of
compiled programs, then with the one that this has filled. Told is wall time against the sum of
what the cells themselves took (their `seconds`: playing and learning, not compilation), which
should be at most 1.3. Then cells whose programs are cached are started alone: told is their wall
time without the work, evaluation left out, which should be at most 3 seconds. The last line is one
JSON object. Run it with nothing else running.
"""

import dataclasses
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import tyro

ENVS = "catch,bandit,gymnax/CartPole-v1,gymnax/Acrobot-v1,gymnax/FourRooms-misc,maze:size=6"
RULES = "ppo,actor_critic,policy_gradient,metagrad"
STARTED = ("catch", "ppo"), ("gymnax/CartPole-v1", "actor_critic")


@dataclasses.dataclass(frozen=True)
class Options:
    steps: int = 100_000
    seeds: int = 5
    envs: str = ENVS
    rules: str = RULES


def etude(cache: Path, *words: str) -> float:
    """Seconds that a command took."""
    started = time.perf_counter()
    command = [sys.executable, "-m", "etude", *words]
    own = os.environ | {"XDG_CACHE_HOME": str(cache)}
    subprocess.run(command, check=True, env=own, stdout=subprocess.DEVNULL)
    return time.perf_counter() - started


def compared(options: Options, cache: Path, out: Path) -> dict[str, float]:
    budget = ("--steps", str(options.steps), "--seeds", str(options.seeds))
    what = ("--envs", options.envs, "--rules", options.rules, *budget, "--out", str(out))
    wall = etude(cache, "compare", *what)
    cells = json.loads((out / "summary.json").read_text())["cells"]
    work = sum(cell["seconds"] for cell in cells)
    return {"wall_s": wall, "work_s": work, "wall_over_work": wall / work}


def started(env: str, rule: str, cache: Path, out: Path) -> float:
    """Seconds of a short run without its work; the median of three, after one that compiles."""
    spent = []
    for i in range(4):
        folder = out / str(i)
        what = ("--env", env, "--rule", rule, "--steps", "10000", "--seeds", "5")
        wall = etude(cache, "train", *what, "--out", str(folder))
        spent.append(wall - json.loads((folder / "summary.json").read_text())["seconds"])
    return statistics.median(spent[1:])


def main(options: Options) -> None:
    results = {}
    with tempfile.TemporaryDirectory() as place:
        cache = Path(place) / "cache"
        for name in ("first", "cached"):
            found = compared(options, cache, Path(place) / name)
            results |= {f"{name}_{what}": x for what, x in found.items()}
            print(f"{name}: " + ", ".join(f"{what} {x:.4g}" for what, x in found.items()))
        for env, rule in STARTED:
            seconds = started(env, rule, cache, Path(place) / f"start-{rule}")
            results[f"start_{rule}_s"] = seconds
            print(f"{rule} on {env}: started in {seconds:.3g} s", flush=True)
    print(json.dumps({what: round(x, 3) for what, x in results.items()}))


if __name__ == "__main__":
    main(tyro.cli(Options))
