"""Mutated files against the reader: `make fuzz`, or `python -m tests.fuzz --cases 1000 --seed 3`.

Each case takes a sound file of a run folder, damages it by chance or with malice, and reads it as
the commands do. It must be read, or refused in one sentence: no other exception, no import, no
program started, nothing written elsewhere, and memory of at most twice the size of the file (or of
what it declares to hold, if that is allowed), plus `VALUE` for each value in a JSON file, plus
`SLACK`.
"""

import argparse
import io
import json
import os
import random
import sys
import tempfile
import time
import tracemalloc
import warnings
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from rich.console import Console

from etude import rules
from etude.adaptation.config import AdaptConfig
from etude.adaptation.saved import read_config as read_adapt
from etude.cli import running, terminal
from etude.errors import UserError
from etude.kinds import KINDS, open_folder
from etude.meta.discovery.config import DiscoverConfig
from etude.meta.discovery.report import plot_checks
from etude.meta.discovery.saved import read_config as read_discovery
from etude.rules import names
from etude.rules.actor_critic import ActorCritic
from etude.runs.arrays import UNPACKED_BYTES
from etude.runs.figures import curve_arrays, label_of, plot_curves
from etude.runs.folder import RunFolder
from etude.training.config import TrainRequest
from etude.training.planning import plan_named, read_plan

SLACK, VALUE = 3 << 20, 40
EVIL = "evil_module"
"""Lies in the folder. To import it is to have failed."""
CODE = f"{EVIL}:Env", f"gym/{EVIL}:Env-v0", f"trials/{EVIL}:Env:a=1", "os:system:command=touch x"
HOSTILE: list[Any] = [
    None, True, -1, 0, 2**62, 10**19, 10**400, -(10**30), 1e308, 0.5, "", "x" * 70_000, "\0", "nan",
    [], {}, [[]], [1, "a", None], {"a": {}}, float("nan"), float("inf"), -float("inf"), *CODE,
]  # fmt: skip
STATE = {"x": np.arange(6.0, dtype=np.float32), "key": np.zeros((2, 2), np.uint32)}
LIKE = {
    "x": jax.ShapeDtypeStruct((6,), np.float32),
    "key": jax.ShapeDtypeStruct((2,), jax.random.key(0).dtype),
}


# --- Sound folders --------------------------------------------------------------------------------

SCORE = {"mean": 0.5, "low": None, "high": 1.0, "per_seed": [0.5, None]}
CHECK = {x: {"catch": SCORE} for x in ("returns", "start", "baseline", "untrained")}
WORK = {"seconds": 2.5, "steps_per_second": 99.5, "environment_steps": 64, "updates": 4}
TRAINED = WORK | {"final_return": SCORE, "seeds": 2, "params_sha256": "0" * 64}
CURVE = {"steps": 32, "seconds": 1.5, "return": 0.5, "returns": [0.5, None]}
DISCOVERED = dict.fromkeys(
    ["meta_loss", "pg_loss", "reg_loss", "meta_gradient_norm", "agent_loss", "age"], 0.5
)


def settings_of(kind: str) -> dict[str, Any]:
    if kind == "discover":
        return vars(DiscoverConfig())
    if kind == "adapt":
        return AdaptConfig().filled().settings()
    return plan_named(TrainRequest(rule="metagrad" if kind == "online" else "ppo")).plan.settings()


RECORDS: dict[str, dict[str, Any]] = {
    "train": CURVE | {"last_returns": [0.5, None]},
    "online": CURVE | {"learned": {"gamma": [0.9, 0.8]}, "outer_loss": 0.1},
    "adapt": CURVE | {"returns_before": [0.1, 0.2], "test_before": 0.1, "test_after": 0.5},
    "discover": DISCOVERED
    | {"steps": 32, "seconds": 1.5, "resets": 0, "skipped": 0, "returns": {"catch": None}}
    | {"check": CHECK | {"score": 0.1, "best": 0.2}},
}
SUMMARIES = {
    "train": TRAINED,
    "online": TRAINED | {"outcomes": {"coins": [0.5, 1.0]}},
    "adapt": WORK | {"fresh_tasks": 9, "before": SCORE, "after": SCORE},
    "discover": WORK | {"best_meta_step": 3, "final_check": CHECK},
}


