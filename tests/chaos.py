"""Runs of every kind, ended at random moments: `make chaos`, or `python -m tests.chaos --kills 9`.

Each is started, ended by SIGKILL or SIGTERM (while it imports, compiles, computes, writes its
checkpoint or its metrics), resumed, and ended again, until it gets to its end. There it must have
the bits of a run that nobody touched. After every signal the folder must be sound: a checkpoint
that can be read in full, metrics in order without a line that is missing or there twice, and no
process left behind.
"""

import argparse
import dataclasses
import itertools
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from etude.runs.arrays import read_arrays
from etude.runs.folder import RunFolder

ROOT = Path(__file__).resolve().parent.parent
GRACE = 25.0
WORKING = 2.0
"""Seconds into its work at which a run is ended at the latest."""
LIMIT = 3600.0
"""Seconds after which a process that should have ended has failed to."""

CATCH = "--env catch:rows=4,columns=3 --torso 16 --batch 8 --rollout 4 "
HOST = "--env tests.host_probes:Levers --rule actor_critic --torso 8 --batch 4 --rollout 4 --lag 0 "
KINDS = {
    "train, with replay": f"train --rule actor_critic {CATCH} --replay-share 0.5 --steps 200000",
    "train, two seeds of PPO": f"train --rule ppo {CATCH} --seeds 2 --minibatches 2 --steps 120000",
    "train, with memory": f"train --rule actor_critic --memory gru {CATCH} --steps 150000",
    "online, FRODO": f"train --rule frodo {CATCH} --inner-updates 2 --steps 80000",
    "discover": "discover --envs catch:rows=3,columns=3 --agents 2 --batch 4 --rollout 4 --torso 8 "
    "--from metagrad --inner-updates 2 --meta-steps 200 --check-every 100 --check-updates 5 "
    "--check-seeds 2 --log-every 5",
    "adapt, MAML": "adapt --algo maml --tasks bandit:arms=2,pulls=4 --torso 8 --batch 8 "
    "--test-tasks 8 --steps 400000",
    "adapt, RL²": "adapt --algo rl2 --tasks bandit:arms=2,pulls=4 --hidden 8 --batch 8 "
    "--test-tasks 8 --steps 600000",
    "host": f"train {HOST} --steps 60000",
    "host, two processes": f"train {HOST} --workers 2 --steps 30000",
}
DIGESTS = ("params_sha256", "rule_sha256", "policy_sha256")


@dataclasses.dataclass
class Counts:
    """What happened to runs of one kind."""

    kills: int = 0
    terms: int = 0
    early: int = 0
    """Signals before the first checkpoint."""
    ends: int = 0
    """Runs that got to their end."""
    failures: list[str] = dataclasses.field(default_factory=list)

    @property
    def signals(self) -> int:
        return self.kills + self.terms


class Ended(NamedTuple):
    """What a run has come to."""

    digests: list[str]
    last: dict[str, object]
    """Its last line of metrics, apart from the time."""


# --- Processes ------------------------------------------------------------------------------------


