"""The settings of a search, and the sentences for what makes no sense. Nothing here needs JAX."""

import dataclasses
import typing
from functools import cached_property
from typing import NamedTuple

from etude.comparing.suites import Entry, find_entries
from etude.errors import UserError
from etude.settings import (
    TUNING_SEEDS,
    Settings,
    as_type,
    check,
    malformed,
    unknown_setting,
)
from etude.training.config import TrainRequest, from_json
from etude.training.presets.files import NOT_PRESET


class Goal(NamedTuple):
    """An environment, and how what is reached there is weighed."""

    env: str
    settings: Settings
    """Of training, for all rules alike: a memory, where there is something to be remembered."""
    random: float = 0.0
    strong: float = 1.0

    def weigh(self, score: float) -> float:
        """Normalised: 0 for the uniform policy, 1 for a stated strong score."""
        return (score - self.random) / (self.strong - self.random)


def _goal(entry: Entry) -> Goal:
    if entry.random is None or entry.strong is None:
        return Goal(entry.env, entry.settings)
    return Goal(entry.env, entry.settings, entry.random, entry.strong)


@dataclasses.dataclass(frozen=True)
class TuneConfig:
    """What is searched, and how. The best settings go into best.json, for etude train --preset."""

    env: str = "catch"
    """Environment, several with commas between, or a suite: small, minatar, atari-5, procgen-4, or
    a file. One setting is sought for all of them, by the mean of their normalised scores."""
    rule: str = "ppo"
    """Update rule; settings that follow a colon are kept as they are."""
    trials: int = 30
    """Settings to try."""
    steps: int = 200_000
    """Environment steps per seed and trial."""
    seeds: int = 3
    """Agents per trial, trained side by side."""
    seed: int = TUNING_SEEDS
    """Random seed, from 1000000 on: nothing is tuned on the seeds that comparisons use."""
    search: str = ""
    """Names of the settings to search, with commas between; by default all that have a declared
    range, which --dry-run shows."""
    fix: str = ""
    """Settings of training that are kept as they are: batch=16,torso=64x64."""
    preset: str = "laptop"
    """What settings are before the search: as --preset of etude train."""
    confirm: int = 3
    """How many of the best trials are trained again, on other seeds, and the defaults with them, to
    choose between: the best score of many owes something to chance."""

    def __post_init__(self):
        check(self, count="trials steps seeds", whole="confirm", seed="seed")
        if self.seed < TUNING_SEEDS:
            raise UserError(
                f"--seed must be {TUNING_SEEDS} or more, not {self.seed}: settings are not tuned "
                "on seeds that comparisons use."
            )
        self.fixed  # noqa: B018

    @cached_property
    def goals(self) -> list[Goal]:
        """What is trained on. Scores of several environments must be on one scale."""
        entries = find_entries(self.env)
        if len(entries) > 1 and (bare := [x.env for x in entries if not x.is_normalised]):
            raise UserError(
                f"Of {bare[0]} no scores of a random and of a strong policy are known, by which "
                "it could be weighed against other environments: tune on it alone, or give "
                "--env a file in which they follow its name."
            )
        return [_goal(entry) for entry in entries]

    @property
    def fixed(self) -> Settings:
        """Settings of training that are not searched."""
        hints, found = typing.get_type_hints(TrainRequest), {}
        for part in filter(None, (x.strip() for x in self.fix.split(","))):
            name, equals, text = (x.strip() for x in part.partition("="))
            if not (equals and text):
                raise malformed(self.fix, part)
            if name in NOT_PRESET or name == "steps":
                raise UserError(f"--fix is not for {name}.")
            if name not in hints:
                raise unknown_setting("A training run", name, hints)
            found[name] = as_type(text, hints[name], name)
        return found

    def request(self, goal: Goal) -> TrainRequest:
        """A training as it is before anything is searched."""
        budget = dict(steps=self.steps, seeds=self.seeds, seed=self.seed)
        named = dict(env=goal.env, rule=self.rule, preset=self.preset)
        return TrainRequest(**named, **budget, **(self.fixed | goal.settings))

    @staticmethod
    def from_saved(settings: Settings) -> "TuneConfig":
        return from_json(TuneConfig, settings)
