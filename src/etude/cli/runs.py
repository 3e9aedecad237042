"""Runs in a terminal: they are set up, watched until they end, and what came out is printed."""

from collections.abc import Callable
from typing import Any

from etude.adaptation import run as adaptation
from etude.adaptation.config import AdaptConfig
from etude.api import reopen
from etude.cli.options import RunOptions
from etude.cli.running import require_end, watched
from etude.cli.terminal import print_adaptation, print_discovery, print_scores, print_summary, say
from etude.errors import UserError
from etude.kinds import KINDS
from etude.runs.folder import RunFolder
from etude.runs.lifecycle import execute, start
from etude.runs.run import Result, Run

PRINT = {"train": print_summary, "discover": print_discovery, "adapt": print_adaptation}
"""How the summary of a run is printed, by the command that it belongs to."""


def run(make: Callable[[], Run[Any, Result]], options: RunOptions, end: int | None) -> None:
    """A new run, or the one in a folder that goes on to `end`."""
    if options.resume is None:
        run = make()
        folder = start(run, options.out)
    else:
        run, folder = reopen(options.resume, end)
    say(f"Run folder: {folder.path}")
    for note in run.notes():
        say(note)
    with watched(run, folder, options) as loop_options:
        result = execute(run, folder, **loop_options)
    command = KINDS[run.kind].command
    require_end(result.done, run, folder, command)
    PRINT[command](result.summary, folder)


def test_adaptation(folder: RunFolder, given: dict[str, Any]) -> None:
    """How the policies of a run do on fresh tasks."""
    work = adaptation.read_folder(folder)
    for name in ("algo", "tasks"):
        own = getattr(work.config, name)
        if given.get(name, own) != own:
            raise UserError(f"{folder.path} is a run of --{name} {own}, not {given[name]}.")
    asked = AdaptConfig(**given)
    seed = asked.seed or 2**32 - 1  # the run itself was judged by number 0
    policies = adaptation.kept_policies(work, folder)
    print_scores(adaptation.judged(work, policies, asked.test_tasks, seed))
