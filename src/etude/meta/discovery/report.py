"""A discovery run in words and pictures."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from etude.errors import UserError
from etude.runs.figures import figure_file, tidy

Records = Sequence[dict[str, Any]]


def describe(record: dict[str, Any], meta_steps: int) -> str:
    """One line of progress."""
    returns = ", ".join(
        f"{name} {'–' if value is None else format(value, '.3g')}"
        for name, value in record["returns"].items()
    )
    parts = [
        f"meta-step {record['updates']:,} of {meta_steps:,}",
        f"meta-loss {record['meta_loss']:.3g}",
        f"return {returns}",
        f"gradient {record['meta_gradient_norm']:.2g}",
        f"age {record['age']:,.0f}",
        f"{record['resets']} resets",
    ]
    if record["skipped"]:
        parts.append(f"{record['skipped']} skipped")
    if "check" in record:
        parts.append(f"check {record['check']['score']:.2f}")
    return " · ".join(parts)


def plot_discovery(records: Records, path: Path) -> None:
    """The population's returns, the checks against the baseline, losses, gradients, lives."""
    with figure_file(path, (10.0, 10.0), (3, 2)) as axes:
        _plot_population(axes[0, 0], records)
        _plot_checks(axes[0, 1], [r for r in records if "check" in r])
        steps = [r["updates"] for r in records]
        for ax, names in (
            (axes[1, 0], ("meta_loss", "pg_loss", "reg_loss")),
            (axes[1, 1], ("meta_gradient_norm", "agent_loss")),
            (axes[2, 0], ("age",)),
            (axes[2, 1], ("resets", "skipped")),
        ):
            for name in names:
                ax.plot(steps, [r[name] for r in records], label=name.replace("_", " "))
            tidy(ax, "meta-steps", "")
        axes[1, 1].set_yscale("log")


def plot_checks(runs: Sequence[Records], path: Path) -> None:
    """Overlays the checks of several runs that differ in their seeds: each run, and their mean."""
    runs = [[r for r in records if "check" in r] for records in runs]
    names = list(runs[0][0]["check"]["returns"]) if all(runs) else []
    if not names or any(list(records[0]["check"]["returns"]) != names for records in runs):
        raise UserError("Runs of discovery are drawn together if they check the same environments.")
    with figure_file(path, (6.0 * len(names), 4.5), (1, len(names))) as axes:
        for ax, name in zip(np.atleast_1d(axes), names, strict=True):
            for records in runs:
                steps, mean, low, high = _check_curve(records, name)
                (line,) = ax.plot(steps, mean, "o-", markersize=3, linewidth=1.2)
                ax.fill_between(steps, low, high, color=line.get_color(), alpha=0.12, linewidth=0)
            baseline = np.mean([r[-1]["check"]["baseline"][name]["mean"] for r in runs])
            ax.axhline(float(baseline), color="0.4", linestyle=":", label="actor-critic")
            ax.set_title(name, fontsize="medium")
            tidy(ax, "meta-steps", "return of fresh agents")


def _check_curve(records: Records, name: str) -> tuple[np.ndarray, ...]:
    """Meta-steps, with the start as 0, and the mean return there with its interval."""
    results = [records[0]["check"]["start"][name], *(r["check"]["returns"][name] for r in records)]
    steps = np.array([0, *(r["updates"] for r in records)])
    return steps, *(np.array([x[key] for x in results], float) for key in ("mean", "low", "high"))


def _plot_population(ax: Any, records: Records) -> None:
    steps = np.array([r["updates"] for r in records])
    for name in records[0]["returns"] if records else []:
        values = np.array([r["returns"][name] for r in records], float)
        ax.plot(steps, values, label=name)
    tidy(ax, "meta-steps", "return of the population")


def _plot_checks(ax: Any, records: Records) -> None:
    for name in records[0]["check"]["returns"] if records else []:
        steps, mean, low, high = _check_curve(records, name)
        (line,) = ax.plot(steps, mean, "o-", markersize=3, label=name)
        ax.fill_between(steps, low, high, color=line.get_color(), alpha=0.2, linewidth=0)
        baseline = records[-1]["check"]["baseline"][name]["mean"]
        if baseline is not None:
            ax.axhline(baseline, color=line.get_color(), linestyle=":", linewidth=1)
    tidy(ax, "meta-steps", "return of fresh agents (dotted: actor-critic)")
