"""`etude reproduce`: published experiments, and the page of their verdicts."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from etude.cli.flags import Flags, flags_of, no_default
from etude.cli.numbers import Whole
from etude.cli.streams import files_matter
from etude.errors import UserError, did_you_mean, disk_errors
from etude.placing.cluster import ClusterOptions
from etude.settings import TUNING_SEEDS
from etude.text import duration

if TYPE_CHECKING:
    from etude.experiments import Options
    from etude.experiments.page import Entry

STORE = "docs/results/data"


def reproduce(
    name: Annotated[tyro.conf.Positional[str], no_default("a list of them")] = "",
    quick: Annotated[bool, no_default("no")] = False,
    full: Annotated[bool, no_default("no")] = False,
    seeds: Annotated[Whole | None, no_default("10, or 3 to 5 where one takes long")] = None,
    seed: Annotated[Whole | None, no_default("one that no setting was chosen on")] = None,
    out: Annotated[str | None, no_default("a new one under runs/")] = None,
    results: Annotated[str | None, no_default(f"none; {STORE} for --summary")] = None,
    all_: Annotated[bool, tyro.conf.arg(name="all", help_behavior_hint="")] = False,
    due: Annotated[bool, no_default("no")] = False,
    summary: Annotated[bool, no_default("no")] = False,
    list_: Annotated[bool, tyro.conf.arg(name="list", help_behavior_hint="")] = False,
    *,
    machines: Annotated[Flags, flags_of(ClusterOptions(), lambda name: "")],
) -> None:
    """Rerun a published experiment: its figure, and a verdict on each of its claims.

    Args:
        name: The experiment.
        quick: A short version, which shows that all works, not that the claims hold.
        full: As long as the source has it, where that takes more than about two hours.
        seeds: Agents of each kind.
        seed: Random seed.
        out: Folder for the result; with --summary, the page (README.md beside the results).
        results: Folder of results to keep, where this one's goes as well.
        all_: All experiments, one after another.
        due: With --all, only those that have no result in --results yet, or changed since; the
            shortest first.
        summary: Run nothing: make one page of the verdicts of all results that are kept.
        list_: List the experiments.
    """
    from etude.cli.terminal import print_experiments
    from etude.experiments import EXPERIMENTS

    if name and all_:
        raise UserError(f"--all are all experiments: {name} does not go with it.")
    if summary:
        if not all_ or due or quick or full or seeds is not None or seed is not None:
            raise UserError("--summary runs nothing: it goes with --all, --results and --out only.")
        return _summarise(Path(results or STORE), out)
    if list_ or not (name or all_):
        return print_experiments(EXPERIMENTS)
    if name and name not in EXPERIMENTS:
        hint = did_you_mean(name, EXPERIMENTS, "`etude reproduce --list` lists them.")
        raise UserError(f"There is no experiment {name!r}: {hint}")
    if all_ and out is not None:
        raise UserError("--all makes a folder for each experiment: --out cannot name them.")
    if due and (results is None or not all_ or quick):
        raise UserError("--due goes with --all and --results, which has those that are there.")
    named = [name] if not all_ else _due(Path(results)) if due and results else list(EXPERIMENTS)
    asked = {x: _options(x, quick, full and not all_, seeds, seed) for x in named}
    from etude.cli.terminal import say
    from etude.placing.places import working_on

    files_matter()
    with working_on(ClusterOptions(**machines.given), tell=say):
        for name, options in asked.items():
            _run(name, options, out, results)


def _options(name: str, quick: bool, full: bool, seeds: int | None, seed: int | None) -> "Options":
    from etude.experiments import EXPERIMENTS, Options

    experiment = EXPERIMENTS[name]
    if full and (quick or not experiment.cut):
        raise UserError(
            "--full does not go with --quick." if quick else f"Nothing of {name} is cut short."
        )
    seeds = experiment.seeds if seeds is None else seeds
    if seeds < 2:
        raise UserError("--seeds must be at least 2, for there to be an interval.")
    seed = experiment.seed if seed is None else seed
    if not 0 <= seed < TUNING_SEEDS:
        raise UserError(f"--seed must be from 0 to {TUNING_SEEDS - 1:,}, not {seed}.")
    return Options(quick, seeds, seed, full)


def _run(name: str, options: "Options", out: str | None, results: str | None) -> None:
    from etude.cli.running import reproduced
    from etude.cli.terminal import print_verdicts, say
    from etude.experiments import EXPERIMENTS, SHORT_VERSION
    from etude.experiments.results import Begun
    from etude.experiments.written import write
    from etude.runs.folder import RunFolder
    from etude.runs.provenance import command_line

    experiment = EXPERIMENTS[name]
    folder = RunFolder.create(out, f"reproduce-{name}")
    begun = Begun.now(experiment)
    made = reproduced(lambda: experiment.run(options, say), folder)
    kept = None if results is None else Path(results, f"{name}.json")
    write(made, name, options, folder, begun, command_line(), kept)
    if not options.quick:
        print_verdicts(made.verdicts)
    for note in made.notes:
        say(f"Note: {note}")
    if experiment.cut and not options.full:
        say(f"Cut: {experiment.cut}.")
    took = duration(begun.seconds)
    say(f"{took}, {options.seeds} seeds. Figure and numbers: {folder.path}")
    if options.quick:
        say(SHORT_VERSION)
    elif kept is not None:
        say(f"Kept: {kept}. `etude reproduce --all --summary` makes the page of verdicts anew.")


def _entries(results: Path) -> "list[Entry]":
    """All experiments, with the results that there are."""
    from etude.experiments import EXPERIMENTS
    from etude.experiments.page import entries
    from etude.experiments.results import read_results

    if not results.is_dir():
        raise UserError(f"There is no folder {results}: --results names another.")
    found = read_results(results)
    if unknown := found.keys() - EXPERIMENTS.keys():
        raise UserError(f"{results} holds a result of {min(unknown)}, which is no experiment.")
    return entries(EXPERIMENTS, found)


def _due(results: Path) -> list[str]:
    """The names of those that are still to be run, the shortest first."""
    from etude.experiments import EXPERIMENTS

    found = [x for x in _entries(results) if x.is_due]
    trains = {x.name: EXPERIMENTS[x.experiment.uses or x.name] for x in found}
    return sorted(trains, key=lambda x: (trains[x].minutes, EXPERIMENTS[x].uses != ""))


def _summarise(results: Path, out: str | None) -> None:
    from etude.cli.terminal import say
    from etude.experiments.page import page
    from etude.runs.arrays import write_atomically

    found = _entries(results)
    text = page(found).encode()
    path = results.parent / "README.md" if out is None else Path(out)
    with disk_errors(f"Cannot write {path}"):
        write_atomically(path, lambda file: file.write(text))
    kept = sum(x.result is not None for x in found)
    say(f"Wrote {path}: {kept} of {len(found)} experiments have a result.")
