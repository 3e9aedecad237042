"""Runs whose seeds go side by side, in one compiled program."""

import abc
from functools import cached_property
from typing import ClassVar

import numpy as np
from jaxtyping import Array, Int, PyTree

from etude.core.types import Metrics
from etude.errors import UserError
from etude.placing.devices import Shares
from etude.runs.run import Found, Outcome, Record, Run, State
from etude.training.sharing import SharedSeeds, Sharing

ByUpdate = dict[str, np.ndarray]
"""Metrics: updates × seeds."""


class SideBySide(Run[State, Found]):
    """A run in whose state the seeds are the first axis of each leaf."""

    doing: ClassVar[str] = "Training"
    end: ClassVar[str] = "steps"
    given_axis: ClassVar[int | None] = None
    """That of the seeds in what is given; None if they all share it."""
    must_be_finite: ClassVar[tuple[str, ...]] = ()
    """The metrics that must; by default all."""

    @abc.abstractmethod
    def given(self) -> PyTree:
        """What an update needs and does not change."""

    def given_form(self) -> PyTree:
        """What is given, or its shapes where having it costs something."""
        return self.given()

    @abc.abstractmethod
    def updated(self, given: PyTree, state: State, number: Int[Array, ""]) -> tuple[State, Metrics]:
        """One seed after several updates, by a function that JAX can trace, and the metrics of
        each: `log_every` entries, the first `number` of which count."""

    @abc.abstractmethod
    def steps_after(self, updates: int) -> int:
        """Environment steps of a seed up to and including an update."""

    # --- Devices ---------------------------------------------------------------------------------

    @property
    def part(self) -> int:
        """How many seeds are computed together; 0: all that a device has."""
        return 0

    @cached_property
    def sharing(self) -> Sharing[State]:
        """How it is shared out over the devices in use when this is first asked."""
        shares = Shares.of(self.config.seeds, "--seeds", self.part)
        return SharedSeeds(shares, self.given_axis)

    def _lower(self) -> PyTree:
        return self.sharing.lower(self.updated, self.given_form(), self.shapes())

    def advance(self, state: State, done: int, number: int) -> tuple[State, ByUpdate]:
        state, metrics = self.sharing.run(self._compiled, self.given(), state, number)
        metrics = {name: x[:, :number].T for name, x in metrics.items()}
        self._require_finite(metrics, done)
        return state, metrics

    def _require_finite(self, metrics: ByUpdate, done: int) -> None:
        """The first of the numbers to go bad is told."""
        bad = []
        for rank, name in enumerate(self.must_be_finite or metrics):
            if name not in metrics:
                continue
            bad += [(*place, rank, name) for place in np.argwhere(~np.isfinite(metrics[name]))]
        if not bad:
            return
        index, seed, _, name = min(bad, key=lambda x: (x[0], x[2], x[1]))
        update = done + int(index) + 1
        raise UserError(
            f"Training stopped at update {update} (environment step {self.steps_after(update)}, "
            f"seed number {seed}): the {name.replace('_', ' ')} is {metrics[name][index, seed]}."
        )

    def whereabouts(self, done: int, number: int) -> str:
        updates = super().whereabouts(done, number)
        if not number:
            return updates
        steps = self.steps_after(done) + 1, self.steps_after(done + number)
        return f"{updates} (environment steps {steps[0]:,} to {steps[1]:,})"

    def work_done(self, outcome: Outcome[State]) -> Record:
        """For the summary."""
        return {
            "environment_steps": self.steps_after(outcome.done),
            "updates": outcome.done,
            "seconds": outcome.seconds,
            "steps_per_second": round(outcome.steps_per_second * self.config.seeds, 1),
        }
