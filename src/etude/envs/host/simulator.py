"""What a host simulator is: several copies of an environment, stepped together."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np

from etude.errors import is_callers

Leaves = Sequence[np.ndarray]
"""The arrays of an observation in the order in which JAX flattens it (dictionaries by key), each
with the environments as its first axis."""


Outcome = tuple[int, Mapping[str, float]]
"""Of an episode: its environment, and numbers by name."""

OUTCOME = "outcome"
"""Under this name, a Gymnasium environment's last info of an episode may hold such numbers."""


class Stepped(NamedTuple):
    """What a step has led to, an entry per environment. The next step may overwrite it."""

    observation: Leaves
    reward: np.ndarray
    """What is learned from; 0 where the step was skipped."""
    terminated: np.ndarray
    truncated: np.ndarray
    """Where a time limit cut an episode that has not terminated: the observation is its last, and
    the next step is `skipped`."""
    skipped: np.ndarray
    """Where nothing was played: whatever the action, the environment began a new episode, of which
    this is the first observation. Where an episode terminated, it may follow or not: if not, the
    observation of the step that terminated is the first of the next episode already."""
    score: np.ndarray | None = None
    """The reward that the game itself gives, if something else is learned from."""
    over: np.ndarray | None = None
    """Where the game is over, if it is not wherever an episode has terminated or was cut."""
    outcomes: Sequence[Outcome] = ()
    """What else is worth telling of episodes that this step has ended."""


def with_skipped(
    skipped: np.ndarray,
    observation: Leaves,
    reward: np.ndarray,
    terminated: np.ndarray,
    truncated: np.ndarray,
    score: np.ndarray | None = None,
    over: np.ndarray | None = None,
) -> Stepped:
    """A step that was skipped in some environments, whatever their simulator has done meanwhile."""
    return Stepped(
        observation,
        np.where(skipped, 0.0, reward),
        terminated & ~skipped,
        truncated & ~terminated & ~skipped,
        skipped,
        score,
        over,
    )


@runtime_checkable
class Simulator(Protocol):
    """Copies of an environment, stepped together. What they need is released by `close`."""

    @property
    def at(self) -> int | None:
        """The environment that is being stepped, for whoever waits in vain, if that is known."""
        ...

    def reset(self, seed: int) -> Leaves:
        """The first observations of new episodes; the seeds of environments follow from this."""
        ...

    def step(self, actions: np.ndarray) -> Stepped: ...

    def picture(self) -> np.ndarray | None:
        """What the first environment looks like, height × width × RGB, if it can be drawn."""
        ...

    def close(self) -> None: ...


class SimulatorFault(Exception):
    """An environment that raised, died, did not answer, or returned nonsense. The message says
    which, in a few words."""

    def __init__(self, message: str, index: int | None = None):
        super().__init__(message)
        self.index = index
        """Of the environment, if it is known."""


@contextmanager
def faults(of: Simulator | None = None) -> Iterator[None]:
    """Around the user's code, which may raise anything, or exit: a fault of the environment that is
    being stepped."""
    try:
        yield
    except SimulatorFault:
        raise
    except BaseException as error:
        if is_callers(error):
            raise
        said = f"{type(error).__name__}: {error}"
        raise SimulatorFault(said, None if of is None else of.at) from error
