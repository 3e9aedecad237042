"""The settings of a search, and the sentences for what makes no sense. Nothing here needs JAX."""

import dataclasses
import typing

from etude.errors import UserError
from etude.settings import (
    TUNING_SEEDS,
    Settings,
    as_type,
    check,
    malformed,
    split_specs,
    unknown_setting,
)
from etude.training.config import TrainRequest, from_json
from etude.training.presets.files import NOT_PRESET


@dataclasses.dataclass(frozen=True)
class TuneConfig:
    """What is searched, and how. The best settings go into best.json, for etude train --preset."""

    env: str = "catch"
    """Environment, several with commas between, or a suite: one setting is sought for all of them,
    the best on the mean of their normalised scores."""
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
        if not self.envs:
            raise UserError("Name one or more environments to tune on with --env.")
        if twice := [x for i, x in enumerate(self.envs) if x in self.envs[:i]]:
            raise UserError(f"--env names {twice[0]} twice.")
        self.request(self.envs[0])

    @property
    def envs(self) -> list[str]:
        return split_specs(self.env)

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

    def request(self, env: str) -> TrainRequest:
        """The training of an environment as it is before anything is searched."""
        return TrainRequest(
            env=env,
            rule=self.rule,
            preset=self.preset,
            steps=self.steps,
            seeds=self.seeds,
            seed=self.seed,
            **self.fixed,
        )

    @staticmethod
    def from_saved(settings: Settings) -> "TuneConfig":
        return from_json(TuneConfig, settings)
