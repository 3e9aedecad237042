"""A discovery on a cluster whose workers, nodes and driver are killed at random moments:
`make chaos`, or `python -m tests.chaos_cluster --workers 10 --nodes 10 --drivers 5`.

The cluster has three nodes on this machine. Each run must end with the bits of one process that
nobody touched, and with every meta-step logged once.
"""

import argparse
import os
import random
import re
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

from etude.meta.discovery.config import DiscoverConfig
from etude.meta.discovery.run import DiscoveryRun
from etude.placing.cluster import ClusterOptions
from etude.placing.rays import connect, set_out
from etude.rules.metagrad import MetaGrad, MetaGradConfig
from etude.runs.folder import RunFolder
from etude.runs.lifecycle import execute, start
from tests.chaos import Lab, require_sound

META_STEPS = 120
SETTINGS = dict(
    envs="catch:rows=4,columns=3,catch:rows=3,columns=3",
    agents=6,
    part=(2, 1),
    inner_updates=4,
    batch=8,
    rollout=4,
    torso=(8,),
    budgets=(2000, 1000),
    meta_steps=META_STEPS,
    log_every=1,
    check_every=0,
)
EVERY = (2.0, 8.0)
"""Seconds between two kills."""
IN_A_ROW = 3
Outcome = tuple[str, list[int]]


def discovery() -> DiscoveryRun:
    return DiscoveryRun.create(DiscoverConfig(**SETTINGS), MetaGrad(MetaGradConfig()))


def came_to(folder: RunFolder) -> Outcome:
    summary = folder.summary()
    assert summary is not None, "it did not end"
    return summary["rule_sha256"], [record["updates"] for record in folder.metrics()]


# --- Workers and nodes ----------------------------------------------------------------------------


class Killer(threading.Thread):
    """Does harm now and then, until enough is done or it is told to stop; not more often in a row
    than a run stands without a finished meta-step."""

    def __init__(
        self,
        harm: Callable[[], bool],
        progress: Callable[[], int],
        wanted: int,
        chance: random.Random,
    ):
        super().__init__(daemon=True)
        self.harm, self.progress, self.wanted, self.chance = harm, progress, wanted, chance
        self.done, self.over = 0, threading.Event()

    def run(self) -> None:
        at, in_a_row = -1, 0
        while self.done < self.wanted and not self.over.wait(self.chance.uniform(*EVERY)):
            in_a_row, at = (in_a_row if self.progress() == at else 0), self.progress()
            if in_a_row < IN_A_ROW:
                harmed = self.harm()
                self.done, in_a_row = self.done + harmed, in_a_row + harmed


def workers_of(run: DiscoveryRun) -> list[int]:
    workforce = getattr(run.placement, "_workforce", None)
    if workforce is None:
        return []
    names = [worker.name for worker in list(workforce._workers.values()) if worker.pieces]
    return [int(re.findall(r"process (\d+)", name)[0]) for name in names]


def kill_worker(run: DiscoveryRun, chance: random.Random) -> bool:
    if not (found := workers_of(run)):
        return False
    try:
        os.kill(chance.choice(found), signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def kill_node(cluster, run: DiscoveryRun, chance: random.Random) -> bool:
    """One of two; another joins before the next meta-step is over."""
    if len(cluster.worker_nodes) < 2 or not workers_of(run):
        return False
    node = chance.choice(sorted(cluster.worker_nodes, key=id))
    cluster.remove_node(node, allow_graceful=False)
    return True


def replace_nodes(cluster, own: dict) -> None:
    """Ray lets nodes be added by the main thread only."""
    while len(cluster.worker_nodes) < 2:
        cluster.add_node(wait=False, **own)


def torment(
    what: str, wanted: int, expected: Outcome, folder: Path, cluster, own: dict, seed: int
) -> int:
    """Runs on the cluster until so many kills were survived; how many runs that took."""
    chance, done, runs = random.Random(f"{seed} {what}"), 0, 0
    while done < wanted:
        told: list[str] = []
        run = discovery().on(ClusterOptions(cluster.address, workers=3), told.append)
        kept = start(run, str(folder / f"{what}-{runs}"))
        harm = {
            "workers": lambda run=run: kill_worker(run, chance),
            "nodes": lambda run=run: kill_node(cluster, run, chance),
        }[what]
        killer = Killer(harm, lambda kept=kept: kept.updates_done, wanted - done, chance)
        killer.start()
        execute(
            run,
            kept,
            checkpoint_seconds=chance.choice([0.0, 5.0, 60.0]),
            on_record=lambda record: replace_nodes(cluster, own),
        )
        killer.over.set()
        killer.join()
        assert came_to(kept) == expected, f"{came_to(kept)} where {expected} is due: {told}"
        lost = sum("is lost" in text for text in told)
        print(f"  {killer.done} killed, {lost} losses told, the same bits", flush=True)
        done, runs = done + killer.done, runs + 1
    return runs


def on_three_nodes(workers: int, nodes: int, expected: Outcome, folder: Path, seed: int) -> None:
    set_out("127.0.0.1:1")
    from ray.cluster_utils import Cluster

    own = dict(num_cpus=1, object_store_memory=80 << 20, node_ip_address="127.0.0.1")
    head = dict(own, include_dashboard=False)
    cluster = Cluster(initialize_head=True, head_node_args=head)
    for _ in range(2):
        cluster.add_node(**own)
    disconnect = connect(cluster.address)
    for what, wanted in (("workers", workers), ("nodes", nodes)):
        began = time.monotonic()
        runs = torment(what, wanted, expected, folder, cluster, own, seed)
        took = time.monotonic() - began
        print(f"{what}: {wanted} killed in {runs} runs, {took:.0f} s", flush=True)
    disconnect()
    cluster.shutdown()


# --- The driver -----------------------------------------------------------------------------------


def without_driver(wanted: int, expected: Outcome, folder: Path, seed: int) -> None:
    """The driver is killed and goes on, each time with another number of workers."""
    chance, lab, began = random.Random(f"{seed} drivers"), Lab(folder), time.monotonic()
    kept, done = start(discovery(), str(folder / "drivers")), 0
    while kept.summary() is None:
        many = str(chance.randint(1, 3))
        process = lab.start(
            "discover", "--resume", str(kept.path), "--cluster", "local", "--workers", many
        )
        before = kept.updates_done
        while process.poll() is None and (kept.updates_done == before or done >= wanted):
            time.sleep(0.05)
        if process.poll() is None:
            time.sleep(chance.uniform(0.0, 2.0))
            process.send_signal(signal.SIGKILL)
            process.wait()
            require_sound(kept.path)
            done += 1
        else:
            assert process.returncode == 0, lab.printed()
    assert came_to(kept) == expected, f"{came_to(kept)} where {expected} is due"
    took = time.monotonic() - began
    print(f"drivers: {done} killed, the same bits, {took:.0f} s", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="Kills workers, nodes and drivers at random.")
    parser.add_argument("--workers", type=int, default=10)
    parser.add_argument("--nodes", type=int, default=10)
    parser.add_argument("--drivers", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="etude-chaos-") as name:
        folder = Path(name).resolve()
        run = discovery()
        alone = start(run, str(folder / "alone"))
        execute(run, alone)
        expected = came_to(alone)
        assert expected[1] == list(range(1, META_STEPS + 1))
        if asked.workers or asked.nodes:
            on_three_nodes(asked.workers, asked.nodes, expected, folder, asked.seed)
        if asked.drivers:
            without_driver(asked.drivers, expected, folder, asked.seed)
    sys.exit(0)


if __name__ == "__main__":
    main()
