"""Plans of training runs, from requests and from run folders, made without JAX."""

import dataclasses

from etude.rules import names
from etude.runs.folder import RunFolder
from etude.training.config import TrainPlan, TrainRequest, later_end
from etude.training.presets import BASE, Resolved, explain


def plan_named(request: TrainRequest) -> Resolved:
    """The plan for a request whose rule is known by its name or its file alone. Only a rule that is
    named may learn unless one says so."""
    rule = request.asked.get("rule", BASE["rule"])
    learns = names.learns_online(rule)
    return explain(request, names.kind_named(rule), names.suggested(rule), learns=learns)


def read_plan(folder: RunFolder, steps: int | None = None) -> TrainPlan:
    """What the run in a folder does, to its own end or to a later one."""
    plan = TrainPlan.from_saved(folder.settings())
    steps = later_end(plan.steps, plan.schedule, steps, str(folder.path))
    return dataclasses.replace(plan, steps=steps)
