"""`etude tune`: which settings should I use?"""

import dataclasses
from typing import TYPE_CHECKING, Annotated

from etude import plugins
from etude.cli.flags import Flags, flags_of
from etude.cli.options import refuse_flags_but
from etude.cli.streams import files_matter
from etude.placing.cluster import ClusterOptions
from etude.settings import Settings, as_text, split_spec
from etude.text import count, duration, figure
from etude.tuning.config import TuneConfig

if TYPE_CHECKING:
    from etude.placing.job import Places
    from etude.runs.folder import Record, RunFolder

# As in `commands.py`: what needs JAX, NumPy or tables is imported late.


@dataclasses.dataclass(frozen=True)
class TuneOptions:
    """Where a search is kept, and how it is run."""

    out: str | None = None
    """Folder for the search; by default a new one under runs/."""
    resume: str | None = None
    """Continue the search in this folder, to its end or, given more trials, to a later one."""
    processes: int | None = None
    """Processes at once, which share the cores out; by default one per core."""
    dry_run: bool = False
    """Print what would be searched and in which ranges, then stop: nothing is run or written."""
    trust: bool = False
    """Import the environments and rules, if they are not Etude's, that a folder to be resumed or a
    file names: their code will run."""


def tune(
    search: Annotated[Flags, flags_of(TuneConfig())],
    run: Annotated[Flags, flags_of(TuneOptions(), lambda name: "")],
    machines: Annotated[Flags, flags_of(ClusterOptions(), lambda name: "")],
) -> None:
    """Search for settings of training and of a rule, on seeds that nothing else is shown on.

    Use what was found with: etude train --env ENV --rule RULE --preset DIR/best.json.
    """
    options = TuneOptions(**run.given)
    if options.resume is not None:
        refuse_flags_but("trials", given=[*search.given, *run.given])
    plugins.name_modules(search.given)
    if options.trust:
        plugins.trust_files()
    from etude.cli.terminal import say
    from etude.placing.places import places, working_on
    from etude.tuning.run import require_optuna

    require_optuna()
    with working_on(ClusterOptions(**machines.given), options.processes, say):
        _tune(search.given, options, places())


def _tune(given: Settings, options: TuneOptions, at: "Places") -> None:
    from etude.tuning.run import reopen

    if options.resume is None:
        config, folder = TuneConfig(**given), None
    else:
        config, folder = reopen(options.resume, given.get("trials"))
    if options.dry_run:
        return _show_plan(config)
    files_matter()
    _run(config, folder, options.out, at)


def _show_plan(config: TuneConfig) -> None:
    from etude.cli.terminal import print_table, say
    from etude.tuning.run import try_out
    from etude.tuning.space import in_words, space_of

    say(_about(config))
    try_out(config)
    rows = ((name, in_words(x)) for name, x in space_of(config).ranges.items())
    print_table(rows, "searched", "in")
    say("This was a dry run: nothing was run, and nothing was written.")


def _about(config: TuneConfig) -> str:
    named = ", ".join(goal.env for goal in config.goals)
    budget = f"{config.steps:,} steps, {count(config.seeds, 'seed')}"
    return f"Tuning {config.rule} on {named}: {count(config.trials, 'trial')} of {budget}."


def _run(config: TuneConfig, folder: "RunFolder | None", out: str | None, at: "Places") -> None:
    from etude import stopping
    from etude.cli.progress import ProgressReport
    from etude.cli.terminal import out as console
    from etude.cli.terminal import say
    from etude.runs.provenance import command_line
    from etude.tuning.run import execute, start
    from etude.tuning.search import total_of

    say(_about(config))
    if folder is None:
        folder = start(config, out, command_line())
    elif (summary := folder.summary()) and folder.config().get("trials") == config.trials:
        say("This search is finished.")
        return _print_found(config, summary, folder)
    say(f"Folder: {folder.path}")
    total = total_of(config)

    def describe(record: "Record") -> str:
        return f"{int(record['updates'])} of {count(total, 'candidate')}"

    progress = ProgressReport(console, "Tuning", total, describe)
    told = f"Stopped; what was trained is kept. Go on with: etude tune --resume {folder.path}"
    with stopping.telling(say, told), stopping.last_duty(progress.stop), progress:
        summary = execute(config, folder, at, progress)
    _print_found(config, summary, folder)


def _print_found(config: TuneConfig, summary: "Record", folder: "RunFolder") -> None:
    """The contenders, the settings that were chosen, and how to use them."""
    from etude.cli.terminal import print_table, say
    from etude.runs.folder import SUMMARY
    from etude.runs.reading import damaged
    from etude.tuning.run import BEST

    rows = ((x["name"], figure(x["score"]), figure(x["again"])) for x in summary["contenders"])
    print_table(rows, "trial", "score", "on other seeds")
    chosen = next((x for x in summary["contenders"] if x["name"] == summary["chosen"]), None)
    if chosen is None:
        raise damaged(folder.path / SUMMARY, "what was chosen is none of the contenders")
    layer = chosen["layer"]
    found = layer.get("training", {}) | {f"rule.{k}": v for k, v in layer.get("rule", {}).items()}
    importances = summary["importances"]
    print_table(
        ((name, as_text(x), figure(importances.get(name))) for name, x in found.items()),
        "setting",
        "chosen",
        "importance",
    )
    states = summary["trials"]
    say(
        f"{count(states['complete'], 'trial')} finished, {states['pruned']} pruned, "
        f"{states['fail']} failed; {summary['environment_steps']:,} steps, "
        f"{duration(summary['seconds'])} of training."
    )
    if not found:
        say("No trial was better than the defaults.")
    named = f"--env {config.goals[0].env} --rule {split_spec(config.rule)[0]}"
    say(f"Use it with: etude train {named} --preset {folder.path / BEST}")
