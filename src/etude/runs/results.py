"""What the summaries of runs say, for terminals and for pages."""

from collections.abc import Iterator

from etude.runs.folder import Record
from etude.text import count, duration, figure, interval, speed

JUDGED = {
    "untrained": "untrained",
    "start": "first rule",
    "returns": "rule kept",
    "baseline": "actor-critic",
}
"""The agents in a discovery's final check, by their name in the summary."""


def of_training(summary: Record) -> dict[str, str]:
    final = summary["final_return"]
    rows = {"final return": "no episode ended"}
    if final["mean"] is not None:
        over = "over seeds and episodes" if summary["seeds"] > 1 else "over episodes of one seed"
        rows["final return"] = f"{figure(final['mean'])} (95% interval {over}: {interval(final)})"
        if summary["seeds"] > 1:
            rows["by seed"] = ", ".join(figure(x) for x in final["per_seed"] if x is not None)
    if evaluation := summary.get("evaluation"):
        over = count(evaluation["episodes"], "episode")
        for mode in ("sampled", "greedy"):
            by_seed = ", ".join(map(figure, evaluation[mode]))
            rows[f"evaluated, {mode}"] = f"{by_seed} ({over} each)"
    for name, by_seed in summary.get("outcomes", {}).items():
        rows[name] = ", ".join(figure(x) for x in by_seed)
    return rows | {
        "environment steps": f"{summary['environment_steps']:,} per seed",
        "updates": f"{summary['updates']:,}",
        "time": duration(summary["seconds"]),
        "speed": speed(summary["steps_per_second"], summary["seeds"]),
        "parameters": f"sha256 {summary['params_sha256'][:16]}…",
    }


def of_discovery(check: Record) -> Iterator[tuple[str, dict[str, Record]]]:
    """Each environment with the scores there, by the agents in `JUDGED`."""
    for env in check["returns"]:
        yield env, {label: check[name][env] for name, label in JUDGED.items()}


def of_adaptation(scores: Record) -> dict[str, Record]:
    """Scores by when they were played for."""
    if scores["before"] == scores["after"]:  # all that there is is one episode
        return {"in a trial": scores["after"]}
    return {"before adapting": scores["before"], "after adapting": scores["after"]}
