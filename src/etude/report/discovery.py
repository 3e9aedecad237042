"""Runs of discovery: the population that a rule is learned from, and checks with fresh agents."""

import numpy as np

from etude.meta.discovery.report import PANELS, check_curve
from etude.report.curves import Detail, about_lines, line
from etude.report.folders import (
    Found,
    Row,
    Told,
    commands,
    lead_of,
    origin,
    row_of_run,
    settings_table,
)
from etude.report.page import Block, Curves, Facts, Line, Part, Table, number, text
from etude.runs import results
from etude.runs.figures import column
from etude.text import duration, figure

STEPS = "meta-steps"


def tell(found: Found, detail: Detail) -> Told:
    envs = str(found.config.get("envs"))[:200]
    blocks: list[Block] = outcome(found)
    blocks += checks(found)
    blocks += population(found, detail)
    blocks += panels(found, detail)
    blocks.append(commands(found.path, found.kind, found.made, found.summary is not None))
    blocks += [settings_table(found.settings), *origin(found.made)]
    part = Part(f"A rule discovered on {envs}", lead_of(found, "Discovery of a rule"), blocks)
    return Told(part, row(found))


def outcome(found: Found) -> list[Block]:
    if (summary := found.summary) is None:
        return []
    facts = {
        "rule kept from": f"meta-step {summary['best_meta_step']:,}",
        "environment steps": f"{summary['environment_steps']:,}",
        "time": duration(summary["seconds"]),
        "speed": f"{summary['steps_per_second']:,.0f} steps/s",
    }
    blocks: list[Block] = [Facts("Results", facts, large=True)]
    if check := summary["final_check"]:
        rows = [
            [text(env), *(_with_interval(score) for score in by.values())]
            for env, by in results.of_discovery(check)
        ]
        note = "All on the same seeds, which had no part in the choice of the rule; 95% intervals."
        columns = ("environment", *results.JUDGED.values())
        blocks.append(Table("Return of fresh agents", columns, rows, note=note))
    return blocks


def _with_interval(score):
    cell = number(score["mean"])
    if score["low"] is None or score["low"] == score["high"]:
        return cell
    return cell._replace(text=f"{cell.text} ({figure(score['low'])} to {figure(score['high'])})")


def checks(found: Found) -> list[Block]:
    checked = [r for r in found.records if "check" in r]
    if not checked:
        return []
    curves = {env: check_curve(checked, env) for env in checked[0]["check"]["returns"]}
    lines = [Line(env, x, mean, low, high) for env, (x, mean, low, high) in curves.items()]
    last = checked[-1]["check"]["baseline"]
    levels = {
        f"actor-critic, {env}": score["mean"]
        for env, score in last.items()
        if score["mean"] is not None
    }
    note = "Agents trained from scratch under the rule as it then was; band: 95% interval."
    return [Curves("Checks with fresh agents", STEPS, "return", lines, levels, note)]


def population(found: Found, detail: Detail) -> list[Block]:
    told = [r for r in found.records if "returns" in r]
    steps = column(told, "updates")
    by_env = {
        env: [r["returns"][env] for r in told] for env in (told[0]["returns"] if told else ())
    }
    lines = [
        line(env, steps, np.array(values, float)[:, None], detail.points)
        for env, values in by_env.items()
    ]
    note = about_lines(len(told), 1, detail.points)
    return [Curves("Population", STEPS, "return", lines, note=note)] if lines else []


def panels(found: Found, detail: Detail) -> list[Block]:
    steps, figures = column(found.records, "updates"), []
    for panel in PANELS:
        lines = [
            line(
                name.replace("_", " "),
                steps,
                np.array([r.get(name) for r in found.records], float)[:, None],
                detail.points // 2,
            )
            for name in panel.names.split()
        ]
        title = panel.about[0].upper() + panel.about[1:]
        if lines := [x for x in lines if len(x.x)]:
            figures.append(Curves(title, STEPS, "", lines, small=True, log_y=panel.log))
    return figures


def row(found: Found) -> Row:
    return row_of_run(found, "discovery", found.config.get("envs"))
