"""What a run is: one class for each kind, with all that sets it apart from other kinds."""

import abc
import dataclasses
import math
from functools import cached_property
from typing import Any, ClassVar, Generic, TypeVar

import jax
import numpy as np
from jaxtyping import PyTree

from etude.errors import foreign_code
from etude.runs import estimates
from etude.runs.folder import Record, RunFolder

State = TypeVar("State")


@dataclasses.dataclass(frozen=True)
class Outcome(Generic[State]):
    """Where a run stands when the loop ends."""

    state: State
    done: int
    curve: list[Record]
    """All records, those of earlier parts of a resumed run among them."""
    is_over: bool = True
    """Whether the run has come to its end; it was stopped if not."""

    @property
    def seconds(self) -> float:
        """Of all parts of the run."""
        return self.curve[-1]["seconds"] if self.curve else 0.0

    @property
    def steps_per_second(self) -> float:
        """Environment steps (of the records' `steps`) a second."""
        return self.curve[-1]["steps"] / self.seconds if self.seconds else 0.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Result:
    """What a run has come to."""

    done: int
    """Updates done: all of them, unless the run was stopped."""
    curve: list[Record]
    """One record for each `log_every` updates."""
    summary: Record


Found = TypeVar("Found", bound=Result)
Own = TypeVar("Own", bound="Run")


class Run(abc.ABC, Generic[State, Found]):
    """A run: a state that is moved on by a number of updates, and what is kept and told of it.

    Making one finds all mistakes there are to find, before anything is compiled or written.
    """

    kind: ClassVar[str]
    """The name of this kind of run in `config.json`."""
    doing: ClassVar[str]
    """In one word, for the terminal."""
    end: ClassVar[str]
    """The setting that says how long the run is, the only one that may change when it goes on."""
    draws_on_the_way: ClassVar[bool] = False
    """Whether figures are drawn with every checkpoint, for a run that takes hours."""

    config: Any
    """The settings, a dataclass."""
    impossible: ClassVar[str]
    """The sentence, with names of settings in braces, for a run that cannot be traced."""

    @classmethod
    @abc.abstractmethod
    def untraced(cls: type[Own], *args: Any, **kwargs: Any) -> Own:
        """The run with such settings as its kind has. Tracing takes seconds, which are lost where
        a run is only to be read."""

    @classmethod
    def create(cls: type[Own], *args: Any, **kwargs: Any) -> Own:
        """As `untraced`, and traced: an environment or a rule of the user's may raise anything."""
        run = cls.untraced(*args, **kwargs)
        with foreign_code(cls.impossible.format(**run.settings())):
            run.trace()
        estimates.require_possible(run)
        return run

    # --- What it does ----------------------------------------------------------------------------

    @property
    @abc.abstractmethod
    def updates(self) -> int:
        """How many there are to do."""

    @property
    def log_every(self) -> int:
        """How many are done between two records."""
        return self.config.log_every

    @property
    def max_seconds(self) -> float:
        """Seconds of work after which the run ends, whatever is left to do."""
        return math.inf

    def is_over(self, state: State, done: int, seconds: float) -> bool:
        """Whether there is nothing more to do after so many updates and seconds of work."""
        return done >= self.updates or seconds >= self.max_seconds

    def next_record(self, done: int) -> int:
        """After how many updates the next record is due, when `done` are done."""
        return done + self.log_every - done % self.log_every

    @abc.abstractmethod
    def _init(self) -> State:
        """The state at the start, by a function that JAX can trace. All of the state goes into
        checkpoints, and nothing else does."""

    def init(self) -> State:
        return jax.jit(self._init)()

    def shapes(self) -> State:
        return jax.eval_shape(self._init)

    @abc.abstractmethod
    def advance(self, state: State, done: int, number: int) -> tuple[State, Record]:
        """The state after `number` more updates, and their metrics. It may use up the old state.

        Raises a `UserError` if the numbers went bad.
        """

    def joined(self, pieces: list[Record]) -> Record:
        """The metrics of several pieces of work as those of one; updates are the first axis."""
        return jax.tree.map(lambda *parts: np.concatenate(parts), *pieces)

    @abc.abstractmethod
    def record(self, state: State, metrics: Record, done: int) -> Record:
        """The line to log after `done` updates."""

    @abc.abstractmethod
    def learned(self, state: State) -> PyTree:
        """The part of the state that must be finite to be worth keeping."""

    def gathered(self, state: State) -> State:
        """All of the state, where some of it lives outside this process."""
        return state

    def before_saving(self, state: State, folder: RunFolder) -> None:
        """Writes whatever else belongs beside a checkpoint that is about to be written, so that no
        checkpoint is ever without it; by default nothing."""

    @abc.abstractmethod
    def _lower(self) -> PyTree:
        """The programs that `advance` needs, traced."""

    @cached_property
    def _traced(self) -> PyTree:
        return self._lower()

    @cached_property
    def _compiled(self) -> PyTree:
        return jax.tree.map(lambda program: program.compile(), self._traced)

    def traced(self) -> PyTree:
        return self._traced

    def trace(self) -> None:
        """Traces all programs, so that mistakes surface before anything is compiled or written."""
        self._traced  # noqa: B018

    def prepare(self) -> None:
        """Compiles what can be compiled before the clock starts."""
        self._compiled  # noqa: B018

    def close(self) -> None:
        """Releases what the run has taken hold of outside this process, if anything."""

    # --- What is kept of it ----------------------------------------------------------------------

    @property
    @abc.abstractmethod
    def name(self) -> str:
        """What a new folder is called after."""

    def settings(self) -> Record:
        """All settings, as they go into `config.json`."""
        return dataclasses.asdict(self.config)

    def default_settings(self) -> Record:
        """What settings are that nobody asks to be otherwise, as far as they are numbers."""
        fields = dataclasses.fields(self.config)
        return {x.name: x.default for x in fields if isinstance(x.default, (int, tuple))}

    def require_keepable(self) -> None:
        """Raises a `UserError` if there is something that no folder can hold."""

    def write_start(self, folder: RunFolder) -> None:
        """Writes what the run starts from beside its settings; by default nothing."""

    @cached_property
    def rule_digest(self) -> str | None:
        """Of the rule that the folder of the run keeps as its start, if it keeps one: a checkpoint
        written under another is refused."""
        return None

    @classmethod
    @abc.abstractmethod
    def reopened(cls, folder: RunFolder, end: int | None = None) -> "Run[State, Found]":
        """The run in a folder, to go on to its own end or to a later one."""

    # --- What is told of it ----------------------------------------------------------------------

    def notes(self, resumed: bool = False) -> list[str]:
        """Sentences about what may not be meant or expected."""
        return []

    @abc.abstractmethod
    def describe(self, record: Record) -> str:
        """One line of progress."""

    def whereabouts(self, done: int, number: int) -> str:
        """Of the updates after those that are `done`, in words; of none, those of the start."""
        if not number:
            return "at its start"
        first, last = f"{done + 1:,}", f"{done + number:,}"
        return f"in update {first}" if number == 1 else f"in updates {first} to {last}"

    @abc.abstractmethod
    def summary(self, outcome: Outcome[State]) -> Record:
        """What is to be said of the run as a whole."""

    @abc.abstractmethod
    def result(self, outcome: Outcome[State], summary: Record) -> Found:
        """What the run has come to, for use from Python."""

    def draw(self, folder: RunFolder) -> None:
        """Writes the run's figures: when it has finished and, if it `draws_on_the_way`, with every
        checkpoint before."""
