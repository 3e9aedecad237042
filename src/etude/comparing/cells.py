"""The cells of a comparison: an environment and a rule each, planned before anything starts."""

import dataclasses
import hashlib
from collections.abc import Callable, Sequence

from etude.comparing.config import CompareConfig
from etude.comparing.suites import Entry
from etude.errors import UserError
from etude.rules.names import kind_named
from etude.settings import Settings, split_spec
from etude.training.config import TrainPlan, TrainRequest
from etude.training.planning import plan_named
from etude.training.presets.files import LAPTOP, PAPER, find

MOST_CHARACTERS = 100
"""Of a folder's name."""


@dataclasses.dataclass(frozen=True)
class Cell:
    entry: Entry
    rule: str
    """As it was named; the plan has it with the settings of its preset."""
    plan: TrainPlan

    @property
    def env(self) -> str:
        return self.entry.env

    @property
    def label(self) -> str:
        return f"{self.rule} on {self.env}"

    @property
    def kind(self) -> str:
        """Of run."""
        return "online" if self.plan.learn_rule else "train"

    @property
    def folder(self) -> str:
        """The name of its folder."""
        return folder_name(self.env, self.rule)


def folder_name(env: str, rule: str) -> str:
    """One that tells cells apart, with what no folder's name can hold replaced."""
    name = f"{env}--{rule}"
    plain = "".join(c if c.isalnum() or c in "-_=." else "-" for c in name)
    # A rule may be a path; of environments' names, none is like another but for a slash or colon.
    unlike = "," in name or not rule.isidentifier() or len(plain) > MOST_CHARACTERS
    digest = hashlib.sha256(name.encode()).hexdigest()[:8]
    return f"{plain[:MOST_CHARACTERS]}-{digest}" if unlike else plain


Begun = Callable[[str], TrainPlan | None]
"""The plan that the cell with a folder of that name was begun with, if it was."""


def plan_cells(
    config: CompareConfig, entries: Sequence[Entry], begun: Begun = lambda name: None
) -> list[Cell]:
    """All of them, environment by environment. Those that have begun keep their plans: presets, or
    the files they are in, may be others now, or gone."""
    return [cell for entry in entries for cell in _row(config, entry, begun)]


def _row(config: CompareConfig, entry: Entry, begun: Begun) -> list[Cell]:
    """Every rule in one environment."""
    rules = config.rule_names
    known = {x: plan for x in rules if (plan := begun(folder_name(entry.env, x))) is not None}
    cells = [] if len(known) == len(rules) else _plan_row(config, entry)
    planned = {cell.rule: cell.plan for cell in cells} | known
    return [Cell(entry, rule, planned[rule]) for rule in rules]


def _plan_row(config: CompareConfig, entry: Entry) -> list[Cell]:
    _require_used(config)
    cells = [Cell(entry, rule, _plan(config, entry, rule)) for rule in config.rule_names]
    if config.equal != "updates":
        return cells
    number = cells[0].plan.agent_updates
    return [cells[0], *(_with_updates(config, cell, number) for cell in cells[1:])]


def _preset_for(config: CompareConfig, rule: str) -> str:
    """The first of the presets that is for a rule; that of a laptop if none is."""
    own = (split_spec(rule)[0], kind_named(rule))
    fitting = (x for x in config.presets if x in (LAPTOP, PAPER) or find(x).suits(*own))
    return next(fitting, LAPTOP)


def _require_used(config: CompareConfig) -> None:
    """Refuses files of settings for rules that are not compared."""
    used = {_preset_for(config, rule) for rule in config.rule_names}
    if idle := [x for x in config.presets if x not in used]:
        raise UserError(f"--preset {idle[0]} is for none of the rules: {config.rules}.")


def _plan(config: CompareConfig, entry: Entry, rule: str, steps: int | None = None) -> TrainPlan:
    preset = _preset_for(config, rule)
    settings: Settings = dict(seeds=config.seeds, seed=config.seed, preset=preset)
    settings |= dict(eval_episodes=config.eval_episodes, max_seconds=config.seconds)
    request = TrainRequest(
        env=entry.env, rule=rule, steps=steps or config.steps, **settings | entry.settings
    )
    return plan_named(request).plan


def _with_updates(config: CompareConfig, cell: Cell, number: int) -> Cell:
    """A cell with so many agent updates, or the next larger number that its rule can make. An
    update is one batch, however often it is gone over."""
    updates = -(-number // cell.plan.updates_per_update)
    plan = _plan(config, cell.entry, cell.rule, cell.plan.steps_after(updates))
    return dataclasses.replace(cell, plan=plan)
