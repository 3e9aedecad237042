"""Plans of training runs, from requests and from run folders, made without JAX."""

from etude.rules import names
from etude.runs.folder import IMPORT_FROM, RunFolder
from etude.training.config import TrainPlan, TrainRequest, lengthened
from etude.training.presets import BASE, Resolved, explain


def plan_named(request: TrainRequest) -> Resolved:
    """The plan for a request whose rule is known by its name or its file alone. Only a rule that is
    named may learn unless one says so."""
    rule = request.rule or BASE["rule"]
    learns = names.learns_online(rule)
    return explain(request, names.kind_named(rule), names.suggested(rule), learns=learns)


def read_plan(path: str, steps: int | None = None) -> tuple[TrainPlan, RunFolder]:
    """What the run in a folder does, to its own end or to a later one."""
    folder = RunFolder.open(path)
    saved = folder.config_with("env", "a training run")
    saved.pop(IMPORT_FROM, None)
    return lengthened(TrainPlan.from_saved(saved), steps, path), folder
