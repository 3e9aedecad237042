"""Searches of `etude tune`: what was chosen, what it was chosen from, and what mattered."""

import shlex

import numpy as np

from etude.report.curves import Detail
from etude.report.folders import Found, Row, Told, held, holder_commands, origin, settings_table
from etude.report.page import (
    Bars,
    Block,
    Commands,
    Curves,
    Facts,
    Line,
    Part,
    Table,
    number,
    text,
    whole,
)
from etude.runs.folder import Record
from etude.settings import lists_to_tuples
from etude.text import as_words, count, duration, figure


def tell(found: Found, detail: Detail) -> Told:
    rule, env = (str(found.config.get(name))[:200] for name in ("rule", "env"))
    if (summary := found.summary) is None:
        state, blocks = "not finished", held(found)
    else:
        state = "finished"
        blocks = [results(summary), contenders(summary), *mattered(summary), *trials(summary)]
        best = shlex.quote(str(found.path / "best.json"))
        use = f"etude train --env {shlex.quote(env)} --rule {shlex.quote(rule)} --preset {best}"
        blocks.append(Commands("Use what was found", {"": use}))
    blocks += [holder_commands(found), settings_table(found.settings), *origin(found.made)]
    part = Part(f"{rule} tuned on {env}", f"Search for settings · {state}", blocks)
    seconds = (summary or {}).get("seconds")
    return Told(part, Row("search", env, state, found.config.get("seeds"), seconds=seconds))


def results(summary: Record) -> Facts:
    ended = ", ".join(f"{number:,} {how}" for how, number in summary["trials"].items())
    rows = {
        "chosen": f"{summary['chosen']}, score {figure(summary['score'])}",
        "defaults": figure(summary["defaults"]),
        "trials": ended,
        "environment steps": f"{summary['environment_steps']:,}",
        "time of all trainings": duration(summary["seconds"]),
    }
    return Facts("Results", rows, large=True)


def contenders(summary: Record) -> Table:
    rows = [
        [text(x["name"]), number(x["score"]), number(x["again"]), text(_words(x["layer"]))]
        for x in summary["contenders"]
    ]
    note = "Again: the score on other seeds, by which one of them was chosen."
    return Table("Contenders", ("settings of", "score", "again", "what they are"), rows, note=note)


def _words(layer: Record) -> str:
    """The settings of a preset's layer."""
    parts = [lists_to_tuples(x) for x in layer.values() if isinstance(x, dict)]
    return ", ".join(f"{k} {as_words(v)}" for part in parts for k, v in part.items()) or "none"


def mattered(summary: Record) -> list[Block]:
    found = sorted(summary["importances"].items(), key=lambda item: -item[1])
    bars = {name: (share, share, share) for name, share in found}
    note = "How much of the differences between trials each setting explains."
    return [Bars("What mattered", "importance", bars, note=note)] if bars else []


def trials(summary: Record) -> list[Block]:
    """The search as it went, and all of its trials."""
    if not (each := summary["each_trial"]):
        return []
    at = np.array([x["trial"] for x in each], float)
    scores = np.array([x["score"] for x in each], float)
    best = np.fmax.accumulate(scores)
    lines = [Line("trial", at, scores), Line("best so far", at, best)]
    rows = [
        [
            whole(x["trial"]),
            text(x["state"]),
            number(x["score"]),
            text(_words({"": x["settings"]})),
            text(x["why"] or ""),
        ]
        for x in each
    ]
    table = Table("Trials", ("trial", "ended", "score", "settings", "why"), rows, folded=True)
    note = f"{count(len(each), 'trial')}; those that were given up have no score."
    return [Curves("The search", "trial", "score", lines, note=note), table]
