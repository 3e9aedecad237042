"""What the command line prints: sentences, and tables of what came out."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape
from rich.table import Column, Table

from etude.cli.source import classes_in, first_line
from etude.envs.catalogue import Listed, Suite, how_to_install
from etude.errors import UserError
from etude.runs.folder import Record, RunFolder
from etude.settings import Settings
from etude.text import as_words, count, duration

if TYPE_CHECKING:
    import numpy as np
    from jaxtyping import PyTree

    from etude.envs import Task
    from etude.experiments import Experiment, Verdict
    from etude.inspection.inspect import Inspection

Padding = tuple[int, int, int, int]

out = Console()


def say(text: str) -> None:
    """Prints a line as it is: no markup, no line breaks of its own."""
    out.print(text, highlight=False, markup=False, soft_wrap=True)


def print_table(
    rows: Iterable[tuple[str, ...]], *header: Column | str, padding: Padding = (0, 1, 0, 1)
) -> None:
    table = Table(*header, box=None, show_header=bool(header), padding=padding)
    for row in rows:
        table.add_row(*row)
    out.print(table, highlight=False)


def print_training(summary: Record, folder: RunFolder) -> None:
    final = summary["final_return"]
    rows = {"final return": "no episode ended"}
    if final["mean"] is not None:
        rows["final return"] = f"{_figure(final['mean'])} (95% interval {_interval(final)})"
        if summary["seeds"] > 1:
            rows["by seed"] = ", ".join(_figure(x) for x in final["per_seed"] if x is not None)
    for name, by_seed in summary.get("outcomes", {}).items():
        rows[escape(name)] = ", ".join(_figure(x) for x in by_seed)
    rows |= {
        "environment steps": f"{summary['environment_steps']:,} a seed",
        "updates": f"{summary['updates']:,}",
        "time": duration(summary["seconds"]),
        "speed": f"{summary['steps_per_second']:,.0f} steps/s",
        "parameters": f"sha256 {summary['params_sha256'][:16]}…",
        "run folder": escape(str(folder.path)),
    }
    print_table(rows.items(), padding=(0, 2, 0, 0))


def print_discovery(summary: Record, folder: RunFolder) -> None:
    if check := summary["final_check"]:
        say("Fresh agents, all on the same seeds, which had no part in the choice of the rule:")
        header = "fresh agents in,untrained,first rule,rule kept,95% interval,actor-critic"
        rows = []
        for name, kept in check["returns"].items():
            others = ("untrained", "start", "baseline")
            untrained, first, baseline = (_figure(check[x][name]["mean"]) for x in others)
            rows.append((name, untrained, first, _figure(kept["mean"]), _interval(kept), baseline))
        print_table(rows, *header.split(","))
    say(f"Time: {duration(summary['seconds'])}, {summary['environment_steps']:,} steps.")
    say(f"The rule of meta-step {summary['best_meta_step']:,} is kept. Use it with:")
    say(f"  etude train --rule {folder.path}")


def print_scores(scores: Record) -> None:
    rows = {"before adapting": scores["before"], "after adapting": scores["after"]}
    if scores["before"] == scores["after"]:  # all that there is is one episode
        rows = {"in a trial": scores["after"]}
    print_table(
        ((label, _figure(score["mean"]), _interval(score)) for label, score in rows.items()),
        f"on {count(scores['fresh_tasks'], 'fresh task')}",
        "return",
        "95% interval",
    )


def print_adaptation(summary: Record, folder: RunFolder) -> None:
    print_scores(summary)
    say(f"{duration(summary['seconds'])}, {summary['steps_per_second']:,.0f} steps/s.")
    say(f"Adapt it to fresh tasks with: etude adapt --test {folder.path}")


PRINT = {"train": print_training, "discover": print_discovery, "adapt": print_adaptation}
"""How the summary of a run is printed, by the command that it belongs to."""


def _figure(x: float | None) -> str:
    return "–" if x is None else f"{x:.3g}"


def _interval(score: Mapping[str, float | None]) -> str:
    return f"{_figure(score['low'])} to {_figure(score['high'])}"


def print_experiments(experiments: "dict[str, Experiment]") -> None:
    rows = ((name, x.about, x.source) for name, x in experiments.items())
    print_table(rows, "experiment", "about", "source")


def print_verdicts(verdicts: "list[Verdict]") -> None:
    rows = ((x.claim, _figure(x.figure), _interval(vars(x)), x.verdict) for x in verdicts)
    print_table(rows, "claim", "ours", "95% interval", "verdict")


def print_inspection(found: "Inspection") -> None:
    """Means over agents."""
    sources = list(next(iter(found.probes.values())))
    rows = ((name, *(_figure(_mean(x[s])) for s in sources)) for name, x in found.probes.items())
    print_table(rows, "R² on held-out episodes", *sources)
    steps = [k for k in (0, 1, 2, 4, 8, 16, 32, 64) if k < len(found.horizon)]
    rows = (
        (head, *(_figure(_mean(found.horizon[k, i])) for k in steps))
        for i, head in enumerate(found.heads)
    )
    print_table(rows, "KL for a reward 1 larger, ahead by", *map(str, steps))
    without = found.ablation.mean(axis=-1)
    for i, head in enumerate(found.heads):
        most = sorted(zip(without[:, i].tolist(), found.inputs, strict=True), reverse=True)[:6]
        say(f"{head} changes most without: " + ", ".join(f"{x} ({_figure(n)})" for n, x in most))


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
    print_table(rows, *(Column(x, overflow="fold") for x in ("setting", "value", "from")))
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
    print_table(rows, "environment", "actions", Column("observation", overflow="fold"))


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
