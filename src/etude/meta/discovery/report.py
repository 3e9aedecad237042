"""A discovery run in words and pictures."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from etude.errors import UserError
from etude.runs.figures import figure_file, tidy
from etude.runs.folder import Record

Records = Sequence[Record]


class Panel(NamedTuple):
    """Metrics that are drawn together."""

    about: str
    names: str
    log: bool = False


PANELS = (
    Panel("training batches", "reward"),
    Panel("rewards per meta-step and agent", "positive_rewards negative_rewards"),
    Panel("meta-loss", "meta_loss pg_loss reg_loss"),
    Panel("norms of the rule's gradient and step", "meta_gradient_norm meta_update_norm", True),
    Panel(
        "the agents' losses",
        "agent_loss agent_pi_loss agent_y_loss agent_z_loss agent_aux_loss agent_q_loss",
        True,
    ),
    Panel(
        "norms of the agents' gradients and steps", "agent_gradient_norm agent_update_norm", True
    ),
    Panel("entropies", "entropy agent_entropy agent_y_entropy agent_z_entropy"),
    Panel("meta-value function", "value_loss value_gradient_norm td_rms", True),
    Panel("its values and errors", "value td normalised_td"),
    Panel("advantages", "advantage advantage_rms normalised_advantage importance_weight"),
    Panel("rewards per episode under perturbed rules", "fitness fitness_difference"),
    Panel("age in environment steps", "age"),
    Panel("agents", "resets skipped"),
)
"""What is drawn beside the returns; docs/reference/discovery-metrics.md explains all of it."""


def describe(record: Record, meta_steps: int) -> str:
    """One line of progress."""
    returns = ", ".join(
        f"{name} {'–' if value is None else format(value, '.3g')}"
        for name, value in record["returns"].items()
    )
    skipped, check = record["skipped"], record.get("check")
    parts = [
        f"meta-step {record['updates']:,} of {meta_steps:,}",
        f"meta-loss {record['meta_loss']:.3g}",
        f"return {returns}",
        f"gradient {record['meta_gradient_norm']:.2g}",
        f"age {record['age']:,.0f}",
        f"{record['resets']} resets",
        f"{skipped} skipped" if skipped else "",
        f"check {check['score']:.2f}" if check else "",
    ]
    return " · ".join(filter(None, parts))


def plot_discovery(records: Records, path: Path) -> None:
    """The population's returns, the checks against the baseline, losses, gradients, lives."""
    steps = [r["updates"] for r in records]
    with figure_file(path, (18.0, 14.0), (5, 3)) as axes:
        population, checks, *others = np.ravel(axes)
        for name in records[0]["returns"] if records else []:
            population.plot(
                steps, np.array([r["returns"][name] for r in records], float), label=name
            )
        tidy(population, "meta-steps", "return of the population")
        checked = [r for r in records if "check" in r]
        for name in checked[0]["check"]["returns"] if checked else []:
            color = draw_checks(checks, checked, name, 0.2, label=name)
            baseline = checked[-1]["check"]["baseline"][name]["mean"]
            if baseline is not None:
                checks.axhline(baseline, color=color, linestyle=":", linewidth=1)
        tidy(checks, "meta-steps", "return of fresh agents (dotted: actor-critic)")
        for ax, panel in zip(others, PANELS, strict=False):
            _draw_panel(ax, steps, records, panel)
        for ax in others[len(PANELS) :]:
            ax.set_axis_off()


def _draw_panel(ax: Any, steps: list[int], records: Records, panel: Panel) -> None:
    """Only what this rule and this version of the run have logged."""
    for name in panel.names.split():
        if any(r.get(name) is not None for r in records):
            values = np.array([r.get(name) for r in records], float)
            ax.plot(steps, values, label=name.replace("_", " "))
    if panel.log and any((np.asarray(x.get_ydata(), float) > 0).any() for x in ax.lines):
        ax.set_yscale("log")
    ax.set_title(panel.about, fontsize="medium")
    tidy(ax, "meta-steps", "")


def plot_checks(runs: Sequence[Records], path: Path) -> None:
    """Overlays the checks of several runs that differ in their seeds."""
    runs = [[r for r in records if "check" in r] for records in runs]
    names = list(runs[0][0]["check"]["returns"]) if all(runs) else []
    if not names or any(list(records[0]["check"]["returns"]) != names for records in runs):
        raise UserError("Runs of discovery are drawn together if they check the same environments.")
    with figure_file(path, (6.0 * len(names), 4.5), (1, len(names))) as axes:
        for ax, name in zip(np.atleast_1d(axes), names, strict=True):
            for records in runs:
                draw_checks(ax, records, name, 0.12, linewidth=1.2)
            baseline = np.mean([r[-1]["check"]["baseline"][name]["mean"] for r in runs])
            ax.axhline(float(baseline), color="0.4", linestyle=":", label="actor-critic")
            ax.set_title(name, fontsize="medium")
            tidy(ax, "meta-steps", "return of fresh agents")


def draw_checks(
    ax: Any, records: Records, name: str, alpha: float, **style: float | str
) -> str | tuple[float, ...]:
    """The checks in one environment; returns their colour."""
    steps, mean, low, high = check_curve(records, name)
    (line,) = ax.plot(steps, mean, "o-", markersize=3, **style)
    ax.fill_between(steps, low, high, color=line.get_color(), alpha=alpha, linewidth=0)
    return line.get_color()


def check_curve(records: Records, name: str) -> tuple[np.ndarray, ...]:
    """Meta-steps, with the start as 0, and the mean return there with its interval."""
    results = [records[0]["check"]["start"][name], *(r["check"]["returns"][name] for r in records)]
    steps = np.array([0, *(r["updates"] for r in records)])
    return steps, *(np.array([x[key] for x in results], float) for key in ("mean", "low", "high"))
