"""What the command line prints: sentences, and tables of what came out."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from etude.cli.source import classes_in, first_line
from etude.envs.catalogue import Listed, Suite, how_to_install
from etude.errors import UserError
from etude.runs import results
from etude.runs.folder import Record, RunFolder
from etude.settings import Settings
from etude.text import as_words, count, duration, figure, interval, printable, speed

if TYPE_CHECKING:
    import numpy as np
    from jaxtyping import PyTree

    from etude.envs import Task
    from etude.experiments import Experiment, Verdict
    from etude.inspection.inspect import Inspection

Padding = tuple[int, int, int, int]

UNLIMITED = 100_000
AREA = "area"
"""The other measure by which rules are compared over all environments together."""
"""Columns of what is not a terminal."""

out = Console()


def say(text: str) -> None:
    """Prints a line as it is: no markup, no line breaks of its own."""
    out.print(printable(text), highlight=False, markup=False, soft_wrap=True)


def print_table(
    rows: Iterable[tuple[str, ...]], *header: str, padding: Padding = (0, 1, 0, 1)
) -> None:
    table = Table(*header, box=None, show_header=bool(header), padding=padding)
    for column in table.columns:
        column.overflow = "fold"  # nothing is cut
    for row in rows:
        table.add_row(*map(printable, row))
    if not out.is_terminal:  # whatever reads it wants one line per row, however long
        out.width = UNLIMITED
    out.print(table, highlight=False)


def print_training(summary: Record, folder: RunFolder) -> None:
    rows = {escape(name): value for name, value in results.of_training(summary).items()}
    rows["run folder"] = escape(str(folder.path))
    print_table(rows.items(), padding=(0, 2, 0, 0))


def print_discovery(summary: Record, folder: RunFolder) -> None:
    if check := summary["final_check"]:
        say("Fresh agents, all on the same seeds, which had no part in the choice of the rule:")
        rows = [
            (
                escape(env),
                *(figure(x["mean"]) for x in by.values()),
                interval(by["rule kept"]),
                _gain(check.get("gain", {}).get(env)),
            )
            for env, by in results.of_discovery(check)
        ]
        columns = "95% interval of rule kept", "kept − first, by seed (95% interval)"
        print_table(rows, "fresh agents in", *results.JUDGED.values(), *columns)
    say(f"Time: {duration(summary['seconds'])}, {summary['environment_steps']:,} steps.")
    say(f"The rule of meta-step {summary['best_meta_step']:,} is kept. Use it with:")
    say(f"  etude train --rule {folder.path}")


def _gain(score: Record | None) -> str:
    return "–" if score is None else f"{figure(score['mean'])} ({interval(score)})"


def print_scores(scores: Record) -> None:
    rows = results.of_adaptation(scores).items()
    over = "seeds" if len(scores["after"].get("per_seed", [])) > 1 else "tasks, of one seed"
    print_table(
        ((label, figure(score["mean"]), interval(score)) for label, score in rows),
        f"on {count(scores['fresh_tasks'], 'fresh task')}",
        "return",
        f"95% interval over {over}",
    )


def print_adaptation(summary: Record, folder: RunFolder) -> None:
    print_scores(summary)
    pace = speed(summary["steps_per_second"], summary.get("seeds", 1))
    say(f"{duration(summary['seconds'])}, {pace}.")
    say(f"Adapt it to fresh tasks with: etude adapt --test {folder.path}")


def print_comparison(summary: Record, folder: RunFolder) -> None:
    shown, rules = summary["shown"], summary["rules"]
    say(f"Mean over seeds (lowest to highest) of the {summary['measures'][shown]}:")
    cells = {(x["env"], x["rule"]): x for x in summary["cells"]}
    rows = (
        (escape(env), *(_score(cells[env, rule], shown) for rule in rules))
        for env in summary["environments"]
    )
    print_table(rows, "environment", *map(escape, rules))
    for measure in (shown, AREA):
        _print_together(summary["aggregate"][measure], summary["measures"][measure])
    aggregate = summary["aggregate"][shown]
    print_pairs(aggregate["improvement"], "Probability that a run of one is better than another's")
    for env, why in aggregate["left_out"].items():
        say(f"Left out of normalised scores: {env}, {why}.")
    for name, why in summary["failed"].items():
        say(f"Failed: {name}: {why}")
    say(f"{duration(summary['seconds'])}. Figure and numbers: {folder.path}")


def _print_together(aggregate: Record, about: str) -> None:
    if not aggregate["over"]:
        return
    over = count(len(aggregate["over"]), "environment")
    say(f"\nNormalised scores over {over}, of the {about}:")
    rows = (
        (escape(rule), figure(x["value"]), interval(x), aggregate["against_best"][rule])
        for rule, x in aggregate["iqm"].items()
    )
    print_table(rows, "rule", "interquartile mean", "95% interval", "")
    print_pairs(aggregate["difference"], "Differences between interquartile means")


def print_pairs(pairs: list[Record], about: str) -> None:
    """Of one rule and another."""
    if not pairs:
        return
    say(f"\n{about}:")
    rows = (
        (escape(f"{x['rule']} over {x['over']}"), figure(x["value"]), interval(x), x["verdict"])
        for x in pairs
    )
    print_table(rows, "", "", "95% interval", "")


def _score(cell: Record, measure: str) -> str:
    if cell["status"] != "done":
        return "failed"
    scores = cell["scores"][measure]
    if scores is None:
        return "no episode ended"
    mean = figure(sum(scores) / len(scores))
    return f"{mean} ({figure(min(scores))} to {figure(max(scores))})"


PRINT = {"train": print_training, "discover": print_discovery, "adapt": print_adaptation}
"""How the summary of a run is printed, by the command that it belongs to."""


def print_experiments(experiments: "dict[str, Experiment]") -> None:
    rows = ((name, x.about, x.source) for name, x in experiments.items())
    print_table(rows, "experiment", "about", "source")


def print_verdicts(verdicts: "list[Verdict]") -> None:
    rows = (
        (x.claim, figure(x.figure), interval({"low": x.low, "high": x.high}), x.verdict)
        for x in verdicts
    )
    print_table(rows, "claim", "ours", "95% interval over seeds", "verdict")


def print_inspection(found: "Inspection") -> None:
    """Means over agents."""
    sources = list(next(iter(found.probes.values())))
    rows = ((name, *(figure(_mean(x[s])) for s in sources)) for name, x in found.probes.items())
    print_table(rows, "R² on held-out episodes", *sources)
    steps = [k for k in (0, 1, 2, 4, 8, 16, 32, 64) if k < len(found.horizon)]
    rows = (
        (head, *(figure(_mean(found.horizon[k, i])) for k in steps))
        for i, head in enumerate(found.heads)
    )
    print_table(rows, "KL for a reward 1 larger, ahead by", *map(str, steps))
    without = found.ablation.mean(axis=-1)
    for i, head in enumerate(found.heads):
        most = sorted(zip(without[:, i].tolist(), found.inputs, strict=True), reverse=True)[:6]
        say(f"{head} changes most without: " + ", ".join(f"{x} ({figure(n)})" for n, x in most))


def _mean(by_agent: "np.ndarray") -> float | None:
    return float(by_agent.mean()) if bool((by_agent == by_agent).all()) else None


def print_plan(about: str, settings: Settings, origins: dict[str, str]) -> None:
    """What a run would be: every setting, and where it comes from."""
    say(about)
    rows = (
        (name.rstrip("_"), escape(as_words(value)), origins[name])
        for name, value in settings.items()
        if value is not None
    )
    print_table(rows, "setting", "value", "from")
    say("This was a dry run: nothing was run, and nothing was written.")


def _about(env: Listed) -> str:
    if not env.home:
        return ""
    module, name = env.home.split(":")
    return first_line(classes_in(module)[name])


def print_envs(listed: dict[str, Listed], suites: dict[str, Suite]) -> None:
    rows = (
        (name, str(env.actions), by_times(env.observation), _about(env))
        for name, env in listed.items()
    )
    print_table(rows, "environment", "actions", "observation", "about")
    out.print()
    rows = ((name, x.about, _installed(name, x)) for name, x in suites.items())
    print_table(rows, "suite", "about", "installed")
    out.print("\nEnvironments of a suite: etude envs SUITE.")
    out.print("Settings follow a colon: catch:rows=5,columns=5. Your own: module:Class.")
    out.print("Trials of several episodes on one task, for agents with memory: trials/NAME.")


def _installed(name: str, suite: Suite) -> str:
    return "yes" if suite.installed else f"no: {escape(how_to_install(name))}"


def print_suite(listed: "Iterable[tuple[str, Task | UserError]]") -> None:
    """Environments of a suite, as they are without settings, or why there is none."""
    rows = (
        (name, "–", escape(str(found)))
        if isinstance(found, UserError)
        else (name, str(found.num_actions), describe(found.observation))
        for name, found in listed
    )
    print_table(rows, "environment", "actions", "observation")


def describe(observation: "PyTree") -> str:
    """The shapes and types of what is observed."""
    if isinstance(observation, dict):
        return ", ".join(f"{name}: {describe(x)}" for name, x in observation.items())
    if isinstance(observation, tuple):
        return ", ".join(describe(x) for x in observation)
    of = getattr(observation, "number", None)
    kind = observation.dtype.name if of is None else f"symbols of {of}"
    return f"{by_times(observation.shape)} {kind}"


def by_times(shape: tuple[int, ...]) -> str:
    return "×".join(map(str, shape)) or "1"


def print_rule(name: str, about: str, settings: Iterable[tuple[str, str]] = ()) -> None:
    out.print(f"[bold]{name}[/]  {about}", highlight=False)
    if rows := [("", *setting) for setting in settings]:
        print_table(rows, padding=(0, 2, 0, 2))