class Lab:
    """Where runs are started, and how."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]),
            "XDG_CACHE_HOME": str(folder / "cache"),
        }

    def start(self, command: str, *more: str) -> subprocess.Popen:
        arguments = [*command.split(), *more, "--checkpoint-seconds", "0"]
        with open(self.folder / "printed.txt", "w") as printed:
            return subprocess.Popen(
                [sys.executable, "-m", "etude", *arguments],
                env=self.environment,
                cwd=self.folder,
                stdout=printed,
                stderr=subprocess.STDOUT,
            )

    def printed(self) -> str:
        return (self.folder / "printed.txt").read_text(errors="replace")[-500:]

    def finish(self, process: subprocess.Popen) -> None:
        if process.wait(LIMIT) != 0:
            raise AssertionError(f"exit code {process.returncode}: {self.printed()}")

    def left_behind(self) -> list[int]:
        """Processes that simulators were in, a moment after their run was killed."""
        return [] if not list(_workers(self.folder)) else _after_a_moment(self.folder)


def _workers(folder: Path) -> Iterator[int]:
    """Worker processes of runs in a folder, where the system tells of them."""
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            words = (entry / "cmdline").read_bytes().decode().split("\0")
            if "etude.envs.host.processes" in words and os.readlink(entry / "cwd") == str(folder):
                yield int(entry.name)
        except (OSError, ValueError):  # it has ended, or is another's
            continue


def _after_a_moment(folder: Path) -> list[int]:
    until = time.monotonic() + 5.0
    while (found := list(_workers(folder))) and time.monotonic() < until:
        time.sleep(0.1)
    return found


# --- One run --------------------------------------------------------------------------------------


def ended(path: Path) -> Ended:
    folder = RunFolder.open(str(path))
    summary, records = folder.summary(), folder.metrics()
    assert summary is not None and records, "it ended without a summary"
    last = {name: x for name, x in records[-1].items() if name not in ("seconds", "check")}
    return Ended([summary[name] for name in DIGESTS if name in summary], last)


def require_sound(path: Path) -> bool:
    """Whether there is a checkpoint; what lies in the folder must be whole."""
    if not (path / "config.json").exists():
        return False
    folder = RunFolder.open(str(path))
    updates = [record["updates"] for record in folder.metrics()]
    assert all(a < b for a, b in itertools.pairwise(updates)), f"metrics out of order: {updates}"
    if folder.has_checkpoint:
        _, header = read_arrays(path / "checkpoint")
        size = (path / "metrics.jsonl").stat().st_size
        assert header["metrics_bytes"] <= size, "the checkpoint knows of metrics that are lost"
    return folder.has_checkpoint


def end_at_random(
    lab: Lab,
    process: subprocess.Popen,
    path: Path,
    number: int,
    startup: float,
    chance: random.Random,
) -> None:
    """Waits for some moment of a run, which is started or at work, and sends it a signal."""
    if chance.random() < 0.4:
        time.sleep(chance.uniform(0.0, startup))
    else:
        began = progress(path)
        until = time.monotonic() + LIMIT
        while process.poll() is None and progress(path) == began and time.monotonic() < until:
            time.sleep(0.002)
        time.sleep(chance.uniform(0.0, WORKING))
    if process.poll() is not None:
        return
    process.send_signal(number)
    code = process.wait(GRACE + 30.0)
    expected = (-number, 0) if number == signal.SIGKILL else (128 + number, 0)
    assert code in expected, f"signal {number}: exit code {code}: {lab.printed()}"
    assert "Traceback" not in lab.printed(), lab.printed()
    assert not (left := lab.left_behind()), f"processes left behind: {left}"


def progress(path: Path) -> tuple[int, int]:
    """Something that changes whenever a run writes."""
    try:
        found = (path / "metrics.jsonl").stat()
        return found.st_size, found.st_mtime_ns
    except OSError:
        return 0, 0


def torment(
    lab: Lab, name: str, command: str, wanted: list[int], counts: Counts, chance: random.Random
) -> None:
    """Sends a kind of run the signals that are wanted, over as many runs as that takes."""
    whole, started = lab.folder / f"{name}-whole", time.monotonic()
    lab.finish(lab.start(command, "--out", str(whole)))
    expected, startup = ended(whole), min(20.0, time.monotonic() - started)
    wanted = [*wanted]
    while wanted:
        path = lab.folder / f"{name}-{counts.ends}"
        while not (path / "summary.json").exists():
            exists = (path / "config.json").exists()
            begin = [command.split()[0]] if exists else [command]
            place = ("--resume", str(path)) if exists else ("--out", str(path))
            trust = ("--trust",) if exists else ()
            process = lab.start(*begin, *place, *trust)
            if not wanted:
                lab.finish(process)
                continue
            end_at_random(lab, process, path, wanted[0], startup, chance)
            if process.returncode == 0:
                continue
            had_checkpoint = require_sound(path)
            number = wanted.pop(0)
            counts.kills += number == signal.SIGKILL
            counts.terms += number == signal.SIGTERM
            counts.early += not had_checkpoint
        found = ended(path)
        assert found == expected, f"{found} where an untouched run has {expected}"
        counts.ends += 1


# --- All of them ----------------------------------------------------------------------------------


def chaos(kills: int, terms: int, seed: int, kinds: dict[str, str], folder: Path) -> list[Counts]:
    lab, found = Lab(folder), []
    for i, (name, command) in enumerate(kinds.items()):
        chance, counts, started = random.Random(f"{seed} {name}"), Counts(), time.monotonic()
        share = [(x + len(kinds) - 1 - i) // len(kinds) for x in (kills, terms)]
        wanted = [signal.SIGKILL] * share[0] + [signal.SIGTERM] * share[1]
        chance.shuffle(wanted)
        try:
            torment(lab, name.replace(" ", "-").replace(",", ""), command, wanted, counts, chance)
        except Exception as error:
            counts.failures.append(str(error))
        found.append(counts)
        print(
            f"{name:<26} {counts.kills:>4} SIGKILL {counts.terms:>3} SIGTERM, {counts.early:>2} of "
            f"them before the first checkpoint; {counts.ends} runs ended with the same bits; "
            f"{time.monotonic() - started:.0f} s",
            flush=True,
        )
        for failure in counts.failures:
            print(f"  FAILED: {failure}", flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description="Kills runs of every kind at random moments.")
    parser.add_argument("--kills", type=int, default=108, help="SIGKILLs, over all kinds of run")
    parser.add_argument("--terms", type=int, default=27, help="SIGTERMs, over all kinds of run")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", help="kinds of run whose name begins with this")
    asked = parser.parse_args()
    kinds = {name: x for name, x in KINDS.items() if name.startswith(asked.only or "")}
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="etude-chaos-") as folder:
        found = chaos(asked.kills, asked.terms, asked.seed, kinds, Path(folder).resolve())
    kills, terms, early, ends = (
        sum(getattr(c, x) for c in found) for x in ("kills", "terms", "early", "ends")
    )
    failures = sum(len(c.failures) for c in found)
    print(
        f"{kills} SIGKILLs and {terms} SIGTERMs ({early} before the first checkpoint) over "
        f"{len(kinds)} kinds of run, seed {asked.seed}: {ends} runs ended with the bits of an "
        f"untouched one, {failures} failures, {time.monotonic() - started:.0f} s."
    )
    sys.exit(bool(failures))


if __name__ == "__main__":
    main()
