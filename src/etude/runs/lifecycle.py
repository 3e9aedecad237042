"""The life of every run, whatever its kind: it starts in a new folder, goes on from an old one, and
runs to its end."""

import os
from contextlib import nullcontext
from typing import Unpack

from etude import stopping
from etude.runs.folder import FORMAT, ID, IMPORT_FROM, KIND, MADE, VERSION, RunFolder
from etude.runs.loop import LoopOptions, advance_to_end
from etude.runs.provenance import made_now
from etude.runs.run import Found, Run, State


def start(run: Run, out: str | None = None, command: str | None = None) -> RunFolder:
    """A new folder (`out`, or a fresh one under `runs/`) with all that the run starts from.
    `command` is the one that asked for it, if there was one."""
    run.require_keepable()
    with stopping.held():  # no half-made folder is left
        folder = RunFolder.create(out, run.name)
        with folder.locked():
            folder.require_new()
            with folder.being_made():
                run.write_start(folder)
                about = {KIND: run.kind, FORMAT: VERSION, ID: folder.identity}
                # The config comes last, so that whatever has a config has all it starts from.
                origin = {IMPORT_FROM: os.getcwd(), MADE: made_now(command)}
                folder.write_config(about | run.settings() | origin)
    return folder


def execute(
    run: Run[State, Found], folder: RunFolder | None = None, **options: Unpack[LoopOptions]
) -> Found:
    """Runs to the end, from the folder's last checkpoint if there is one; the run's `Result`."""
    with nullcontext() if folder is None else folder.locked():
        if folder is not None:
            folder.extend(run.end, run.settings()[run.end])
        try:
            outcome = advance_to_end(run, folder, **options)
        finally:
            run.close()
        summary = folder.summary() if folder is not None else None  # it was finished before
        summary = run.summary(outcome) if summary is None else summary
        if folder is not None and outcome.is_over:
            run.draw(folder)
            folder.write_summary(summary)  # comes last: with it, all is there
    return run.result(outcome, summary)
