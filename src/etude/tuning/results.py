"""What a search leaves: settings for `--preset`, a summary, and a figure of what mattered."""

import subprocess
from importlib.metadata import version
from pathlib import Path

from optuna.trial import FrozenTrial, TrialState

from etude.runs.arrays import as_json, write_atomically
from etude.runs.figures import figure_file, tidy
from etude.runs.folder import CONFIG, Record, RunFolder
from etude.settings import split_spec
from etude.training.presets.files import (
    FORMAT,
    LAPTOP,
    LayerForm,
    PresetForm,
    Provenance,
    held_by,
    path_of,
)
from etude.tuning.config import TuneConfig
from etude.tuning.objective import OBJECTIVE
from etude.tuning.run import BEST
from etude.tuning.search import CONFIRMED, DEFAULTS, TRIALS, Contender, Found
from etude.tuning.study import WHY

FIGURE = "tuning.png"


def write(config: TuneConfig, folder: RunFolder, found: Found) -> Record:
    """Writes all of it; the summary, which is returned, is for whoever writes it last."""
    text = as_json(preset_of(config, found), indent=2) + b"\n"
    write_atomically(folder.path / BEST, lambda file: file.write(text))
    draw(found, folder.path / FIGURE)
    return summary_of(config, folder, found)


# --- The preset -----------------------------------------------------------------------------------


def preset_of(config: TuneConfig, found: Found) -> PresetForm:
    """The settings that were chosen, over those that were given."""
    chosen, preset = found.chosen.layer, config.preset
    rule, given = split_spec(config.rule)
    base = [] if preset == LAPTOP else held_by(path_of(preset))["layers"]
    own = [
        LayerForm(envs=[split_spec(x.env)[0]], training=x.settings)
        for x in config.goals
        if x.settings
    ]
    layer = LayerForm(
        envs=list(dict.fromkeys(split_spec(x.env)[0] for x in config.goals)),
        training=config.fixed | chosen.get("training", {}),
        rule=given | chosen.get("rule", {}),
        made_by=provenance(config, found),
    )
    return PresetForm(format=FORMAT, rule=rule, layers=[*base, layer, *own])


def provenance(config: TuneConfig, found: Found) -> Provenance:
    chosen, defaults = found.chosen, found.contenders[0]
    return Provenance(
        command=config.command,
        commit=code_version(),
        envs=[x.env for x in config.goals],
        steps=config.steps,
        seed=config.seed,
        seeds=config.seeds,
        trials=config.trials,
        objective=OBJECTIVE,
        score=_judged(chosen, config),
        defaults=_judged(defaults, config),
    )


def _judged(contender: Contender, config: TuneConfig) -> float | None:
    """The score by which it was chosen or not."""
    return contender.again if config.confirm else contender.score


def code_version() -> str:
    """The commit of Etude that is running, if it runs from its repository, or else its version."""
    command = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty"]
    try:
        told = subprocess.run([*command, "--abbrev=40"], capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return version("etude")
    return told.stdout.strip() if told.returncode == 0 else version("etude")


# --- The summary ----------------------------------------------------------------------------------


def summary_of(config: TuneConfig, folder: RunFolder, found: Found) -> Record:
    states = [x.state.name.lower() for x in found.trials]
    return {
        "env": config.env,
        "rule": config.rule,
        "objective": OBJECTIVE,
        "chosen": found.chosen.name,
        "score": _judged(found.chosen, config),
        "defaults": _judged(found.contenders[0], config),
        "contenders": [x._asdict() for x in found.contenders],
        "importances": found.importances,
        "trials": {state: states.count(state) for state in ("complete", "pruned", "fail")},
        "each_trial": [_told(x) for x in found.trials],
        **_work_done(config, folder),
    }


def _told(trial: FrozenTrial) -> Record:
    return {
        "trial": trial.number,
        "state": trial.state.name.lower(),
        "score": trial.value,
        "settings": trial.params,
        "why": trial.user_attrs.get(WHY),
    }


def _work_done(config: TuneConfig, folder: RunFolder) -> Record:
    """Of all trainings, those that were given up among them."""
    seconds, steps = 0.0, 0
    for room in (TRIALS, CONFIRMED):
        for path in folder.path.glob(f"{room}/*/*/{CONFIG}"):
            if records := RunFolder(path.parent).metrics():
                seconds += records[-1].get("seconds", 0.0)
                steps += records[-1]["steps"] * config.seeds
    speed = round(steps / seconds, 1) if seconds else 0.0
    return {"seconds": seconds, "environment_steps": steps, "steps_per_second": speed}


# --- The figure -----------------------------------------------------------------------------------


def draw(found: Found, path: Path) -> None:
    """How the search went, and what mattered."""
    with figure_file(path, (11.0, 4.5), (1, 2)) as (history, mattered):
        for state, marker in ((TrialState.COMPLETE, "o"), (TrialState.PRUNED, "x")):
            at = [x for x in found.trials if x.state == state and x.value is not None]
            label = "finished" if state == TrialState.COMPLETE else "pruned, at its last score"
            history.scatter(
                [x.number for x in at], [x.value for x in at], marker=marker, label=label
            )
        best = _best_so_far(found.trials)
        history.step(range(len(best)), best, where="post", label="best so far")
        if (defaults := found.contenders[0].score) is not None:
            history.axhline(defaults, color="0.4", linestyle="--", label=DEFAULTS)
        tidy(history, "trial", "score")
        names = list(found.importances)[::-1]
        mattered.barh(names, [found.importances[x] for x in names])
        mattered.set_title("what mattered" if names else "too few trials to tell what mattered")
        tidy(mattered, "importance (PED-ANOVA)", "")


def _best_so_far(trials: list[FrozenTrial]) -> list[float]:
    best, line = float("nan"), []
    for trial in trials:
        if trial.state == TrialState.COMPLETE and trial.value is not None:
            best = trial.value if best != best else max(best, trial.value)
        line.append(best)
    return line
