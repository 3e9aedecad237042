"""What a worker of a cluster does: it holds parts of a population, and moves them on."""

import os
import socket
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from etude.errors import UserError, reason
from etude.meta.discovery.config import DiscoverConfig
from etude.placing.surroundings import Surroundings
from etude.placing.workforce import Failed

if TYPE_CHECKING:
    import numpy as np

    from etude.meta.discovery.cluster.held import Held

# JAX is imported only after the worker's environment is that of the driver.
Arrays = dict[str, "np.ndarray"]


class Setup(NamedTuple):
    """What a worker must know of the driver, to do as it would."""

    config: DiscoverConfig
    rule: bytes
    """The rule that the run starts from, pickled by the driver."""
    surroundings: Surroundings
    versions: dict[str, str]
    threads: int


def versions() -> dict[str, str]:
    """Of what the bits of a run depend on."""
    from importlib.metadata import version

    names = ("etude", "jax", "jaxlib", "numpy", "equinox", "optax")
    return {name: version(name) for name in names}


class PartStep(NamedTuple):
    """What a part returns for a meta-step."""

    update: "list[np.ndarray]"
    """The leaves of the sum of its updates."""
    agents: "np.ndarray"
    played: "dict[str, np.ndarray]"


class Worker:
    """See `Workforce` for what it is asked, and when."""

    def __init__(self, setup: Setup):
        setup.surroundings.take_on()
        self._setup = setup
        self._held: Held | None = None

    def call(self, what: str, returns: int, *arguments: Any) -> object:
        """Does what is asked, and returns as many values; what goes wrong is told in a sentence."""
        try:
            return getattr(self, what)(*arguments)
        except Exception as error:
            said = str(error) if isinstance(error, UserError) else reason(error)
            failed = Failed(f"{said.rstrip('.')} (on {self._whereabouts()}).")
            return failed if returns == 1 else (failed,) * returns

    def about(self, pieces: Sequence[int]) -> str:
        if (own := versions()) != (theirs := self._setup.versions):
            differ = [f"{x} {own[x]} instead of {theirs[x]}" for x in own if own[x] != theirs[x]]
            raise UserError(f"This machine has {', '.join(differ)}")
        return self._whereabouts()

    def _whereabouts(self) -> str:
        return f"{socket.gethostname()}, process {os.getpid()}"

    @property
    def _parts(self) -> "Held":
        if self._held is None:
            from etude.meta.discovery.cluster.held import Held

            self._held = Held(self._setup)
        return self._held

    def prepare(self, pieces: Sequence[int]) -> None:
        self._parts.prepare(pieces)

    def adopt(self, pieces: Sequence[int], *seats: Arrays) -> None:
        for piece, own in zip(pieces, seats, strict=True):
            self._parts.adopt(piece, own)

    def replay(self, pieces: Sequence[int], *rules: "list[np.ndarray]") -> None:
        for rule in rules:
            for _ in self._parts.step(pieces, rule):
                pass

    def step(self, pieces: Sequence[int], rule: "list[np.ndarray]") -> object:
        return one_or_all(list(self._parts.step(pieces, rule)))

    def fetch(self, pieces: Sequence[int]) -> object:
        return one_or_all([self._parts.fetch(piece) for piece in pieces])

    def drop(self, pieces: Sequence[int]) -> None:
        for piece in pieces:
            self._parts.drop(piece)


def one_or_all(values: list[object]) -> object:
    """As Ray wants the values of a call."""
    return values[0] if len(values) == 1 else tuple(values)
