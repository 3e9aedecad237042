"""The run folder: config, metrics, checkpoint, summary. Nothing half-written, nothing lost."""

import datetime
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from etude import plugins
from etude.errors import UserError, disk_errors
from etude.runs.arrays import read_arrays, write_arrays, write_atomically

CONFIG, METRICS, CHECKPOINT, SUMMARY = "config.json", "metrics.jsonl", "checkpoint", "summary.json"
LOCK = ".lock"

KIND, FORMAT, IMPORT_FROM = "kind", "format", "import_from"
"""What a config holds beside the run's settings: the kind of run, the version of the format, and
the folder in which the run was started, from which what is named module:Class is imported."""
VERSION = 1
"""Of the format of run folders. Those of before it was written down are read as well."""
State = TypeVar("State")
"""A tree of arrays."""
Record = dict[str, Any]
"""One line of the log, or another thing that JSON holds."""

try:
    import fcntl
except ImportError:  # not a Unix system
    fcntl = None


class RunFolder:
    """One run on disk."""

    def __init__(self, path: Path):
        self.path = path

    @staticmethod
    def create(out: str | None, name: str) -> "RunFolder":
        """A new folder (`out`, or a fresh one under `runs/`). With its config, it will be a run."""
        path = Path(out) if out else _fresh_path(name)
        with disk_errors(f"Cannot write to {path}"):
            if path.exists() and (not path.is_dir() or any(path.iterdir())):
                is_run = (path / CONFIG).is_file()
                hint = f", or continue that run with --resume {path}" if is_run else ""
                raise UserError(f"{path} is there already: choose another --out{hint}.")
            path.mkdir(parents=True, exist_ok=True)
        return RunFolder(path)

    @staticmethod
    def open(path: str) -> "RunFolder":
        if not (Path(path) / CONFIG).is_file():
            raise UserError(f"{path} is not a run folder: it has no {CONFIG}.")
        return RunFolder(Path(path))

    def config(self) -> Record:
        return self._read_json(CONFIG)

    def settings(self) -> Record:
        """The settings of the run, without what else the config holds."""
        config = self.config()
        if config.get(FORMAT, VERSION) != VERSION:
            raise UserError(
                f"{self.path} has format {config[FORMAT]} of run folders; this version of Etude "
                f"reads format {VERSION}."
            )
        return {k: v for k, v in config.items() if k not in (KIND, FORMAT, IMPORT_FROM)}

    def let_import(self) -> None:
        """Lets what is named module:Class be imported from where the run was started."""
        plugins.look_in(str(self.config().get(IMPORT_FROM, os.getcwd())))

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

    @property
    def has_checkpoint(self) -> bool:
        return (self.path / CHECKPOINT).is_file()

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keeps other processes from writing to this run at the same time."""
        if fcntl is None:  # not a Unix system
            yield
            return
        with disk_errors(f"Cannot write to {self.path}"):
            lock = open(self.path / LOCK, "w")  # noqa: SIM115
        with lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise UserError(f"Another process is working on {self.path}.") from None
            yield

    def write_summary(self, summary: Record) -> None:
        with disk_errors(f"Cannot write the summary in {self.path}"):
            self._write_json(SUMMARY, summary)

    def summary(self) -> Record | None:
        """What a finished run wrote of itself."""
        return self._read_json(SUMMARY) if (self.path / SUMMARY).is_file() else None

    def log(self, record: Record) -> None:
        """Appends one line of metrics."""
        with (
            disk_errors(f"Cannot write metrics in {self.path}"),
            open(self.path / METRICS, "a") as file,
        ):
            file.write(json.dumps(_plain(record)) + "\n")

    def metrics(self) -> list[Record]:
        path = self.path / METRICS
        if not path.is_file():
            return []
        with disk_errors(f"{path} cannot be read"):
            text = path.read_text(errors="replace")
        # A run killed while it wrote may leave its last line unfinished.
        lines = text[: text.rfind("\n") + 1].splitlines()
        try:
            records = [json.loads(line) for line in lines]
        except ValueError as error:
            raise UserError(f"{path} is damaged: {error}.") from None
        if not all(isinstance(x, dict) and {"updates", "steps"} <= x.keys() for x in records):
            raise UserError(f"{path} is damaged: a line of it is no record of a run.")
        return records

    def save(self, state: object, updates: int, seconds: float) -> None:
        """Puts a new checkpoint in place of the old one, at once or not at all.

        It remembers how long the metrics were, so that a resumed run takes up the log where the
        checkpoint left it.
        """
        with disk_errors(
            f"The checkpoint in {self.path} could not be written, the one before it is still good"
        ):
            from etude.runs.storage import to_arrays  # imports JAX, which reading does without

            progress = {"updates": updates, "seconds": seconds, "metrics_bytes": self._sync()}
            write_arrays(self.path / CHECKPOINT, to_arrays(state), progress)

    def restore(self, like: State) -> tuple[State, int, float] | None:
        """The last checkpoint's state, updates and seconds, or None if there is none yet."""
        if not self.has_checkpoint:
            self._cut_metrics(0)
            return None
        state, progress = self._checkpoint(like, "")
        try:
            self._cut_metrics(int(progress["metrics_bytes"]))
            return state, int(progress["updates"]), float(progress["seconds"])
        except (KeyError, TypeError, ValueError):
            raise UserError(f"The checkpoint in {self.path} has a damaged header.") from None

    def kept(self, like: State, name: str) -> State:
        """A part of the last checkpoint. Nothing in the folder changes: it may be running."""
        if not self.has_checkpoint:
            raise UserError(f"{self.path} holds no checkpoint yet.")
        return self._checkpoint(like, f"{name}.")[0]

    def _checkpoint(self, like: State, start: str) -> tuple[State, Record]:
        """What lies in the last checkpoint under names with this start, and the header."""
        from etude.runs.storage import from_arrays

        arrays, header = read_arrays(self.path / CHECKPOINT)
        own = {k.removeprefix(start): v for k, v in arrays.items() if k.startswith(start)}
        return from_arrays(like, own, f"The checkpoint in {self.path}"), header

    def _sync(self) -> int:
        """Puts the metrics on disk, and says how long they are."""
        with open(self.path / METRICS, "ab") as file:
            os.fsync(file.fileno())
            return file.tell()

    def _cut_metrics(self, length: int) -> None:
        path = self.path / METRICS
        with disk_errors(f"Cannot write metrics in {self.path}"):
            if path.exists() and path.stat().st_size > length:
                os.truncate(path, length)

    def _write_json(self, name: str, value: Record) -> None:
        text = json.dumps(_plain(value), indent=2) + "\n"
        write_atomically(self.path / name, lambda file: file.write(text.encode()))

    def _read_json(self, name: str) -> Record:
        try:
            value = json.loads((self.path / name).read_text())
        except (OSError, ValueError) as error:
            raise UserError(f"{self.path / name} cannot be read: {error}.") from None
        if not isinstance(value, dict):
            raise UserError(f"{self.path / name} is damaged: it should hold settings by name.")
        return value


def _fresh_path(name: str) -> Path:
    stamp = datetime.datetime.now().strftime("%Y%m%d-%H%M%S")
    safe = "".join(c if c.isalnum() or c in "-_=." else "-" for c in name)
    path, number = Path("runs") / f"{stamp}-{safe}", 1
    while path.exists():
        number += 1
        path = Path("runs") / f"{stamp}-{safe}-{number}"
    return path


def _plain(value: object) -> object:
    """JSON has no arrays and no NaN: lists and null stand for them."""
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    if isinstance(value, (np.ndarray, np.generic)):
        return _plain(value.tolist())
    if isinstance(value, float) and not np.isfinite(value):
        return None
    return value