def write_sound(path: Path, kind: str) -> RunFolder:
    """A folder as a run would leave it; no run takes place."""
    folder = RunFolder.create(str(path), "")
    rules.save_kept(folder, rules.RULE_FILE, ActorCritic(), {"batch": 8, "torso": (8,)})
    about = {"kind": kind, "format": 1, "id": folder.identity, "import_from": str(path)}
    folder.write_config(about | settings_of(kind))
    for updates in (2, 4):
        folder.log({"updates": updates} | RECORDS[kind])
    folder.save(STATE, 4, 2.5)
    folder.write_summary(SUMMARIES[kind])
    (path / f"{EVIL}.py").write_text("raise SystemError('imported')\n")
    return RunFolder(path)


# --- Reading, as the commands do ------------------------------------------------------------------

READ_SETTINGS: dict[str, Callable[[RunFolder], object]] = {
    "train": read_plan,
    "online": read_plan,
    "discover": read_discovery,
    "adapt": read_adapt,
}


def read_config(folder: RunFolder) -> None:
    opened = open_folder(str(folder.path))
    label_of(opened.config())
    READ_SETTINGS[str(opened.kind)](opened)
    assert folder.identity != ""


def read_metrics(folder: RunFolder) -> None:
    records = folder.metrics()
    if folder.kind != "discover":
        curve_arrays(records)


def read_summary(folder: RunFolder) -> None:
    summary = folder.summary()
    assert summary is not None
    running.PRINT[KINDS[str(folder.kind)].command](summary, folder)


def read_checkpoint(folder: RunFolder) -> None:
    folder.restore(LIKE)
    folder.kept({"0": LIKE["x"]}, "no.such.part")


def read_rule(folder: RunFolder) -> None:
    path = str(folder.path / rules.RULE_FILE)
    names.kind_named(path)
    names.suggested(path)
    rules.load_kept(folder, rules.RULE_FILE)


READERS = {
    "config.json": read_config,
    "metrics.jsonl": read_metrics,
    "summary.json": read_summary,
    "checkpoint": read_checkpoint,
    "rule.npz": read_rule,
}


def draw(folder: RunFolder, records: list[dict[str, Any]]) -> None:
    path = folder.path / "curve.png"
    if folder.kind == "discover":
        plot_checks([records], path)
    else:
        plot_curves([("x", records)], path)


# --- Damage ---------------------------------------------------------------------------------------


def damage_bytes(data: bytes, chance: random.Random) -> bytes:
    for _ in range(chance.choice((1, 1, 1, 3, 10))):
        at, end = sorted(chance.randrange(len(data) + 1) for _ in range(2))
        data = damaged_between(data, at, min(end, at + 64), chance)
    return data


def damaged_between(data: bytes, at: int, end: int, chance: random.Random) -> bytes:
    before, part, after = data[:at], data[at:end], data[end:]
    ways = [
        before,
        before + after,
        before + chance.randbytes(len(part)) + after,
        before + part * 3 + after,
        before + bytes([chance.randrange(256)]) + data[at + 1 :],
        before + chance.choice((b"[", b"{", b'"', b"9", b"\0", b",")) + data[at:],
        before + b"\xff" * len(part) + after,
    ]
    return chance.choice(ways)


def damage_json(data: bytes, chance: random.Random) -> bytes:
    """One value somewhere is another, is gone, or is nested deep."""
    value = json.loads(data)
    spots = list(places(value))
    where, name = chance.choice(spots)
    what = chance.randrange(8)
    if what == 0:
        del where[name]
    elif what == 1:
        where[name] = [where[name]]
    else:
        where[name] = chance.choice(HOSTILE)
    if chance.random() < 0.02:
        depth = chance.choice((20, 2_000, 100_000))
        return b'{"env": ' + b"[" * depth + b"]" * depth + b"}"
    if chance.random() < 0.01:
        return b'{"env": [' + b"[]," * 200_000 + b"0]}"
    return json.dumps(value).encode()


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    pairs = value.items() if isinstance(value, dict) else enumerate(value)
    for name, part in pairs:
        yield value, name
        if isinstance(part, (dict, list)):
            yield from places(part)


