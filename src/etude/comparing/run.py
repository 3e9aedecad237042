"""A comparison in its folder: started, resumed, run and summed up."""

import dataclasses
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from etude import kinds, plugins, stopping
from etude.comparing import figure
from etude.comparing.cells import Begun, Cell, plan_cells
from etude.comparing.config import CompareConfig
from etude.comparing.results import CELLS, Result, summarise
from etude.comparing.suites import Entry, find_entries, known
from etude.envs.catalogue import SUITES, require_installed
from etude.errors import UserError
from etude.placing.job import Job, Places
from etude.placing.pace import Progress
from etude.placing.running import run_jobs
from etude.runs.folder import (
    CONFIG,
    FORMAT,
    ID,
    IMPORT_FROM,
    KIND,
    MADE,
    VERSION,
    Record,
    RunFolder,
)
from etude.runs.inside import refuse_linked_folders
from etude.runs.provenance import made_now
from etude.runs.reading import damaged, fitted, is_file, misfit
from etude.training.config import TrainPlan, from_json
from etude.training.planning import read_plan

if TYPE_CHECKING:
    from etude.runs.run import Run

FIGURE = "comparison.png"
REFERENCES = "references"
"""Under this name the config has environments, with the scores that theirs are set against."""


@dataclasses.dataclass(frozen=True)
class Comparison:
    """All cells of a comparison, and those among them that cannot be run here."""

    config: CompareConfig
    entries: list[Entry]
    cells: list[Cell]
    missing: dict[str, str]
    """Why, by the names of their folders."""

    @staticmethod
    def planned(
        config: CompareConfig,
        entries: Sequence[Entry] | None = None,
        begun: Begun = lambda name: None,
    ) -> "Comparison":
        """Finds the mistakes that can be found without JAX."""
        entries = find_entries(config.envs) if entries is None else list(entries)
        cells = plan_cells(config, entries, begun)
        absent = {x.folder: why for x in cells if (why := _why_missing(x.env)) is not None}
        if len(absent) == len(cells):
            raise UserError(next(iter(absent.values())))
        return Comparison(config, entries, cells, absent)

    def settings(self) -> Record:
        """As they go into `config.json`."""
        references = {x.env: [x.random, x.strong] for x in self.entries}
        return dataclasses.asdict(self.config) | {REFERENCES: references}

    def runs(self) -> "dict[str, Run]":
        """Of all cells that can be run, by the names of their folders. Making them finds what the
        names alone do not tell: whether environment and rule exist and go together."""
        return {
            cell.folder: kinds.class_called(cell.kind).untraced(cell.plan)
            for cell in self.cells
            if cell.folder not in self.missing
        }


def _why_missing(env: str) -> str | None:
    suite = env.partition("/")[0]
    try:
        if suite in SUITES:
            require_installed(suite)
    except UserError as error:
        return str(error)
    return None


def start(comparison: Comparison, out: str | None, command: str | None = None) -> RunFolder:
    """A new folder (`out`, or a fresh one under `runs/`) with a run for each cell. `command` is the
    one that asked for it, if there was one."""
    runs, config = comparison.runs(), comparison.config
    with stopping.held():
        folder = RunFolder.create(out, f"compare-{Path(config.envs).name}-{config.rules}")
        with folder.locked():
            folder.require_new()
            about = {KIND: kinds.COMPARE, FORMAT: VERSION, ID: folder.identity}
            origin = {IMPORT_FROM: os.getcwd(), MADE: made_now(command, works_here=False)}
            folder.write_config(about | comparison.settings() | origin)
    _start_cells(runs, folder)
    return folder


def _start_cells(runs: "dict[str, Run]", folder: RunFolder) -> None:
    from etude.runs import lifecycle  # imports JAX, which names are known without

    for name, run in runs.items():
        path = folder.path / CELLS / name
        if not is_file(path / CONFIG):
            lifecycle.start(run, str(path), works_here=False)


