"""Where the agents of a population live, and where their meta-steps are computed."""

import abc
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cached_property
from typing import NamedTuple, TypeVar

import jax
import numpy as np

from etude.core.rule import Rule
from etude.meta.discovery.parts import Part, Programs, Stepped, Sum, by_environment
from etude.meta.discovery.rule_optimiser import RuleUpdate
from etude.meta.discovery.seats import Seat

Seats = tuple[Seat, ...]
"""One tree per part, with its agents along the first axis; none while they live elsewhere."""


Done = TypeVar("Done")


class PopulationStep(NamedTuple):
    """What a meta-step of all agents has come to."""

    update: RuleUpdate
    seats: Seats
    played: dict[str, dict[str, np.ndarray]]
    """What was logged, by environment."""


class Placement(abc.ABC):
    """Where the parts of a population are, and what computes them."""

    @abc.abstractmethod
    def prepare(self) -> None:
        """Compiles what is needed, before the clock starts."""

    @abc.abstractmethod
    def step(self, rule: Rule, seats: Seats) -> PopulationStep:
        """A meta-step of every agent under the rule; the old seats are used up."""

    def gathered(self, seats: Seats) -> Seats:
        """All seats, wherever they are now."""
        return seats

    @property
    def standing(self) -> str:
        """What the progress line says of it."""
        return ""

    @abc.abstractmethod
    def close(self) -> None:
        """Lets go of all that it holds."""


class InProcess(Placement):
    """In this process, on all of its cores."""

    def __init__(
        self,
        parts: Sequence[Part],
        programs: Programs,
        threads: int,
        memory_limit: int | None = None,
    ):
        """At most so many `threads`; fewer if programs side by side would take more memory (bytes)
        than there may be."""
        self._parts, self._programs, self._memory_limit = parts, programs, memory_limit
        self._threads = Threads(max(1, min(threads, len(parts))))

    def prepare(self) -> None:
        for part in self._parts:
            self._programs.compiled(part)
        if self._memory_limit is not None and self._threads.number > 1:
            room = self._memory_limit - sum(map(self._programs.state_memory, self._parts))
            extra = max(map(self._programs.extra_memory, self._parts))
            number = max(1, min(self._threads.number, room // max(1, extra)))
            self._threads = Threads(number)

    def step(self, rule: Rule, seats: Seats) -> PopulationStep:
        total, after, played = Sum(), [], []
        for done in self._each(rule, seats):
            total.add(jax.device_put(done.update, self._parts[0].device))
            after.append(done.seats)
            played.append(jax.device_get(done.played))
        return PopulationStep(total.whole, tuple(after), by_environment(self._parts, played))

    def _each(self, rule: Rule, seats: Seats) -> Iterator[Stepped]:
        def step(part: Part, own: Seat) -> Stepped:
            return self._programs.step(part, rule, own)

        return self._threads.each(step, self._parts, seats)

    def close(self) -> None:
        self._threads.close()
        for part in self._parts:
            part.group.close()


class Threads:
    """Work that is done side by side: a compiled program runs in the thread that calls it, and does
    not hold the interpreter."""

    def __init__(self, number: int):
        self.number = number

    def each(
        self, work: Callable[[Part, Seat], Done], parts: Sequence[Part], seats: Sequence[Seat]
    ) -> Iterator[Done]:
        """What comes of each part, in their order. Not much that is done waits to be taken."""
        pairs = zip(parts, seats, strict=True)
        if self.number == 1:
            for pair in pairs:
                yield work(*pair)
            return
        under_way = deque[Future[Done]]()
        for pair in pairs:
            under_way.append(self._pool.submit(work, *pair))
            if len(under_way) > 2 * self.number:
                yield under_way.popleft().result()
        while under_way:
            yield under_way.popleft().result()

    @cached_property
    def _pool(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(self.number, thread_name_prefix="etude-part")

    def close(self) -> None:
        """Waits for what is under way."""
        if "_pool" in vars(self):
            self._pool.shutdown(cancel_futures=True)
            del self._pool
