"""The cells of a comparison: an environment and a rule each, planned before anything starts."""

import dataclasses
import hashlib
from collections.abc import Sequence

from etude.comparing.config import CompareConfig
from etude.comparing.suites import Entry
from etude.settings import Settings
from etude.training.config import TrainPlan, TrainRequest
from etude.training.planning import plan_named

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
    unlike = "," in name or ":" in rule or len(plain) > MOST_CHARACTERS
    digest = hashlib.sha256(name.encode()).hexdigest()[:8]
    return f"{plain[:MOST_CHARACTERS]}-{digest}" if unlike else plain


def plan_cells(config: CompareConfig, entries: Sequence[Entry]) -> list[Cell]:
    """All of them, environment by environment."""
    return [cell for entry in entries for cell in _plan_row(config, entry)]


def _plan_row(config: CompareConfig, entry: Entry) -> list[Cell]:
    """Every rule in one environment."""
    cells = [Cell(entry, rule, _plan(config, entry, rule)) for rule in config.rule_names]
    if config.equal != "updates":
        return cells
    number = cells[0].plan.agent_updates
    return [cells[0], *(_with_updates(config, cell, number) for cell in cells[1:])]


def _plan(config: CompareConfig, entry: Entry, rule: str, steps: int | None = None) -> TrainPlan:
    settings: Settings = dict(seeds=config.seeds, seed=config.seed, preset=config.preset)
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
