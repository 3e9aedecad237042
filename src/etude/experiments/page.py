"""The page of verdicts, made from stored results: docs/results/README.md."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from etude.experiments.base import Experiment
from etude.experiments.claims import UNTESTED
from etude.experiments.fingerprint import Fingerprint, fingerprint
from etude.experiments.results import Result, VerdictRecord
from etude.text import duration, figure, interval

VERDICTS = ("holds", "does not hold", "cannot be told")
STALE_CODE = " *Stale: code that it ran on has changed since.*"
STALE_EXPERIMENT = " **Stale: the experiment itself has changed since.**"
INTRODUCTION = """\
# Verdicts

Every claim of our sources that an experiment here tests, and what came out. This page is made from
the result files in [data](data), never by hand:

    etude reproduce NAME --results docs/results/data     # runs an experiment and keeps its result
    etude reproduce --all --due --results docs/results/data    # runs all that are still to be run
    etude reproduce --all --summary                      # makes this page

A claim **holds**, or does not, if all of our 95% interval over seeds (Student's) agrees; otherwise
it **cannot be told**. No setting was chosen on the seeds shown, unless a line says so.

A result is *stale* when what it came from is no longer what it was: the experiment itself (its
settings, sizes and claims, and all that it uses of `etude.experiments`), or the code that it ran on
(the modules of Etude that those import, all rules, environments and presets, and the versions of
JAX, Optax, Equinox and gymnax). Comments do not count. Marks of the second kind are as of when this
page was made. Accounts of what was tried, with figures, are on the pages that each experiment links
to; what is there and not here was made by earlier versions of the code.
"""


class Entry(NamedTuple):
    """An experiment with its stored result, if there is one."""

    name: str
    experiment: Experiment
    result: Result | None
    now: Fingerprint

    @property
    def stale(self) -> str:
        if self.result is None:
            return ""
        then = self.result["fingerprint"]
        if then["experiment"] != self.now.experiment:
            return STALE_EXPERIMENT
        return STALE_CODE if then["code"] != self.now.code else ""

    @property
    def is_due(self) -> bool:
        """Whether there is no result of the experiment as it now is."""
        return self.result is None or self.stale == STALE_EXPERIMENT


def entries(experiments: dict[str, Experiment], results: dict[str, Result]) -> list[Entry]:
    return [
        Entry(name, x, results.get(name), fingerprint(x.home)) for name, x in experiments.items()
    ]


def page(found: list[Entry]) -> str:
    parts = [
        INTRODUCTION,
        _overview(found),
        *(_section(x) for x in found if x.result is not None),
        _untested(),
        _to_be_run(found),
    ]
    return "\n".join(parts)


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    head = list(head)
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _overview(found: list[Entry]) -> str:
    rows = []
    for x in found:
        if x.result is None:
            rows.append((f"`{x.name}`", x.experiment.source, *("",) * len(VERDICTS), "not run"))
            continue
        told = [verdict["verdict"] for verdict in x.result["verdicts"]]
        numbers = [str(told.count(word) or "") for word in VERDICTS]
        rows.append((f"[`{x.name}`](#{x.name})", x.experiment.source, *numbers, x.stale.strip()))
    spent = sum((x.result["spent"]["cpu_seconds"] for x in found if x.result is not None), 0.0)
    total = f"\nAll of it took {duration(spent)} of one core.\n"
    return f"## All experiments\n\n{table(('experiment', 'source', *VERDICTS, ''), rows)}{total}"


def _section(x: Entry) -> str:
    assert x.result is not None
    lines = [f"## `{x.name}`\n\n{x.experiment.about} {x.experiment.source}.{x.stale}\n"]
    lines.append(_origin(x, x.result))
    rows = [_row(verdict) for verdict in x.result["verdicts"]]
    lines.append(table(("claim", "ours", "95% interval", "verdict"), rows))
    notes = list(x.result["notes"])
    if x.experiment.cut and not x.result["full"]:
        notes.append(f"Cut: {x.experiment.cut}")
    if both := sorted({*_shown(x)} & {*x.experiment.chosen_on}):
        told = ", ".join(map(str, both))
        notes.append(f"**Settings were chosen on seeds that are shown here: {told}.**")
    if notes:
        lines.append("".join(f"- {note}\n" for note in notes))
    return "\n".join(lines)


def _shown(x: Entry) -> range:
    assert x.result is not None
    return x.experiment.shown(x.result["seed"], x.result["seeds"])


def _origin(x: Entry, result: Result) -> str:
    made, spent = result["made"], result["spent"]
    told = [
        f"`{made['command']}`",
        f"commit {made['commit'] or 'not known'}",
        made["at"][:10],
        f"{duration(spent['cpu_seconds'])} of one core",
    ]
    if x.experiment.account:
        told.append(f"[account]({x.experiment.account})")
    return " · ".join(told) + "\n"


def _row(verdict: VerdictRecord) -> tuple[str, ...]:
    word = verdict["verdict"]
    return (
        verdict["claim"].replace("|", "\\|").replace("\n", " "),
        figure(verdict["figure"]),
        interval({"low": verdict["low"], "high": verdict["high"]}),
        f"**{word}**" if word == "does not hold" else word,
    )


def _untested() -> str:
    rows = ((x.source, x.claim, x.why) for x in UNTESTED)
    about = "What our sources also claim, and why no experiment here tests it."
    return f"## Not tested\n\n{about}\n\n{table(('source', 'claim', 'why it is not tested'), rows)}"


def _to_be_run(found: list[Entry]) -> str:
    about = "Times are of both of two cores, and estimates where an experiment has not been run."
    rows = list(_left(found))
    head = ("command", "why", "about")
    if not rows:
        return "## Still to be run\n\nNothing.\n"
    return f"## Still to be run\n\n{about}\n\n{table(head, rows)}"


def _left(found: list[Entry]) -> Iterator[tuple[str, str, str]]:
    for x in found:
        command = f"etude reproduce {x.name}"
        why = "no result yet" if x.result is None else x.stale.strip(" *")
        if x.is_due:
            told = f"{why} ([earlier]({x.experiment.account}))" if x.experiment.account else why
            yield f"`{command}`", told, _about(x.experiment.minutes)
        if x.experiment.cut and not (x.result and x.result["full"]):
            yield f"`{command} --full`", x.experiment.cut, _about(x.experiment.full_minutes)


def _about(minutes: int) -> str:
    return duration(60.0 * minutes) if minutes else "not known"