def damage_lines(data: bytes, chance: random.Random) -> bytes:
    lines = data.splitlines()
    at = chance.randrange(len(lines))
    lines[at] = damage_json(lines[at], chance)
    return b"\n".join(lines) + b"\n"


def damage_npz(data: bytes, chance: random.Random) -> bytes:
    """Another header, other arrays, other packing."""
    with np.load(io.BytesIO(data)) as file:
        arrays = dict(file)
    what = chance.randrange(6)
    if what <= 2:
        text = damage_json(arrays["__header__"].tobytes(), chance)
        arrays["__header__"] = np.frombuffer(text, np.uint8)
    else:
        name = chance.choice([*arrays, "new"])
        arrays[name] = hostile_array(chance)
    if what == 5:
        return bomb(chance)
    buffer = io.BytesIO()
    chance.choice((np.savez, np.savez_compressed))(buffer, **arrays)
    return buffer.getvalue()


def hostile_array(chance: random.Random) -> np.ndarray:
    dtype = chance.choice(["f4", "f8", "i8", "u4", "b1", "c8", "U9", "S5", "V3", "M8[s]", "f2"])
    shape = chance.choice([(), (6,), (2, 2), (0,), (0, 9), (1, 0, 3), (1,) * 20, (3000,)])
    return np.zeros(shape, np.dtype(dtype))


def bomb(chance: random.Random) -> bytes:
    """Entries that claim, or hold, far more than they weigh."""
    buffer = io.BytesIO()
    packing = chance.choice((zipfile.ZIP_DEFLATED, zipfile.ZIP_LZMA, zipfile.ZIP_BZIP2))
    with zipfile.ZipFile(buffer, "w", packing) as archive:
        number = chance.choice((10, 10**6, 10**14))
        head = io.BytesIO()
        form = {"descr": "<f8", "fortran_order": False, "shape": (number,)}
        np.lib.format.write_array_header_1_0(head, form)
        archive.writestr("x.npy", head.getvalue() + bytes(chance.choice((80, 80_000))))
    data = bytearray(buffer.getvalue())
    at = data.rfind(b"PK\x01\x02")
    data[at + 24 : at + 28] = chance.choice((b"\xff\xff\xff\x7f", b"\x00\x00\x00\x10", b"\1\0\0\0"))
    return bytes(data)


DAMAGE = {
    "config.json": damage_json,
    "metrics.jsonl": damage_lines,
    "summary.json": damage_json,
    "checkpoint": damage_npz,
    "rule.npz": damage_npz,
}


# --- Watching -------------------------------------------------------------------------------------


