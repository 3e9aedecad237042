"""The folders that a page is about, and what can be told of each without knowing its kind."""

import shlex
from pathlib import Path
from typing import Any, NamedTuple

from etude.errors import UserError, disk_errors
from etude.kinds import COMPARE, HOLDERS, KINDS, TUNE
from etude.report.curves import Detail
from etude.report.page import (
    Block,
    Cell,
    Commands,
    Facts,
    Film,
    Line,
    Paragraph,
    Part,
    Table,
    number,
    text,
)
from etude.runs import formats
from etude.runs.folder import ABOUT, CONFIG, MADE, METRICS, SUMMARY, Record, RunFolder
from etude.runs.reading import SUMMARY_LIMITS, is_file, misfit, read_bytes, read_json, shortened
from etude.settings import lists_to_tuples
from etude.text import as_words, count

FILM = "play.gif"
MOST_HELD = 1000
HELD = {COMPARE: f"{HOLDERS[COMPARE]}/*", TUNE: f"{HOLDERS[TUNE]}/*/*"}
"""The paths of the runs in a folder that holds many: in a search, each trial has one per
environment."""
END = {"discover": ("meta_steps", "updates", "meta-step")}
"""The setting that says how long a run is, the entry of its records that counts up to it, and the
unit of both, by kind."""
END_OF_OTHERS = ("steps", "steps", "step")


class Found(NamedTuple):
    """A run folder as it was read."""

    path: Path
    kind: str
    config: Record
    records: list[Record]
    summary: Record | None

    @property
    def settings(self) -> Record:
        """To be shown; nothing acts upon them."""
        return {name: value for name, value in self.config.items() if name not in ABOUT}

    @property
    def made(self) -> formats.Made | None:
        found = self.config.get(MADE)
        return None if misfit(found, formats.Made) else found

    @property
    def state(self) -> str:
        """How far the run is, in words."""
        if self.summary is not None:
            return "finished"
        setting, entry, unit = END.get(self.kind, END_OF_OTHERS)
        done = self.records[-1][entry] if self.records else 0
        whole = self.config.get(setting)
        of = f" of {whole:,}" if isinstance(whole, int) else ""
        return f"not finished: {done:,}{of} {unit}s"


class Row(NamedTuple):
    """A folder among others."""

    what: object
    where: object
    state: str
    seeds: object = None
    steps: int | None = None
    score: Record | None = None
    seconds: float | None = None


def row_of_run(found: Found, what: object, where: object, score: str | None = None) -> Row:
    """`score`: the name in the summary of what a run has come to."""
    summary = found.summary or {}
    return Row(
        what=what,
        where=where,
        state=found.state,
        seeds=found.config.get("seeds"),
        steps=found.records[-1]["steps"] if found.records else 0,
        score=None if score is None else summary.get(score),
        seconds=summary.get("seconds"),
    )


class Told(NamedTuple):
    """What is said of a folder: in its own part, in a row about all, and in a common figure."""

    part: Part
    row: Row
    curve: tuple[str, str, Line] | None = None
    """With the title of the figure and what it shows."""


def opened(path: str) -> Found:
    """A run folder of any kind."""
    folder = RunFolder.open(path)
    kind = folder.kind
    if kind is None:
        raise UserError(f"{shortened(path)} is not a run of a kind that this version knows.")
    return Found(Path(path), kind, folder.config(), folder.metrics(), folder.summary())


def reproduction_in(path: str) -> Record | None:
    """What a reproduction has left in a folder, None if it is not of one."""
    summary = Path(path) / SUMMARY
    if not is_file(summary) or "experiment" not in read_json(summary, SUMMARY_LIMITS):
        return None
    return read_json(summary, SUMMARY_LIMITS, formats.ReproductionSummary)


