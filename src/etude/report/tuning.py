"""Searches of `etude tune`: what was chosen, what mattered, and every trial."""

import shlex

import numpy as np

from etude.report.curves import Detail
from etude.report.folders import Found, Row, Told, lead_of, origin, settings_table
from etude.report.page import (
    Bars,
    Block,
    Cell,
    Commands,
    Curves,
    Facts,
    Line,
    Part,
    Table,
    Tone,
    number,
    text,
)
from etude.runs.folder import Record
from etude.settings import as_text
from etude.text import count, figure

TONES: dict[str, Tone] = {"complete": "good", "pruned": "open", "fail": "bad"}
BEST = "best.json"


def tell(found: Found, detail: Detail) -> Told:
    rule, env = (str(found.config.get(name, "?"))[:200] for name in ("rule", "env"))
    blocks = [] if found.summary is None else _result(found.summary)
    own = shlex.quote(str(found.path))
    lines = {"What was run": found.made["command"] or ""} if found.made else {}
    if found.summary is None:
        lines["Go on"] = f"etude tune --resume {own}"
    else:
        lines["Use it"] = f"etude train --rule {shlex.quote(rule)} --preset {own}/{BEST}"
    blocks += [Commands("Commands", lines), settings_table(found.settings), *origin(found.made)]
    part = Part(f"Settings of {rule} for {env}", lead_of(found, "Tuning"), blocks)
    seconds = None if found.summary is None else found.summary["seconds"]
    row = Row(f"tuning {rule}", env, found.state, found.config.get("seeds"), seconds=seconds)
    return Told(part, row)


def _result(summary: Record) -> list[Block]:
    ended = summary["trials"]
    told = {
        "score": figure(summary["score"]),
        "of the defaults": figure(summary["defaults"]),
        "trials": f"{ended['complete']} finished, {ended['pruned']} pruned, {ended['fail']} failed",
    }
    blocks: list[Block] = [Facts("What was found", told, large=True), _chosen(summary)]
    if importances := summary["importances"]:
        note = "Share of what sets good trials apart from others, by PED-ANOVA (arXiv 2304.10255)."
        bars = {name[:100]: (x, x, x) for name, x in importances.items()}
        blocks.append(Bars("What mattered", "importance", bars, note=note))
    return [*blocks, _contenders(summary), _history(summary), _trials(summary["each_trial"])]


def _chosen(summary: Record) -> Table:
    layer = next(x["layer"] for x in summary["contenders"] if x["name"] == summary["chosen"])
    own = {f"rule.{name}": value for name, value in layer.get("rule", {}).items()}
    found = layer.get("training", {}) | own
    rows = [[text(name), text(_words(value))] for name, value in found.items()]
    note = "" if rows else "No trial was better than the defaults."
    return Table("Settings chosen", ("setting", "value"), rows, note=note)


def _words(value: object) -> str:
    return as_text(tuple(value) if isinstance(value, list) else value)


def _contenders(summary: Record) -> Table:
    rows = [
        [
            Cell(x["name"][:100], tone="good" if x["name"] == summary["chosen"] else ""),
            number(x["score"]),
            number(x["again"]),
        ]
        for x in summary["contenders"]
    ]
    note = "The last column is on tuning seeds that had no part in the search."
    return Table("The best once more", ("trial", "score", "on other seeds"), rows, note=note)


def _history(summary: Record) -> Curves:
    scores = np.array([_score(x) for x in summary["each_trial"]], float)
    best = np.fmax.accumulate(scores)
    numbers = np.arange(len(scores), dtype=float)
    lines = [Line("score", numbers, scores), Line("best so far", numbers, best)]
    defaults = summary["contenders"][0]["score"]
    levels = {} if defaults is None else {"defaults": defaults}
    note = f"{count(len(scores), 'trial')}; of those that were pruned or failed there is no score."
    return Curves("The search", "trial", "score", lines, levels, note)


def _score(trial: Record) -> float:
    score = trial["score"]
    return score if trial["state"] == "complete" and score is not None else np.nan


def _trials(trials: list[Record]) -> Table:
    names = list(dict.fromkeys(name for x in trials for name in x["settings"]))[:40]
    rows = [
        [
            Cell(str(x["trial"]), x["trial"]),
            Cell(x["state"][:20], tone=TONES.get(x["state"], "")),
            number(x["score"]),
            *(_cell(x["settings"].get(name)) for name in names),
            text(x["why"] or ""),
        ]
        for x in trials
    ]
    columns = ("trial", "state", "score", *(name[:100] for name in names), "why")
    return Table("All trials", columns, rows, folded=True)


def _cell(value: object) -> Cell:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return number(float(value))
    return text("" if value is None else value)
