"""What a discovery would take on more machines: its programs are measured here, and a model says
how long they take side by side.

A meta-step is as long as the work of the busiest worker, each of whose parts runs on one core. The
driver sends the rule to each worker, and takes in and adds up what each part returns; that goes on
beside the workers' work, all but the last of it. Now and then it fetches all agents.
"""

import dataclasses
import statistics
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from etude.core.rule import Rule
from etude.meta.discovery.parts import Likeness, Part, Programs, Sum
from etude.meta.discovery.rule_optimiser import RuleUpdate
from etude.placing.balance import shared_out
from etude.placing.local import on_one_core
from etude.placing.workforce import KEEP_EVERY
from etude.runs.storage import bytes_of

NETWORK = 1.25e9
"""Bytes per second of the network that is assumed, 10 Gbit/s."""
REPEATS = 3
"""Times that everything is measured at least; the median counts."""
NEARLY = 1.05
"""Scaling ends where more workers are faster by no more than this factor."""


class PartCost(NamedTuple):
    """Of one part of the population."""

    name: str
    seconds: float
    """Of a meta-step on one core."""
    compile_seconds: float
    agents: int
    states: int
    """Bytes of the agents' states."""
    extra: int
    """Bytes that a meta-step takes beside them."""
    steps: int
    """Environment steps in a meta-step."""


class Prediction(NamedTuple):
    """Of a meta-step on so many workers."""

    workers: int
    seconds: float
    memory: int
    """Bytes that the worker that needs most takes."""
    moved: int
    """Bytes that go through the network."""


@dataclasses.dataclass(frozen=True)
class Costs:
    """All that was measured."""

    parts: tuple[PartCost, ...]
    rule_bytes: int
    adding: float
    """Seconds that the driver takes to take in and add up what one part returns."""
    exchange: float
    """Seconds from sending a rule until what one part returns is added up, if that part has nothing
    to do. Without a cluster that is not measured, and is what adding takes."""

    @property
    def steps(self) -> int:
        """Environment steps in a meta-step."""
        return sum(part.steps for part in self.parts)

    def on(self, workers: int, threads: int = 1) -> Prediction:
        """A meta-step on so many workers, at most one for each part, each of which runs so many of
        its parts side by side."""
        workers = min(workers, len(self.parts))
        costs = {number: float(part.agents) for number, part in enumerate(self.parts)}
        shares = shared_out(list(costs), costs, {worker: [] for worker in range(workers)})
        each = [[self.parts[x] for x in own] for own in shares.values()]
        sending, parts = self.rule_bytes / NETWORK, len(self.parts)
        fetched = sum(part.states for part in self.parts) / KEEP_EVERY
        # Whatever is the slower, the workers or the driver, the other goes on beside it.
        longest = max(
            max(_seconds(own, threads) for own in each) + self.exchange + sending,
            parts * (self.adding + sending),
        )
        return Prediction(
            workers,
            workers * sending + longest + fetched / NETWORK,
            max(_memory(own, threads) for own in each),
            round(self.rule_bytes * (workers + parts) + fetched),
        )

    def end_of_scaling(self, threads: int = 1) -> int:
        """The smallest number of workers that is nearly as fast as any."""
        each = [self.on(number, threads) for number in range(1, len(self.parts) + 1)]
        fastest = min(x.seconds for x in each)
        return next(x.workers for x in each if x.seconds <= NEARLY * fastest)


def _seconds(parts: Sequence[PartCost], threads: int) -> float:
    each = [part.seconds for part in parts]
    return max(sum(each) / threads, max(each))


def _memory(parts: Sequence[PartCost], threads: int) -> int:
    at_once = sorted((part.extra for part in parts), reverse=True)[:threads]
    return sum(part.states for part in parts) + sum(at_once)


def measure(
    parts: Sequence[Part],
    rule: Rule,
    programs: Programs,
    seed: int,
    exchange: float = 0.0,
    seconds: float = 3.0,
) -> Costs:
    """Runs each program for about so many seconds, at least `REPEATS` times after the first.
    `exchange`: what was measured of a cluster, if there is one."""
    found: dict[Likeness, PartCost] = {}
    for part in parts:
        if part.likeness not in found:
            found[part.likeness] = _cost_of(part, rule, programs, seed, seconds)
    costs = tuple(found[part.likeness]._replace(name=part.name) for part in parts)
    adding = _adding(rule)
    return Costs(costs, bytes_of(rule), adding, max(adding, exchange))


def _cost_of(part: Part, rule: Rule, programs: Programs, seed: int, seconds: float) -> PartCost:
    began = time.perf_counter()
    programs.compiled(part)
    compiling = time.perf_counter() - began
    seats = jax.jit(lambda rule: part.new_seats(rule, seed))(rule)

    def step() -> None:
        nonlocal seats
        done = jax.block_until_ready(programs.step(part, rule, seats))
        seats = done.seats

    step()
    memory = programs.state_memory(part), programs.extra_memory(part)
    agents = part.place.agents
    steps = part.group.steps_per_meta_step * agents
    try:
        with on_one_core():
            took = median_seconds(step, seconds)
    finally:
        part.group.close()
    return PartCost(part.name, took, compiling, agents, *memory, steps)


def _adding(rule: Rule) -> float:
    update = jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), rule)
    total = Sum()

    def add() -> None:
        arrays = jax.tree.map(lambda x: jnp.asarray(x.copy()), update)
        total.add(RuleUpdate(arrays, jnp.zeros((), jnp.int32)))
        jax.block_until_ready(total.whole)

    add()
    add()  # compiles
    return median_seconds(add)


def median_seconds(work: Callable[[], None], seconds: float = 0.0) -> float:
    took: list[float] = []
    while len(took) < REPEATS or sum(took) < seconds:
        began = time.perf_counter()
        work()
        took.append(time.perf_counter() - began)
    return statistics.median(took)