def reopen(path: str) -> tuple[Comparison, RunFolder]:
    """The comparison in a folder, to go on."""
    folder = kinds.open_folder(path, kinds.COMPARE)
    settings = folder.settings()
    references = settings.pop(REFERENCES, None)
    if not isinstance(references, dict) or not references:
        raise damaged(folder.path / CONFIG, f"it lacks {REFERENCES}")
    form = dict[str, list[float | None]]
    if wrong := misfit(references, form):
        raise damaged(folder.path / CONFIG, wrong)
    scores: dict[str, list[float | None]] = fitted(references, form)
    config = from_json(CompareConfig, settings)
    entries = [_entry(env, x, folder) for env, x in scores.items()]

    def begun(name: str) -> TrainPlan | None:
        own = RunFolder(folder.path / CELLS / name)
        if not is_file(own.path / CONFIG):
            return None
        plan = read_plan(own)
        if plan.seeds != config.seeds:
            raise damaged(own.path / CONFIG, "it is not of this comparison")
        return plan

    return Comparison.planned(config, entries, begun), folder


def _entry(env: str, scores: list[float | None], folder: RunFolder) -> Entry:
    if len(scores) != 2:
        raise damaged(folder.path / CONFIG, f"{REFERENCES} should hold two scores each")
    entry, (random, strong) = known(env), scores
    if (entry.random, entry.strong) == (random, strong):
        return entry
    return Entry(env, random, strong, "given with the comparison")


def execute(
    comparison: Comparison,
    folder: RunFolder,
    places: Places,
    report: Callable[[Progress], None] = lambda progress: None,
) -> Record:
    """Trains what is not trained yet, and sums up; the others go on when a cell fails."""
    with folder.locked():
        refuse_linked_folders(folder.path)
        if any(not is_file(x.path / CONFIG) for x in _folders(comparison, folder)):
            _start_cells(comparison.runs(), folder)  # it was killed while it was started
        began, before = time.monotonic(), folder.summary() or {}
        jobs = [
            _job(cell, folder) for cell in comparison.cells if cell.folder not in comparison.missing
        ]
        waiting = [job for job in jobs if not job.is_done()]
        before_now = len(jobs) - len(waiting)

        def tell(now: Progress) -> None:
            done, total = now.done + before_now, now.total + before_now
            report(dataclasses.replace(now, done=done, total=total))

        failed = run_jobs(waiting, places, keep_going=True, report=tell)
        why = comparison.missing | {Path(name).name: text for name, text in failed.items()}
        results = [Result.read(x, folder.path, why.get(x.folder)) for x in comparison.cells]
        took = before.get("seconds", 0.0) + (time.monotonic() - began if waiting else 0.0)
        summary = summarise(comparison.config, results, took)
        figure.draw(comparison.config, results, summary["efficiency"], folder.path / FIGURE)
        folder.write_summary(summary)  # comes last: with it, all is there
    return summary


def _folders(comparison: Comparison, folder: RunFolder) -> list[RunFolder]:
    runnable = (x for x in comparison.cells if x.folder not in comparison.missing)
    return [RunFolder(folder.path / CELLS / cell.folder) for cell in runnable]


def _job(cell: Cell, folder: RunFolder) -> Job:
    own, plan = RunFolder(folder.path / CELLS / cell.folder), cell.plan

    def share() -> float:
        records = own.metrics()
        if not records:
            return 0.0
        by_time = records[-1]["seconds"] / plan.max_seconds if plan.max_seconds else 0.0
        return min(1.0, max(records[-1]["updates"] / plan.updates, by_time))

    # Whoever named code of their own here has said that they trust it; see `RunFolder.settings`.
    trust = ("--trust",) if plugins.code_in(plan.settings()) else ()
    return Job(
        name=str(own.path),
        command=("train", "--resume", str(own.path), *trust),
        folder=own.path,
        is_done=lambda: own.summary() is not None,
        share=share,
        like=cell.rule,
    )
