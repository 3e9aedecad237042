"""The run folder: config, metrics, checkpoint, summary. Nothing half-written, nothing lost, and
nothing written outside it."""

import datetime
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from etude import plugins
from etude.errors import UserError, disk_errors
from etude.runs import formats
from etude.runs.arrays import as_json, read_arrays, write_arrays, write_atomically
from etude.runs.inside import locked, mark, open_inside
from etude.runs.reading import (
    CONFIG_LIMITS,
    LINE_LIMITS,
    METRICS_BYTES,
    SUMMARY_LIMITS,
    damaged,
    is_file,
    parse_json,
    read_bytes,
    read_json,
    shortened,
)

CONFIG, METRICS, CHECKPOINT, SUMMARY = "config.json", "metrics.jsonl", "checkpoint", "summary.json"
LOCK = ".lock"
STARTING, SAVED = ".starting", ".saved"
"""Marks of a folder that is being made, and of one that has had a checkpoint."""

KIND, FORMAT, ID, IMPORT_FROM = "kind", "format", "id", "import_from"
MADE = "made"
"""What a config holds beside the run's settings: the kind of run, the version of the format, the
run's identity, the folder in which the run was started, from which what is named module:Class is
imported if the user trusts it, and what made it: command, time, versions and machine."""
ABOUT = (KIND, FORMAT, ID, IMPORT_FROM, MADE)
VERSION = 1
"""Of the format of run folders. Those of before it was written down are read as well."""
State = TypeVar("State")
"""A tree of arrays."""
Record = dict[str, Any]
"""One line of the log, or another thing that JSON holds."""


