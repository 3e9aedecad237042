"""Searches in a terminal: started or resumed, watched until they end, and what was found."""

from etude import stopping
from etude.cli.options import PlacedOptions
from etude.cli.progress import ProgressReport
from etude.cli.streams import files_matter
from etude.cli.terminal import out, print_table, say
from etude.placing.local import LocalPlaces
from etude.runs.folder import Record, RunFolder
from etude.settings import as_text
from etude.text import count, duration
from etude.tuning import run as searches
from etude.tuning.config import TuneConfig
from etude.tuning.results import BEST
from etude.tuning.search import total_of
from etude.tuning.space import in_words, space_of


def run(config: TuneConfig | None, options: PlacedOptions, trials: int | None) -> None:
    """A new search, or the one in a folder that goes on."""
    folder = None
    if config is None:
        assert options.resume is not None
        config, folder = searches.reopen(options.resume, trials)
    places = LocalPlaces(options.processes)
    named = ", ".join(goal.env for goal in config.goals)
    say(
        f"Tuning {config.rule} on {named}: {count(config.trials, 'trial')} of "
        f"{config.steps:,} steps, {count(config.seeds, 'seed')}."
    )
    if options.dry_run:
        searches.try_out(config)
        return _print_space(config)
    files_matter()
    if folder is None:
        folder = searches.start(config, options.out)
    elif (summary := folder.summary()) and folder.config()["trials"] == config.trials:
        say("This search is finished.")
        return _print_found(summary, folder)
    say(f"Run folder: {folder.path}")
    _execute(config, folder, places)


def _execute(config: TuneConfig, folder: RunFolder, places: LocalPlaces) -> None:
    total = total_of(config)

    def describe(record: Record) -> str:
        return f"{int(record['updates'])} of {count(total, 'candidate')}"

    progress = ProgressReport(out, "Tuning", total, describe)
    told = f"Stopped. Go on with: etude tune --resume {folder.path}"
    with stopping.telling(say, told), stopping.last_duty(progress.stop), progress:
        summary = searches.execute(config, folder, places, progress)
    _print_found(summary, folder)


def _print_space(config: TuneConfig) -> None:
    rows = ((name, in_words(x)) for name, x in space_of(config).ranges.items())
    print_table(rows, "searched", "in")
    say("This was a dry run: nothing was run, and nothing was written.")


def _print_found(summary: Record, folder: RunFolder) -> None:
    """The contenders, the settings that were chosen, and how to use them."""
    rows = ((x["name"], _figure(x["score"]), _figure(x["again"])) for x in summary["contenders"])
    print_table(rows, "trial", "score", "on other seeds")
    chosen = next(x for x in summary["contenders"] if x["name"] == summary["chosen"])
    layer = chosen["layer"]
    found = layer.get("training", {}) | {f"rule.{k}": v for k, v in layer.get("rule", {}).items()}
    importances = summary["importances"]
    print_table(
        ((name, as_text(x), _figure(importances.get(name))) for name, x in found.items()),
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
    say(f"Use it with: etude train --preset {folder.path / BEST}")


def _figure(x: float | None) -> str:
    return "–" if x is None else f"{x:.3g}"
