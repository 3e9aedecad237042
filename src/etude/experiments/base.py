"""What a reproduction is: a setting, curves with bands over seeds, verdicts on printed claims."""

import dataclasses
from collections.abc import Callable
from importlib import import_module
from typing import Literal

import numpy as np

from etude import stats

SHORT_VERSION = (
    "This was the short version: it shows that all works, and says nothing of the claims."
)

APART = 1000
"""Seeds of the runs of two experiments whose `--seed` differs by 1 are as far apart."""

Say = Callable[[str], None]
"""Shows a line of progress."""


@dataclasses.dataclass(frozen=True)
class Verdict:
    """A claim of the source, our figure with its 95% interval, and what that says of the claim."""

    claim: str
    figure: float
    low: float
    high: float
    verdict: Literal["holds", "does not hold", "cannot be told"]

    @staticmethod
    def about(
        claim: str, by_seed: np.ndarray, at_least: float = -np.inf, at_most: float = np.inf
    ) -> "Verdict":
        """The claim is that the figure is between the two; all of its interval must agree."""
        mean, low, high = map(float, stats.t_interval(by_seed))
        if at_least < low and high < at_most:
            return Verdict(claim, mean, low, high, "holds")
        outside = high <= at_least or low >= at_most
        return Verdict(claim, mean, low, high, "does not hold" if outside else "cannot be told")

    @property
    def holds(self) -> bool:
        return self.verdict == "holds"


Line = tuple[np.ndarray, np.ndarray]
"""Points along x, and values of shape points × seeds."""


@dataclasses.dataclass(frozen=True)
class Panel:
    """One plot: lines, bars, and levels to compare them with."""

    title: str
    x_label: str
    y_label: str
    lines: dict[str, Line]
    levels: dict[str, float] = dataclasses.field(default_factory=dict)
    bars: dict[str, np.ndarray] = dataclasses.field(default_factory=dict)
    """Single figures by label, a value for each seed."""


@dataclasses.dataclass(frozen=True)
class Reproduction:
    verdicts: list[Verdict]
    panels: list[Panel]
    notes: tuple[str, ...] = ()
    """Where we depart from the source."""


@dataclasses.dataclass(frozen=True)
class Options:
    """How much of an experiment to run."""

    quick: bool
    """A short version, which shows that everything works, not that the claims hold."""
    seeds: int
    seed: int
    full: bool = False
    """As long as the source has it, where ours is cut to about two hours on two cores."""

    def size(self, quick: int, usual: int, full: int) -> int:
        return quick if self.quick else full if self.full else usual


@dataclasses.dataclass(frozen=True)
class Experiment:
    """A published experiment, rerun."""

    about: str
    source: str
    home: str
    """The function that runs it, as module:function of this package."""
    seeds: int = 10
    """How many there are unless one asks for others."""
    seed: int = 0
    """The first, unless one asks for another: no setting was chosen on it."""
    chosen_on: tuple[int, ...] = ()
    """Seeds of the runs that settings were chosen on."""
    apart: bool = False
    """Whether each seed is a run of its own, whose seed is `--seed` times a thousand and so on."""
    uses: str = ""
    """The experiment whose trainings it looks at, if it has none of its own."""
    minutes: int = 0
    """Of both of two cores that it takes, or about as many, for it was not run yet."""
    cut: str = ""
    """What is shorter than in the source; empty if nothing is."""
    full_minutes: int = 0
    """Of both cores that the whole would take: an estimate."""
    account: str = ""
    """Where docs/results tells more about it."""

    def shown(self, seed: int, seeds: int) -> range:
        """The seeds of the runs that are shown."""
        first = seed * APART if self.apart else seed
        return range(first, first + (seeds if self.apart else 1))

    def run(self, options: Options, say: Say) -> Reproduction:
        module, _, function = self.home.partition(":")
        return getattr(import_module(f"etude.experiments.{module}"), function)(options, say)


def at_the_end(curve: np.ndarray, share: float = 0.1) -> np.ndarray:
    """Each seed's mean over the last part of its curve (points × seeds)."""
    return np.nanmean(curve[-max(1, round(share * len(curve))) :], axis=0)
