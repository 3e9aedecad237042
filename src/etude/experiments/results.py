"""The result of an experiment as a small file, to be kept: verdicts, and what they came from."""

import json
import os
import time
from pathlib import Path
from typing import Any, Literal, NamedTuple, NotRequired, TypedDict, cast

from etude.errors import disk_errors
from etude.experiments.base import Experiment, Options, Reproduction
from etude.experiments.fingerprint import Fingerprint, fingerprint
from etude.runs.arrays import write_atomically
from etude.runs.folder import MADE, plain
from etude.runs.provenance import commit, made_now
from etude.runs.reading import damaged, read_json

RESULT = "result.json"
FORMAT = 1


class VerdictRecord(TypedDict):
    claim: str
    figure: float | None
    low: float | None
    high: float | None
    verdict: Literal["holds", "does not hold", "cannot be told"]


class MadeRecord(TypedDict):
    command: str | None
    commit: str | None
    at: str
    versions: NotRequired[dict[str, str]]
    machine: NotRequired[dict[str, Any]]


class SpentRecord(TypedDict):
    seconds: float
    cpu_seconds: float


class FingerprintRecord(TypedDict):
    experiment: str
    code: str


class Result(TypedDict):
    format: int
    experiment: str
    seeds: int
    seed: int
    full: bool
    verdicts: list[VerdictRecord]
    notes: list[str]
    made: MadeRecord
    spent: SpentRecord
    fingerprint: FingerprintRecord


class Begun(NamedTuple):
    """What is noted of an experiment when it begins: its code may be changed while it runs."""

    fingerprint: Fingerprint
    commit: str | None
    wall: float
    cpu: float

    @staticmethod
    def now(experiment: Experiment) -> "Begun":
        return Begun(fingerprint(experiment.home), commit(), time.monotonic(), _cpu_seconds())

    @property
    def seconds(self) -> float:
        """Since then."""
        return time.monotonic() - self.wall

    @property
    def spent(self) -> SpentRecord:
        cpu = _cpu_seconds() - self.cpu
        return SpentRecord(seconds=round(self.seconds, 1), cpu_seconds=round(cpu, 1))


def _cpu_seconds() -> float:
    """Of this process, and of those of its own that have ended."""
    return sum(os.times()[:4])


def command_of(name: str, options: Options) -> str:
    """What runs it again; where its folder was is of no interest."""
    words = ["etude reproduce", name, *["--full"] * options.full]
    return " ".join([*words, f"--seeds {options.seeds} --seed {options.seed}"])


def result_of(reproduction: Reproduction, name: str, options: Options, begun: Begun) -> Result:
    made = made_now(command_of(name, options))
    record = {
        "format": FORMAT,
        "experiment": name,
        "seeds": options.seeds,
        "seed": options.seed,
        "full": options.full,
        "verdicts": [vars(x) for x in reproduction.verdicts],
        "notes": list(reproduction.notes),
        MADE: made | {"commit": begun.commit},
        "spent": begun.spent,
        "fingerprint": begun.fingerprint._asdict(),
    }
    return cast(Result, plain(record))


def write_result(result: Result, path: Path) -> None:
    text = json.dumps(result, indent=1, ensure_ascii=False) + "\n"
    with disk_errors(f"Cannot write the result to {path}"):
        os.makedirs(path.parent, exist_ok=True)
        write_atomically(path, lambda file: file.write(text.encode()))


def read_results(folder: Path) -> dict[str, Result]:
    """All that are in a folder, by experiment; each is in a file of its name."""
    with disk_errors(f"{folder} cannot be read"):
        paths = sorted(folder.glob("*.json"))
    found = {path.stem: read_json(path, form=Result) for path in paths}
    for path in paths:
        if (name := found[path.stem]["experiment"]) != path.stem:
            raise damaged(path, f"it is the result of {name}")
        if found[path.stem]["format"] > FORMAT:
            raise damaged(path, "it was written by a later version of Etude")
    return found