def stamp(path: str) -> tuple[Any, ...]:
    """Differs as soon as anything that a page shows of the folder does."""
    names, rooms = (CONFIG, METRICS, SUMMARY, FILM), ("", *HELD.values())
    found = (sorted(Path(path).glob(room)) if room else [Path(path)] for room in rooms)
    return tuple((x, _stamp(x / name)) for each in found for x in each for name in names)


def _stamp(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size


# --- Blocks ---------------------------------------------------------------------------------------


def settings_table(settings: Record) -> Table:
    rows = [
        [text(name.rstrip("_")), text(as_words(value))]
        for name, value in lists_to_tuples(settings).items()
        if value is not None
    ]
    return Table("Settings", ("setting", "value"), rows, folded=True)


def origin(made: formats.Made | None) -> list[Block]:
    """Versions and machine, if the folder tells."""
    if made is None:
        return [Paragraph("The folder does not say which versions made it.")]
    rows = {"started": made["at"].replace("T", " ")} | made["versions"]
    rows |= {name: str(value) for name, value in made["machine"].items() if value is not None}
    return [Facts("Environment and versions", {k: text(v).text for k, v in rows.items()})]


def commands(path: Path, kind: str, made: formats.Made | None, finished: bool) -> Commands:
    """The command behind a run, and those that may come next."""
    own, command = shlex.quote(str(path)), KINDS[kind].command
    lines = {"What was run": made["command"]} if made and made["command"] else {}
    if not finished:
        lines["Go on"] = f"etude {command} --resume {own}"
    if command == "discover":
        lines["Use the rule"] = f"etude train --rule {own}"
    elif finished:
        lines["Watch the agent"] = f"etude play {own}"
    return Commands("Commands", lines)


def holder_commands(found: Found) -> Commands:
    """Of a folder that holds many runs, which is named like the command that makes it."""
    own = shlex.quote(str(found.path))
    lines = {"What was run": made["command"]} if (made := found.made) and made["command"] else {}
    if found.summary is None:
        lines["Go on"] = f"etude {found.kind} --resume {own}"
    lines["Each run"] = f"etude report {own}/{HELD[found.kind]}"
    return Commands("Commands", lines)


def held(found: Found) -> list[Block]:
    """How far the runs are that a folder holds."""
    with disk_errors(f"{found.path} cannot be read"):
        paths = sorted(x for x in found.path.glob(HELD[found.kind]) if is_file(x / CONFIG))
    runs = [opened(str(x)) for x in paths[:MOST_HELD]]
    rows = [
        [text(x.path.name), text(x.config.get("rule")), text(x.config.get("env")), text(x.state)]
        for x in runs
    ]
    done = sum(x.summary is not None for x in runs)
    note = f"{done} of {count(len(runs), 'run')} finished."
    return [Table("Runs", ("run", "rule", "environment", "state"), rows, note=note)]


def film(path: Path, detail: Detail, what: str) -> list[Block]:
    """The animation that `etude play` has left, if it is not too large for the page."""
    if not is_file(path / FILM):
        return []
    size = (path / FILM).stat().st_size
    if size > detail.film_bytes:
        told = f"{FILM} has {size / 1e6:.1f} MB, too much for this page: it is in the run folder."
        return [Paragraph(told)]
    data = read_bytes(path / FILM, detail.film_bytes)
    if not data.startswith((b"GIF87a", b"GIF89a")):
        return [Paragraph(f"{FILM} is not a GIF.")]
    return [Film("The agent at play", data, f"Animation of {what}, as {FILM} in the run folder")]


def score_cells(score: Record | None) -> list[Cell]:
    """Mean and interval."""
    names = ("mean", "low", "high")
    return [number(None if score is None else score[name]) for name in names]


def lead_of(found: Found, what: str) -> str:
    """The line below a title."""
    seeds = found.config.get("seeds")
    parts = [what, count(seeds, "seed") if isinstance(seeds, int) else "", found.state]
    if found.made is not None:
        parts.append(f"started {found.made['at'][:16].replace('T', ' ')}")
    return " · ".join(filter(None, parts))
