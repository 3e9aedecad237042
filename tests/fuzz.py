"""Mutated files against the reader: `make fuzz`, or `python -m tests.fuzz --cases 1000 --seed 3`.

Each case takes a sound file of a run folder, damages it by chance or with malice, and reads it as
the commands do. It must be read, or refused in one sentence: no other exception, no import, no
program started, nothing written elsewhere, and memory of at most twice the size of the file (or of
what it declares to hold, if that is allowed), plus `VALUE` for each value in a JSON file, plus
`SLACK`.
"""

import argparse
import io
import os
import random
import sys
import tempfile
import threading
import time
import tracemalloc
import warnings
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, NoReturn

from jaxtyping import TypeCheckError
from rich.console import Console

from etude import rules
from etude.adaptation.saved import read_config as read_adapt
from etude.cli import running, terminal
from etude.comparing import run as comparing
from etude.comparing.results import Result
from etude.comparing.suites import find_entries
from etude.errors import UserError
from etude.kinds import COMPARE, KINDS, TUNE, open_folder
from etude.meta.discovery.report import plot_checks
from etude.meta.discovery.saved import read_config as read_discovery
from etude.report.build import build
from etude.report.render import render_main
from etude.rules import names
from etude.runs.arrays import UNPACKED_BYTES
from etude.runs.figures import curve_arrays, label_of, plot_curves
from etude.runs.folder import Record, RunFolder
from etude.training.planning import read_plan
from etude.training.presets import files
from etude.tuning import run as tuning
from etude.tuning.search import Search
from tests.damage import damage_bytes, damage_json, damage_lines, damage_npz, damage_text
from tests.sound import FILES, LIKE, LISTED, REPRODUCTION, SETTINGS, write_sound

SLACK, VALUE = 3 << 20, 40
OPENED = ("config.json", "metrics.jsonl", "summary.json")
"""What a page is made of."""


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


def read_comparison(folder: RunFolder) -> None:
    comparison, again = comparing.reopen(str(folder.path))
    for cell in comparison.cells:
        Result.read(cell, folder.path, None)
    again.summary()


def read_search(folder: RunFolder) -> None:
    config, again = tuning.reopen(str(folder.path))
    Search(config, again, Nowhere())
    again.summary()


class Nowhere:
    """No place for any training."""

    number = 0

    def start(self, job: object, place: int) -> NoReturn:
        raise AssertionError("a training was started")


def read_files(folder: RunFolder) -> None:
    files.read(folder.path / SETTINGS)
    find_entries(str(folder.path / LISTED))


def read_nothing(folder: RunFolder) -> None:
    """Of reproductions, which have a page and nothing else."""


READERS = {
    "config.json": read_config,
    "metrics.jsonl": read_metrics,
    "summary.json": read_summary,
    "checkpoint": read_checkpoint,
    "rule.npz": read_rule,
}
OTHERS = {
    COMPARE: read_comparison,
    TUNE: read_search,
    REPRODUCTION: read_nothing,
    FILES: read_files,
}
HELD = ["config.json", "metrics.jsonl", "summary.json"]
FILES_OF = {
    COMPARE: ["config.json", "summary.json", *(f"cells/catch--ppo/{name}" for name in HELD)],
    TUNE: ["config.json", "summary.json", "study.jsonl"],
    REPRODUCTION: ["summary.json"],
    FILES: [SETTINGS, LISTED],
}


def reader_of(kind: str, name: str) -> Callable[[RunFolder], None]:
    return OTHERS[kind] if kind in OTHERS else READERS[name]


def draw(folder: RunFolder, records: list[Record]) -> None:
    path = folder.path / "curve.png"
    if folder.kind == "discover":
        plot_checks([records], path)
    else:
        plot_curves([("x", records)], path)


# --- Damage ---------------------------------------------------------------------------------------

DAMAGE = {
    "config.json": damage_json,
    "metrics.jsonl": damage_lines,
    "summary.json": damage_json,
    "checkpoint": damage_npz,
    "rule.npz": damage_npz,
    "study.jsonl": damage_lines,
    SETTINGS: damage_json,
    LISTED: damage_text,
}


# --- Watching -------------------------------------------------------------------------------------


class Watch:
    """Hears of all that a process does to the world outside its memory."""

    def __init__(self) -> None:
        self.allowed: Path | None = None
        self.seen: list[str] = []
        self.others: set[int | None] = set()
        """Threads that some test has left behind."""
        sys.addaudithook(self._hear)  # there is no taking it back

    @contextmanager
    def over(self, folder: Path) -> Iterator[list[str]]:
        self.allowed, self.seen = folder, []
        self.others = {x.ident for x in threading.enumerate()} - {threading.get_ident()}
        try:
            yield self.seen
        finally:
            self.allowed = None

    def _hear(self, event: str, arguments: tuple) -> None:
        checker = event == "import" and str(arguments[0]).startswith("beartype.")
        if self.allowed is None or checker:  # which imports its error messages late
            return
        if threading.get_ident() in self.others:
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