class Watch:
    """Hears of all that a process does to the world outside its memory."""

    def __init__(self) -> None:
        self.allowed: Path | None = None
        self.seen: list[str] = []
        sys.addaudithook(self._hear)  # there is no taking it back

    @contextmanager
    def over(self, folder: Path) -> Iterator[list[str]]:
        self.allowed, self.seen = folder, []
        try:
            yield self.seen
        finally:
            self.allowed = None

    def _hear(self, event: str, arguments: tuple) -> None:
        checker = event == "import" and str(arguments[0]).startswith("beartype.")
        if self.allowed is None or checker:  # which imports its error messages late
            return
        started = event in ("import", "os.system", "os.exec", "os.posix_spawn", "subprocess.Popen")
        if started or event.startswith(("socket.", "shutil.", "ctypes.dlopen", "pickle.")):
            self.seen.append(f"{event} {str(arguments)[:100]}")
        elif event == "open" and isinstance(arguments[2], int) and isinstance(arguments[0], str):
            writes = arguments[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
            if writes and self.allowed not in Path(arguments[0]).resolve().parents:
                self.seen.append(f"writes to {arguments[0]}")


_WATCHES: list[Watch] = []


def the_watch() -> Watch:
    if not _WATCHES:
        _WATCHES.append(Watch())
    return _WATCHES[0]


class Outcome(NamedTuple):
    cases: int
    refused: int
    failures: list[str]
    by_file: Counter


def allowed_memory(path: Path) -> int:
    size = declared = path.stat().st_size
    if path.suffix in (".json", ".jsonl"):
        return 2 * size + VALUE * sum(map(path.read_bytes().count, (b",", b"[", b"{"))) + SLACK
    try:
        with zipfile.ZipFile(path) as archive:
            declared = sum(x.file_size for x in archive.infolist())
    except Exception:
        pass
    return 2 * max(size, declared if declared <= UNPACKED_BYTES else 0) + SLACK


def run_case(folder: RunFolder, name: str, draws: bool) -> tuple[bool, str]:
    """Whether it was refused, and what went wrong."""
    refused, wrong = False, ""
    tracemalloc.reset_peak()
    before = tracemalloc.get_traced_memory()[0]
    with the_watch().over(folder.path.resolve()) as seen:
        try:
            READERS[name](folder)
            if draws and name == "metrics.jsonl":
                draw(folder, folder.metrics())
        except UserError as error:
            refused, text = True, str(error)
            if "\n" in text or len(text) > 1500:
                wrong = f"no sentence: {text[:80]!r}"
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                raise
            wrong = f"{type(error).__name__}: {str(error)[:200]}"
    used = tracemalloc.get_traced_memory()[1] - before
    if seen:
        wrong = wrong or seen[0]
    if used > allowed_memory(folder.path / name):
        wrong = wrong or f"{used:,} bytes of memory"
    return refused, wrong


def fuzz(
    cases: int, seed: int, scratch: Path, say: Callable[[str], None] = lambda x: None
) -> Outcome:
    """As many cases, spread over all files of all kinds of run."""
    with unheard():
        return _fuzz(cases, seed, scratch, say)


@contextmanager
def unheard() -> Iterator[None]:
    """Within it, what the command line prints goes nowhere."""
    before, terminal.out = terminal.out, Console(file=io.StringIO(), width=100)
    try:
        yield
    finally:
        terminal.out = before


def _fuzz(cases: int, seed: int, scratch: Path, say: Callable[[str], None]) -> Outcome:
    targets = [(kind, name) for kind in KINDS for name in READERS]
    folders = {kind: write_sound(scratch / kind, kind) for kind in KINDS}
    sound = {(k, n): (folders[k].path / n).read_bytes() for k, n in targets}
    for kind, name in targets:  # what is imported late is imported now
        folder = folders[kind]
        try:
            READERS[name](folder)
        except UserError as error:
            assert "no.such.part" in str(error) or "lacks 0" in str(error), error
        if name == "metrics.jsonl":
            draw(folder, folder.metrics())
    chance, failures, by_file, refused = random.Random(seed), [], Counter(), 0
    tracemalloc.start()
    for number in range(cases):
        kind, name = targets[number % len(targets)]
        path = folders[kind].path / name
        damage = DAMAGE[name] if chance.random() < 0.6 else damage_bytes
        path.write_bytes(damage(sound[kind, name], chance))
        was_refused, wrong = run_case(folders[kind], name, draws=number % 500 < 20)
        refused += was_refused
        by_file[name] += 1
        if wrong:
            failures.append(f"case {number}, {name} of {kind}: {wrong}")
            say(failures[-1])
        path.write_bytes(sound[kind, name])
        (folders[kind].path / "metrics.jsonl").write_bytes(sound[kind, "metrics.jsonl"])
        terminal.out.file.seek(0)
        terminal.out.file.truncate()
    tracemalloc.stop()
    return Outcome(cases, refused, failures, by_file)


def main() -> None:
    parser = argparse.ArgumentParser(description="Mutated files against the reader.")
    parser.add_argument("--cases", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    warnings.simplefilter("error")
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="etude-fuzz-") as scratch:
        outcome = fuzz(asked.cases, asked.seed, Path(scratch), print)
    each = ", ".join(f"{name} {number:,}" for name, number in outcome.by_file.items())
    print(f"{outcome.cases:,} mutated files ({each}), seed {asked.seed}:")
    print(
        f"{outcome.refused:,} refused in a sentence, {outcome.cases - outcome.refused:,} read, "
        f"{len(outcome.failures)} failures, {time.monotonic() - started:.0f} s."
    )
    sys.exit(bool(outcome.failures))


if __name__ == "__main__":
    main()
