"""What a comparison is asked for. Nothing here needs JAX."""

import dataclasses
from typing import Literal

from etude.errors import UserError
from etude.settings import TUNING_SEEDS, check, split_specs

Equal = Literal["steps", "updates", "seconds"]


@dataclasses.dataclass(frozen=True)
class CompareConfig:
    """What is compared, and with which budget. All other settings of training are those of the
    presets, rule by rule."""

    envs: str = "small"
    """Environments and suites (small, minatar, atari-5, procgen-4) with commas between, or a text
    file with one environment per line, followed by the scores of a random and of a strong policy
    if they are known."""
    rules: str = "ppo,actor_critic"
    """Update rules with commas between, with settings if any."""
    steps: int = 500_000
    """Environment steps per seed."""
    seeds: int = 5
    """Agents per environment and rule, trained side by side in one program."""
    equal: Equal = "steps"
    """What all rules get the same amount of: steps; agent updates, as many as the first rule makes
    in --steps; or seconds, in which no rule makes more than --steps."""
    seconds: float = 0.0
    """Seconds of work per environment and rule, for all its seeds together, with --equal
    seconds."""
    seed: int = 0
    """Random seed; the same for all environments and rules."""
    eval_episodes: int = 256
    """Episodes that each trained agent is evaluated in, once with actions sampled and once with the
    likeliest ones."""
    preset: str = "laptop"
    """As of etude train: what settings are if nothing else says. Files of settings, as etude tune
    writes them, may be several with commas between: each rule gets the one that is for it."""

    def __post_init__(self):
        check(self, count="steps seeds eval_episodes", seed="seed", cost="seconds")
        if self.seed >= TUNING_SEEDS:
            raise UserError(
                f"--seed must be below {TUNING_SEEDS}, not {self.seed}: settings are tuned on "
                "those from there on."
            )
        if (self.equal == "seconds") != (self.seconds > 0.0):
            raise UserError("--equal seconds and --seconds go together: neither says enough alone.")
        names = split_specs(self.rules)
        if not names:
            raise UserError("--rules names no rule.")
        if twice := next((x for x in names if names.count(x) > 1), None):
            raise UserError(f"--rules names {twice} twice.")

    @property
    def rule_names(self) -> list[str]:
        return split_specs(self.rules)

    @property
    def presets(self) -> list[str]:
        return self.preset.split(",")