def run_case(folder: RunFolder, kind: str, name: str, draws: bool) -> tuple[bool, str]:
    """Whether it was refused, and what went wrong."""
    path = folder.path / name
    with the_watch().over(folder.path.resolve()) as seen:
        refused, wrong, used = measured(lambda: reader_of(kind, name)(folder))
        if used > allowed_memory(path):  # Python's own tables grow now and then, but not each time
            used = measured(lambda: reader_of(kind, name)(folder))[2]
        if draws and kind in KINDS and name == "metrics.jsonl" and not refused:
            wrong = wrong or attempt(lambda: draw(folder, folder.metrics()))[1]
        if draws and kind != FILES and os.path.basename(name) in OPENED:
            wrong = wrong or attempt(lambda: render_main(build([str(folder.path)])).encode())[1]
    if seen:
        wrong = wrong or seen[0]
    if used > allowed_memory(path):
        wrong = wrong or f"{used:,} bytes of memory"
    return refused, wrong


def measured(work: Callable[[], object]) -> tuple[bool, str, int]:
    """As `attempt`, and the most memory that was used at any time."""
    tracemalloc.reset_peak()
    before = tracemalloc.get_traced_memory()[0]
    return *attempt(work), tracemalloc.get_traced_memory()[1] - before


def attempt(work: Callable[[], object]) -> tuple[bool, str]:
    """Whether it was refused in a sentence, and what else it ended in."""
    try:
        work()
    except UserError as error:
        text = str(error)
        is_sentence = "\n" not in text and len(text) <= 1500
        return True, "" if is_sentence else f"no sentence: {text[:80]!r}"
    except KeyboardInterrupt:
        raise
    except TypeCheckError:  # in pytest, types are checked before our own look: `make fuzz` has that
        return True, ""
    except BaseException as error:
        return False, f"{type(error).__name__}: {str(error)[:200]}"
    return False, ""


def fuzz(
    cases: int,
    seed: int,
    scratch: Path,
    say: Callable[[str], None] = lambda x: None,
    drawn: float = 0.05,
    keep: Path | None = None,
) -> Outcome:
    """As many cases, spread over all files of all kinds of folder. Of a share, pages and figures
    are made, too. Files that something went wrong with are kept in a folder, if one is given."""
    with unheard():
        return _fuzz(cases, seed, scratch, say, drawn, keep)


@contextmanager
def unheard() -> Iterator[None]:
    """Within it, what the command line prints goes nowhere."""
    before, terminal.out = terminal.out, Console(file=io.StringIO(), width=100)
    try:
        yield
    finally:
        terminal.out = before


def _fuzz(
    cases: int,
    seed: int,
    scratch: Path,
    say: Callable[[str], None],
    drawn: float,
    keep: Path | None,
) -> Outcome:
    targets = [(kind, name) for kind in KINDS for name in READERS]
    targets += [(kind, name) for kind, names in FILES_OF.items() for name in names]
    folders = {kind: write_sound(scratch / kind, kind) for kind in dict(targets)}
    sound = {(k, n): (folders[k].path / n).read_bytes() for k, n in targets}
    for kind, name in targets:  # what is imported late is imported now
        refused, _ = run_case(folders[kind], kind, name, draws=drawn > 0.0)
        assert refused <= (name == "checkpoint"), f"{name} of {kind} is refused"
    chance, failures, by_file, refused = random.Random(seed), [], Counter(), 0
    tracemalloc.start()
    for number in range(cases):
        kind, name = targets[number % len(targets)]
        path = folders[kind].path / name
        damage = DAMAGE[os.path.basename(name)] if chance.random() < 0.6 else damage_bytes
        path.write_bytes(damage(sound[kind, name], chance))
        was_refused, wrong = run_case(folders[kind], kind, name, draws=chance.random() < drawn)
        refused += was_refused
        by_file[os.path.basename(name)] += 1
        if wrong:
            failures.append(f"case {number}, {name} of {kind}: {wrong}")
            say(failures[-1])
            if keep is not None:
                (keep / f"{number}-{kind}-{os.path.basename(name)}").write_bytes(path.read_bytes())
        path.write_bytes(sound[kind, name])
        if kind in KINDS:  # a damaged checkpoint may have cut them
            (folders[kind].path / "metrics.jsonl").write_bytes(sound[kind, "metrics.jsonl"])
        terminal.out.file.seek(0)
        terminal.out.file.truncate()
    tracemalloc.stop()
    return Outcome(cases, refused, failures, by_file)


def main() -> None:
    parser = argparse.ArgumentParser(description="Mutated files against the reader.")
    parser.add_argument("--cases", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=Path, help="a folder for the files that fail")
    asked = parser.parse_args()
    warnings.simplefilter("error")
    started = time.monotonic()
    if asked.keep is not None:
        asked.keep.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="etude-fuzz-") as scratch:
        outcome = fuzz(asked.cases, asked.seed, Path(scratch), print, keep=asked.keep)
    each = ", ".join(f"{name} {number:,}" for name, number in outcome.by_file.items())
    print(f"{outcome.cases:,} mutated files ({each}), seed {asked.seed}:")
    print(
        f"{outcome.refused:,} refused in a sentence, {outcome.cases - outcome.refused:,} read, "
        f"{len(outcome.failures)} failures, {time.monotonic() - started:.0f} s."
    )
    sys.exit(bool(outcome.failures))


if __name__ == "__main__":
    main()