class RunFolder:
    """One run on disk."""

    def __init__(self, path: Path, identity: str | None = None):
        self.path = path
        self._new_identity = identity

    @staticmethod
    def create(out: str | None, name: str) -> "RunFolder":
        """A new folder (`out`, or a fresh one under `runs/`). With its config, it will be a run."""
        path = Path(out) if out else _fresh_path(name)
        with disk_errors(f"Cannot write to {shortened(path)}"):
            _require_free(path)
            path.mkdir(parents=True, exist_ok=True)
        return RunFolder(path, secrets.token_hex(16))

    def require_new(self) -> None:
        """Refuses a folder in which another process has begun a run since it was created. It must
        be locked, so that there is no other such process any more."""
        with disk_errors(f"Cannot write to {self.path}"):
            _require_free(self.path)

    @contextmanager
    def being_made(self) -> Iterator[None]:
        """Marks the folder until all is there that a run starts from."""
        with disk_errors(f"Cannot write to {self.path}"):
            mark(self.path / STARTING)
            yield
            (self.path / STARTING).unlink()

    @staticmethod
    def open(path: str) -> "RunFolder":
        if not is_file(Path(path) / CONFIG):
            raise UserError(f"{shortened(path)} is not a run folder: it has no {CONFIG}.")
        return RunFolder(Path(path))

    # --- Settings --------------------------------------------------------------------------------

    def config(self) -> Record:
        """All that `config.json` holds. To act on it, see `settings`."""
        return read_json(self.path / CONFIG, CONFIG_LIMITS)

    def settings(self) -> Record:
        """The settings of the run, to be acted upon: if they name code that is not Etude's, the
        user must have said that it is to be trusted."""
        config = self.config()
        if config.get(FORMAT, VERSION) != VERSION:
            raise UserError(
                f"{self.path} has format {str(config[FORMAT])[:20]} of run folders; this version "
                f"of Etude reads format {VERSION}."
            )
        settings = {name: value for name, value in config.items() if name not in ABOUT}
        import_from = config.get(IMPORT_FROM)
        plugins.require_trust(
            plugins.code_in(settings),
            str(self.path),
            import_from if isinstance(import_from, str) else None,
        )
        return settings

    @property
    def identity(self) -> str | None:
        """Of the run; None if it is of a version that gave none."""
        if self._new_identity is not None:
            return self._new_identity
        found = self.config().get(ID)
        if found is not None and not (isinstance(found, str) and found):
            raise damaged(self.path / CONFIG, f"{ID} should be text, and not empty")
        return found

    def write_config(self, config: Record) -> None:
        """Puts the config in place. A summary of the run as it was planned before is void."""
        with disk_errors(f"Cannot write the config in {self.path}"):
            (self.path / SUMMARY).unlink(missing_ok=True)
            self._write_json(CONFIG, config)

    def extend(self, field: str, value: int) -> None:
        """Writes a later end of the run down."""
        config = self.config()
        if config.get(field) != value:
            self.write_config(config | {field: value})

    # --- Writing ---------------------------------------------------------------------------------

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keeps other processes from writing to this run at the same time."""
        with locked(self.path / LOCK):
            yield

    def write_summary(self, summary: Record) -> None:
        with disk_errors(f"Cannot write the summary in {self.path}"):
            self._write_json(SUMMARY, summary)

    def log(self, record: Record) -> None:
        """Appends one line of metrics."""
        with (
            disk_errors(f"Cannot write metrics in {self.path}"),
            open_inside(self.path / METRICS, os.O_WRONLY | os.O_APPEND) as file,
        ):
            file.write(as_json(plain(record)) + b"\n")

    def save(self, state: object, updates: int, seconds: float, rule: str | None = None) -> None:
        """Puts a new checkpoint in place of the old one, at once or not at all.

        It remembers how long the metrics were, so that a resumed run takes up the log where the
        checkpoint left it, whose run it is, and the digest of the `rule` that it works with.
        """
        with disk_errors(
            f"The checkpoint in {self.path} could not be written, the one before it is still good"
        ):
            from etude.runs.storage import to_arrays  # imports JAX, which reading does without

            header = formats.Progress(
                updates=updates,
                seconds=seconds,
                metrics_bytes=self._sync(),
                run=self.identity,
                rule=rule,
            )
            write_arrays(self.path / CHECKPOINT, to_arrays(state), dict(header))
            mark(self.path / SAVED)

    def _sync(self) -> int:
        """Puts the metrics on disk, and says how long they are."""
        with open_inside(self.path / METRICS, os.O_WRONLY | os.O_APPEND) as file:
            os.fsync(file.fileno())
            return file.seek(0, os.SEEK_END)

    def _cut_metrics(self, length: int) -> None:
        path = self.path / METRICS
        with disk_errors(f"Cannot write metrics in {self.path}"):
            if path.exists() and path.stat().st_size > length:
                with open_inside(path, os.O_RDWR) as file:
                    file.truncate(length)

    def _write_json(self, name: str, value: Record) -> None:
        text = as_json(plain(value), indent=2) + b"\n"
        write_atomically(self.path / name, lambda file: file.write(text))

    # --- Reading ---------------------------------------------------------------------------------

    @property
    def kind(self) -> str | None:
        """The kind of the run, None if there is no telling. Folders of before kinds were written
        down are known by their settings."""
        config = self.config() if is_file(self.path / CONFIG) else {}
        trained = "online" if config.get("learn_rule") else "train"
        told_by = {"envs": "discover", "algo": "adapt", "env": trained}
        inferred = next((kind for field, kind in told_by.items() if field in config), None)
        kind = config.get(KIND, inferred)
        return kind if isinstance(kind, str) else None

    @property
    def has_checkpoint(self) -> bool:
        return is_file(self.path / CHECKPOINT)

    def summary(self) -> Record | None:
        """What a finished run wrote of itself."""
        path = self.path / SUMMARY
        if not is_file(path):
            return None
        form = formats.SUMMARIES.get(self.kind, dict[str, Any])
        summary = read_json(path, SUMMARY_LIMITS, form)
        if self.kind == "discover" and (check := summary["final_check"]):
            judged = [check[name].keys() for name in formats.FinalCheck.__required_keys__]
            if any(names != judged[0] for names in judged):
                raise damaged(path, "its final_check names other environments in each part")
        return summary

    def metrics(self) -> list[Record]:
        path = self.path / METRICS
        if not is_file(path):
            return []
        data, form = read_bytes(path, METRICS_BYTES), formats.RECORDS.get(self.kind, formats.Record)
        # A run killed while it wrote may leave its last line unfinished.
        lines = data[: data.rfind(b"\n") + 1].splitlines()
        records = [
            parse_json(line, f"Line {number} of {path}", LINE_LIMITS, form)
            for number, line in enumerate(lines, 1)
        ]
        for name in ("returns", "last_returns", "returns_before", "learned", "check"):
            shapes = [formats.form_of(x[name]) for x in records if name in x]
            if any(shape != shapes[0] for shape in shapes):
                raise damaged(path, f"{name} has other parts in some lines than in others")
        return records

    @property
    def updates_done(self) -> int:
        """As many as the last line of metrics tells of. The run may be going on."""
        records = self.metrics()
        return records[-1]["updates"] if records else 0

    def restore(self, like: State, rule: str | None = None) -> tuple[State, int, float] | None:
        """The last checkpoint's state, updates and seconds, or None if there is none yet. `rule` is
        the digest of the rule that the run works with."""
        if not self.has_checkpoint:
            self._require_none_lost()
            self._cut_metrics(0)
            return None
        state, progress = self._checkpoint(like, "")
        if None not in (rule, progress.get("rule")) and progress["rule"] != rule:
            raise UserError(
                f"The checkpoint in {self.path} was written under another rule than the one that "
                "lies there now."
            )
        self._cut_metrics(progress["metrics_bytes"])
        return state, progress["updates"], float(progress["seconds"])

    def _require_none_lost(self) -> None:
        if (self.path / SAVED).exists() or (self.path / SUMMARY).exists():
            raise UserError(
                f"{self.path} had a checkpoint, which is missing: put {self.path / CHECKPOINT} "
                "back, or start a new run with another --out."
            )

    def kept(self, like: State, name: str) -> State:
        """A part of the last checkpoint. Nothing in the folder changes: it may be running."""
        if not self.has_checkpoint:
            raise UserError(f"{self.path} holds no checkpoint yet.")
        return self._checkpoint(like, f"{name}.")[0]

    def _checkpoint(self, like: State, start: str) -> tuple[State, Record]:
        """What lies in the last checkpoint under names with this start, and the header."""
        from etude.runs.storage import bytes_of, from_arrays

        most = 2 * bytes_of(like)  # it may have been written with 64 bits for our 32
        path = self.path / CHECKPOINT
        arrays, header = read_arrays(path, start=start, most=most, form=formats.Progress)
        self.require_own(header.get("run"), "checkpoint")
        own = {name.removeprefix(start): value for name, value in arrays.items()}
        return from_arrays(like, own, f"The checkpoint in {self.path}"), header

    def require_own(self, identity: object, what: str) -> None:
        """Refuses a file of the folder that says it is of another run."""
        if identity != self.identity:
            raise UserError(f"The {what} in {self.path} is of another run.")


def _require_free(path: Path) -> None:
    """Refuses a path that holds something else than what keeps other processes out, or what a run
    that was killed while it made its folder has left."""
    if not path.exists():
        return
    if path.is_dir():
        names = {x.name for x in path.iterdir()}
        if not names - {LOCK} or (STARTING in names and CONFIG not in names):
            return
    hint = f", or continue that run with --resume {path}" if (path / CONFIG).is_file() else ""
    raise UserError(f"{path} is there already: choose another --out{hint}.")


def _fresh_path(name: str) -> Path:
    stamp = datetime.datetime.now().strftime("%Y%m%d-%H%M%S")
    safe = "".join(c if c.isalnum() or c in "-_=." else "-" for c in name)[:80]
    path, number = Path("runs") / f"{stamp}-{safe}", 1
    while path.exists():
        number += 1
        path = Path("runs") / f"{stamp}-{safe}-{number}"
    return path


def plain(value: object) -> object:
    """JSON has no arrays and no NaN: lists and null stand for them."""
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    if isinstance(value, (np.ndarray, np.generic)):
        return plain(value.tolist())
    if isinstance(value, float) and not np.isfinite(value):
        return None
    return value
