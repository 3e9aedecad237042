"""What the command line prints: sentences, and tables of what came out."""

from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from etude.cli.flags import as_words
from etude.cli.source import class_in, first_line
from etude.envs.catalogue import Listed
from etude.runs.folder import RunFolder
from etude.text import duration

out = Console()


def say(text: str) -> None:
    """Prints a line as it is: no markup, no line breaks of its own."""
    out.print(text, highlight=False, markup=False, soft_wrap=True)


def print_summary(summary: dict[str, Any], folder: RunFolder) -> None:
    final = summary["final_return"]
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    if final["mean"] is None:
        table.add_row("final return", "no episode ended")
    else:
        interval = f"(95% interval {final['low']:.3g} to {final['high']:.3g})"
        table.add_row("final return", f"{final['mean']:.3g} {interval}")
        if summary["seeds"] > 1:
            table.add_row(
                "by seed", ", ".join(f"{x:.3g}" for x in final["per_seed"] if x is not None)
            )
    table.add_row("environment steps", f"{summary['environment_steps']:,} a seed")
    table.add_row("updates", f"{summary['updates']:,}")
    table.add_row("time", duration(summary["seconds"]))
    table.add_row("speed", f"{summary['steps_per_second']:,.0f} steps/s")
    table.add_row("parameters", f"sha256 {summary['params_sha256'][:16]}…")
    table.add_row("run folder", escape(str(folder.path)))
    out.print(table, highlight=False)


def print_discovery(summary: dict[str, Any], folder: RunFolder) -> None:
    if check := summary["final_check"]:
        table = Table(box=None)
        columns = "fresh agents in,untrained,first rule,rule kept,95% interval,actor-critic"
        for column in columns.split(","):
            table.add_column(column)
        for name, kept in check["returns"].items():
            means = [check[key][name]["mean"] for key in ("untrained", "start")]
            ends = [kept[key] for key in ("mean", "low", "high")]
            mean, low, high = map(_figure, ends)
            actor_critic = _figure(check["baseline"][name]["mean"])
            table.add_row(name, *map(_figure, means), mean, f"{low} to {high}", actor_critic)
        out.print(table, highlight=False)
    say(f"Time: {duration(summary['seconds'])}, {summary['environment_steps']:,} steps.")
    say(f"The rule of meta-step {summary['best_meta_step']:,} is kept. Use it with:")
    say(f"  etude train --rule {folder.path}")


def _figure(x: float | None) -> str:
    return "–" if x is None else f"{x:.3g}"


def print_scores(scores: dict[str, Any]) -> None:
    table = Table(box=None)
    for column in (f"on {scores['fresh_tasks']} fresh tasks", "return", "95% interval"):
        table.add_column(column)
    rows = {"before adapting": scores["before"], "after adapting": scores["after"]}
    if scores["before"] == scores["after"]:  # all that there is is one episode
        rows = {"in a trial": scores["after"]}
    for label, score in rows.items():
        mean, low, high = (_figure(score[key]) for key in ("mean", "low", "high"))
        table.add_row(label, mean, f"{low} to {high}")
    out.print(table, highlight=False)


def print_adaptation(summary: dict[str, Any], folder: RunFolder) -> None:
    print_scores(summary)
    say(f"{duration(summary['seconds'])}, {summary['steps_per_second']:,.0f} steps/s.")
    say(f"Adapt it to fresh tasks with: etude adapt --test {folder.path}")


def list_experiments(experiments: dict[str, Any]) -> None:
    table = Table(box=None)
    for column in ("experiment", "about", "source"):
        table.add_column(column)
    for name, experiment in experiments.items():
        table.add_row(name, experiment.about, experiment.source)
    out.print(table, highlight=False)


def print_verdicts(verdicts: list[Any]) -> None:
    table = Table(box=None)
    for column in ("claim", "ours", "95% interval", "verdict"):
        table.add_column(column)
    for verdict in verdicts:
        interval = f"{verdict.low:.3g} to {verdict.high:.3g}"
        table.add_row(verdict.claim, f"{verdict.figure:.3g}", interval, verdict.verdict)
    out.print(table, highlight=False)


def print_plan(about: str, settings: dict[str, Any], origins: dict[str, str]) -> None:
    """What a run would be: every setting, and where it comes from."""
    say(about)
    table = Table(box=None)
    for column in ("setting", "value", "from"):
        table.add_column(column, overflow="fold")
    for name, value in settings.items():
        if value is not None:
            table.add_row(name.rstrip("_"), escape(as_words(value)), origins[name])
    out.print(table, highlight=False)
    say("This was a dry run: nothing was run, and nothing was written.")


def print_envs(listed: dict[str, Listed]) -> None:
    table = Table(box=None)
    for column in ("environment", "actions", "observation", "about"):
        table.add_column(column)
    for name, env in listed.items():
        shape = "×".join(map(str, env.observation)) or "1"
        about = first_line(class_in(*env.home.split(":"))) if env.home else ""
        table.add_row(name, str(env.actions), shape, about)
    out.print(table, highlight=False)
    out.print("\nSettings follow a colon: catch:rows=5,columns=5. Your own: module:Class.")


def print_rule(name: str, about: str, settings: list[tuple[str, str]]) -> None:
    out.print(f"[bold]{name}[/]  {about}", highlight=False)
    table = Table(box=None, show_header=False, padding=(0, 2))
    for setting, doc in settings:
        table.add_row("", setting, doc)
    if settings:
        out.print(table, highlight=False)
