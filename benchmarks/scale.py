"""What a population gains from more cores, and what it costs to drive one.

    python -m benchmarks.scale threads              # two environments on two cores
    python -m benchmarks.scale driver --actors 206  # actors that only return arrays

The first compares two environments side by side with one after another, on one core and with each
program on both; the second has actors that return arrays of the published rule's size. Run it with
nothing else running. 206 actors are as many
processes, of 70 MB each; with fewer, each has several parts, and the driver takes 206 updates yet.
"""

import argparse
import json
import re
import statistics
import time
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from etude.meta.discovery.cluster.worker import PartStep, one_or_all
from etude.meta.discovery.config import DiscoverConfig
from etude.meta.discovery.parts import Sum
from etude.meta.discovery.placement import InProcess
from etude.meta.discovery.rule_optimiser import RuleOptimiser, RuleUpdate
from etude.meta.discovery.run import DiscoveryRun
from etude.placing import workforce
from etude.placing.cluster import LOCAL, ClusterOptions
from etude.placing.local import cores, on_one_core
from etude.placing.rays import RayActors, connect
from etude.placing.workforce import Workforce
from etude.rules.disco.rule import Disco, DiscoConfig
from etude.settings import Settings

PARTS = 206
"""As many agents as the paper's larger run had."""
Record = dict[str, float | int]


# --- Side by side ---------------------------------------------------------------------------------

SETTINGS: Settings = dict(
    envs="catch:rows=5,columns=5,catch:rows=6,columns=5", agents=8, check_every=0
)


def threads(meta_steps: int, rounds: int) -> Record:
    """Meta-steps of two environments with four agents each, at the settings of a laptop."""
    run = DiscoveryRun.create(DiscoverConfig(**SETTINGS))
    alone = InProcess(run.parts, run.programs, 1)
    beside = InProcess(run.parts, run.programs, 2)
    alone.prepare()
    ways = {
        "one_core": (alone, on_one_core),
        "one_by_one": (alone, nullcontext),
        "beside": (beside, nullcontext),
    }
    state, seconds = run.init(), {way: [] for way in ways}
    for _ in range(rounds):
        for way, (placement, pinned) in ways.items():
            vars(run)["placement"] = placement
            with pinned():
                state, _ = run.advance(state, 0, 1)
                began = time.perf_counter()
                state, _ = run.advance(state, 0, meta_steps)
                seconds[way].append((time.perf_counter() - began) / meta_steps)
    beside.close()
    median = {way: statistics.median(each) for way, each in seconds.items()}
    found: Record = {f"{way}_ms": x * 1e3 for way, x in median.items()}
    found |= {f"beside_over_{way}": median[way] / median["beside"] for way in list(ways)[:2]}
    return {"cores": len(cores())} | found


# --- The driver -----------------------------------------------------------------------------------


class Idle:
    """A worker that does nothing but answer."""

    def __init__(self, sizes: list[tuple[int, ...]]):
        self._update = [np.ones(size, np.float32) for size in sizes]

    def call(self, what: str, returns: int, pieces: Sequence[int], *arguments: object) -> object:
        if what == "step":
            agents, played = np.asarray(1, np.int32), {"age": np.zeros(1, np.int32)}
            return one_or_all([PartStep(self._update, agents, played) for _ in pieces])
        if what == "fetch":
            return one_or_all([{} for _ in pieces])
        return "idle" if what == "about" else None


def driver(actors: int, steps: int) -> Record:
    """Meta-steps of which only the driver's part is real."""
    rule = jax.jit(lambda: Disco(DiscoConfig(), key=jax.random.key(0)))()
    leaves, structure = jax.tree.flatten(rule)
    disconnect = connect(LOCAL, cpus=actors)
    workers = RayActors(Idle, ([x.shape for x in leaves],), ClusterOptions(LOCAL))
    work: Workforce[PartStep] = Workforce(
        workers,
        [str(i) for i in range(PARTS)],
        [1.0] * PARTS,
        workers=actors,
        timeout=600.0,
        tell=print,
    )
    began = time.perf_counter()
    workforce.STARTING = 3600.0  # all are to be there: who comes late takes over parts from others
    work.prepare()
    work.settle([{}] * PARTS)
    started = time.perf_counter() - began
    optimiser = RuleOptimiser.create(DiscoverConfig())
    advance = jax.jit(optimiser.step)
    wall, own, memory = [], [], [_own_mb()]
    for _ in range(steps):
        began, spent = time.perf_counter(), time.process_time()
        total = Sum()
        for found in work.step(jax.device_get(jax.tree.leaves(rule))):
            update = jax.tree.unflatten(structure, [jnp.asarray(x) for x in found.update])
            total.add(RuleUpdate(update, jnp.asarray(found.agents)))
            memory.append(_own_mb())
        rule = jax.block_until_ready(advance(rule, total.whole, None, 1e-3))[0]
        wall.append(time.perf_counter() - began)
        own.append(time.process_time() - spent)
    work.close()
    disconnect()
    return {
        "actors": actors,
        "parts": PARTS,
        "floats": sum(x.size for x in leaves),
        "start_s": started,
        "meta_step_s": statistics.median(wall),
        "slowest_s": max(wall[1:]),
        "driver_cpu_s": statistics.median(own),
        "driver_grew_mb": max(memory) - memory[0],
    }


def _own_mb() -> float:
    """Memory of this process alone: what actors returned lies in memory that it shares."""
    found = re.search(r"RssAnon:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) / 1e3


def main() -> None:
    parser = argparse.ArgumentParser(description="Side by side, and the driver's own cost.")
    parser.add_argument("what", choices=("threads", "driver"))
    parser.add_argument("--actors", type=int, default=PARTS)
    parser.add_argument("--steps", type=int, default=20, help="meta-steps that are measured")
    parser.add_argument("--rounds", type=int, default=5, help="of `threads`")
    asked = parser.parse_args()
    if asked.what == "threads":
        found = threads(asked.steps, asked.rounds)
    else:
        found = driver(asked.actors, asked.steps)
    print(json.dumps({name: round(x, 3) for name, x in found.items()}))


if __name__ == "__main__":
    main()
