"""A long run must not grow: memory, open files, metrics and checkpoint over time.

    python -m benchmarks.soak --minutes 60

Starts a training in JAX and one on a simulator outside it (in a process of its own), side by side,
looks at them every so often from their first checkpoints on, prints a table, stops them as a
cluster would, and gives a verdict: at the end, resident memory is at most 1.05 times what it was
after a sixth of the time, there are no more open files, and the checkpoint is no larger. Needs
/proc, that is, Linux.
"""

import argparse
import dataclasses
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ENDLESS = "--steps 1e15"
COMMANDS = {
    "in JAX": f"train --env catch --rule actor_critic --replay-share 0.5 {ENDLESS}",
    "outside": f"train --env gym/CartPole-v1 --rule ppo --workers 1 {ENDLESS} --log-every 20",
}
CHECKPOINT_SECONDS = "10"
GROWTH = 1.05
BYTES_PER_LINE = 10_000


@dataclasses.dataclass(frozen=True)
class Look:
    """At a run, at some moment."""

    minutes: float
    memory_mb: float
    open_files: int
    metrics_kb: float
    lines: int
    checkpoint_kb: float

    def row(self) -> str:
        return (
            f"{self.minutes:8.1f} {self.memory_mb:10.1f} {self.open_files:6d} "
            f"{self.metrics_kb:12.1f} {self.lines:7d} {self.checkpoint_kb:14.1f}"
        )


HEADER = " minutes  memory MB  files   metrics kB   lines  checkpoint kB"


class Soaked:
    """A run that does not end by itself."""

    def __init__(self, name: str, command: str, folder: Path):
        self.name, self.path, self.began = name, folder / name.replace(" ", "-"), 0.0
        arguments = [*command.split(), "--out", str(self.path)]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "etude", *arguments, "--checkpoint-seconds", CHECKPOINT_SECONDS],
            stdout=subprocess.DEVNULL,
            cwd=folder,
        )
        self.looks: list[Look] = []

    def wait_for_work(self) -> None:
        """The clock starts with the first checkpoint."""
        while not (self.path / "checkpoint").exists():
            self._require_alive()
            time.sleep(0.5)
        self.began = time.monotonic()

    def _require_alive(self) -> None:
        if self.process.poll() is not None:
            raise SystemExit(f"{self.name} ended by itself: exit code {self.process.returncode}.")

    def look(self) -> None:
        self._require_alive()
        home = Path("/proc") / str(self.process.pid)
        memory = re.findall(r"VmRSS:\s+(\d+) kB", (home / "status").read_text())[0]
        self.looks.append(
            Look(
                (time.monotonic() - self.began) / 60,
                int(memory) / 1024,
                len(os.listdir(home / "fd")),
                _kilobytes(self.path / "metrics.jsonl"),
                _lines(self.path / "metrics.jsonl"),
                _kilobytes(self.path / "checkpoint"),
            )
        )

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(600)

    def verdict(self, settled: float) -> list[str]:
        """What is wrong; `settled` is the minute from which on nothing may grow."""
        early = next(look for look in self.looks if look.minutes >= settled)
        last, wrong = self.looks[-1], []
        if last.memory_mb > GROWTH * early.memory_mb:
            wrong.append(f"memory grew from {early.memory_mb:.0f} to {last.memory_mb:.0f} MB")
        if last.open_files > early.open_files:
            wrong.append(f"open files grew from {early.open_files} to {last.open_files}")
        if last.checkpoint_kb > early.checkpoint_kb > 0:
            wrong.append(f"the checkpoint grew to {last.checkpoint_kb:.0f} kB")
        if last.metrics_kb * 1024 > BYTES_PER_LINE * max(1, last.lines):
            wrong.append(f"metrics have {last.metrics_kb:.0f} kB in {last.lines} lines")
        if last.lines <= early.lines:
            wrong.append("it did not get on")
        return wrong

    def ratio(self, settled: float) -> float:
        early = next(look for look in self.looks if look.minutes >= settled)
        return self.looks[-1].memory_mb / early.memory_mb


def _kilobytes(path: Path) -> float:
    return path.stat().st_size / 1024 if path.exists() else 0.0


def _lines(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


def soak(minutes: float, folder: Path) -> bool:
    """Whether nothing grew."""
    runs = [Soaked(name, command, folder) for name, command in COMMANDS.items()]
    for run in runs:
        run.wait_for_work()
    pause, until = min(60.0, 60 * minutes / 18), time.monotonic() + 60 * minutes
    while time.monotonic() < until:
        time.sleep(min(pause, max(0.1, until - time.monotonic())))
        for run in runs:
            run.look()
            print(f"{run.name}: {run.looks[-1].row()}", flush=True)
    codes, fine = [run.stop() for run in runs], True
    for run, code in zip(runs, codes, strict=True):
        print(f"\n{run.name}, stopped with exit code {code}\n{HEADER}")
        print("\n".join(look.row() for look in run.looks[:: max(1, len(run.looks) // 12)]))
        wrong = run.verdict(minutes / 6) + ["it was not saved"] * (code != 143)
        grown = f"memory at the end {run.ratio(minutes / 6):.3f} × that after {minutes / 6:g} min"
        print(f"{grown}: {'; '.join(wrong) or 'flat'}.")
        fine = fine and not wrong
    return fine


def main() -> None:
    parser = argparse.ArgumentParser(description="Whether a long run grows.")
    parser.add_argument("--minutes", type=float, default=60.0)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="etude-soak-") as folder:
        fine = soak(asked.minutes, Path(folder))
    print(f"\n{asked.minutes:g} minutes: {'nothing grew' if fine else 'SOMETHING GREW'}.")
    sys.exit(not fine)


if __name__ == "__main__":
    main()
