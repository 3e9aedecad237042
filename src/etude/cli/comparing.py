"""`etude compare`: which rule should I use?"""

import dataclasses
import sys
import time
from typing import TYPE_CHECKING, Annotated

from etude.cli.asked import trust_named
from etude.cli.flags import Flags, flags_of
from etude.cli.streams import files_matter
from etude.comparing.config import CompareConfig
from etude.errors import UserError
from etude.placing.cluster import ClusterOptions
from etude.settings import Settings, flag
from etude.text import count, duration

if TYPE_CHECKING:
    from etude.comparing.run import Comparison
    from etude.placing.job import Places
    from etude.placing.pace import Progress
    from etude.runs.folder import RunFolder

# As in `commands.py`: what needs JAX, NumPy or tables is imported late.


@dataclasses.dataclass(frozen=True)
class CompareOptions:
    """Where a comparison is kept, and how it is run."""

    out: str | None = None
    """Folder for the comparison; by default a new one under runs/."""
    resume: str | None = None
    """Continue the comparison in this folder: what is finished is not done again, what failed is
    tried again."""
    processes: int | None = None
    """Processes at once, which share the cores out; by default one per core."""
    dry_run: bool = False
    """Print what would be trained, then stop: nothing is run or written."""
    trust: bool = False
    """Import the environments and rules, if they are not Etude's, that a folder to be resumed or a
    rule file names: their code will run."""


def compare(
    comparison: Annotated[Flags, flags_of(CompareConfig())],
    run: Annotated[Flags, flags_of(CompareOptions(), lambda name: "")],
    machines: Annotated[Flags, flags_of(ClusterOptions(), lambda name: "")],
) -> None:
    """Compare rules: train agents under each in each environment, all at the same budget."""
    options = CompareOptions(**run.given)
    if options.resume is not None and (named := [*comparison.given, *run.given.keys() & {"out"}]):
        raise UserError(f"A comparison keeps its own settings: not {flag(named[0])} here.")
    trust_named(options.trust, comparison.given)
    from etude.cli.terminal import say
    from etude.placing.places import places, working_on

    with working_on(ClusterOptions(**machines.given), options.processes, say):
        _compare(comparison.given, options, places())


def _compare(given: Settings, options: CompareOptions, at: "Places") -> None:
    from etude.comparing.run import Comparison, reopen

    if options.resume is None:
        planned, folder = Comparison.planned(CompareConfig(**given)), None
    else:
        planned, folder = reopen(options.resume)
    if options.dry_run:
        return _show_plan(planned, new=folder is None)
    files_matter()
    _run(planned, folder, options.out, at)


def _show_plan(planned: "Comparison", new: bool) -> None:
    from etude.cli.terminal import print_table, say

    if new:
        from etude.cli.running import try_out

        for cell in planned.cells:
            if cell.folder not in planned.missing:
                try_out(cell.plan)
    say(_about(planned))
    rows = (
        (
            cell.env,
            cell.plan.rule,
            f"{cell.plan.steps_after(cell.plan.updates):,}",
            f"{cell.plan.agent_updates:,}",
            planned.missing.get(cell.folder, ""),
        )
        for cell in planned.cells
    )
    print_table(rows, "environment", "rule", "steps", "agent updates", "")
    say("This was a dry run: nothing was run, and nothing was written.")


def _about(planned: "Comparison") -> str:
    config = planned.config
    budget = {
        "steps": f"{config.steps:,} steps each",
        "updates": f"as many updates as {config.rule_names[0]} makes in {config.steps:,} steps",
        "seconds": f"{config.seconds:g} s and at most {config.steps:,} steps each",
    }[config.equal]
    number = (
        f"{count(len(config.rule_names), 'rule')} in {count(len(planned.entries), 'environment')}"
    )
    return f"Comparing {number}: {count(config.seeds, 'seed')}, {budget}."


def _run(planned: "Comparison", folder: "RunFolder | None", out: str | None, at: "Places") -> None:
    from etude import stopping
    from etude.cli.terminal import print_comparison, say
    from etude.comparing.run import execute, start
    from etude.runs.provenance import command_line

    say(_about(planned))
    folder = start(planned, out, command_line()) if folder is None else folder
    say(f"Folder: {folder.path}")
    told = f"Stopped; what was trained is kept. Go on with: etude compare --resume {folder.path}"
    progress = CellProgress()
    with stopping.telling(say, told), stopping.last_duty(progress.stop), progress:
        summary = execute(planned, folder, at, progress)
    print_comparison(summary, folder)
    if summary["failed"]:
        sys.exit(1)


PLAIN_SECONDS = 15.0


class CellProgress:
    """How far all cells are: a live line in a terminal, plain lines elsewhere."""

    def __init__(self):
        from rich.progress import BarColumn, Progress, TextColumn

        from etude.cli.terminal import out

        self._console, self._shown_at = out, time.monotonic()
        line = TextColumn("{task.fields[line]}")
        self._live = Progress(BarColumn(bar_width=24), line, console=out, transient=True)
        self._bar = self._live.add_task("", total=1.0, line="starting…")

    def __enter__(self) -> "CellProgress":
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Leaves the terminal as it was."""
        self._live.stop()

    def __call__(self, progress: "Progress") -> None:
        line = f"{progress.done} of {count(progress.total, 'cell')} done"
        line += f", {progress.failed} failed" if progress.failed else ""
        line += f" · {progress.share:.0%}"
        if progress.seconds_left:
            line += f" · about {duration(progress.seconds_left)} left"
        if self._console.is_terminal:
            self._live.update(self._bar, completed=progress.share, line=line)
        elif time.monotonic() - self._shown_at > PLAIN_SECONDS:
            self._console.print(line, highlight=False)
            self._shown_at = time.monotonic()
