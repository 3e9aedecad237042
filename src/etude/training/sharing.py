"""How a run whose seeds go side by side is shared out over devices: by seeds, or, of a single large
agent, by its batch."""

import dataclasses
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, SingleDeviceSharding
from jax.stages import Compiled, Lowered
from jaxtyping import PyTree

from etude.placing.devices import Shares, along, at_once

State = TypeVar("State")
Given = PyTree
Updated = Callable[..., tuple[Any, PyTree]]
"""A seed after several updates, and their metrics; of what is given, the state, and a number."""


@runtime_checkable
class Sharing(Protocol[State]):
    """Compiles and runs the updates of all seeds."""

    def lower(self, updated: Updated, given: Given, state: State) -> list[Lowered]:
        """The programs that `run` needs, given shapes. `updated` is of one seed."""
        ...

    def run(
        self, programs: Sequence[Compiled], given: Given, state: State, number: int
    ) -> tuple[State, PyTree[np.ndarray]]:
        """The state after so many updates (the old one is used up), and their metrics."""
        ...


@dataclasses.dataclass(frozen=True)
class SharedSeeds(Generic[State]):
    """Each device has its part of the seeds, or several."""

    shares: Shares
    given_axis: int | None
    """That of the seeds in what is given; None if they all share it."""

    def lower(self, updated: Updated, given: Given, state: State) -> list[Lowered]:
        function = jax.vmap(updated, in_axes=(self.given_axis, 0, None))
        if self.given_axis == 0:
            given = self.shares.of_a_part(given)
        forms = given, self.shares.of_a_part(state), jax.ShapeDtypeStruct((), np.int32)
        places = map(SingleDeviceSharding, self.shares.devices)
        on = [partial(jax.jit, donate_argnums=1, in_shardings=x, out_shardings=x) for x in places]
        return [jit(function).lower(*forms) for jit in on]

    def run(
        self, programs: Sequence[Compiled], given: Given, state: State, number: int
    ) -> tuple[State, PyTree[np.ndarray]]:
        def of_device(program: Compiled, given: list[Given], parts: list[State]):
            pairs = zip(given, parts, strict=True)
            return lambda: [program(*pair, np.int32(number)) for pair in pairs]

        work = zip(programs, self._split(given), self.shares.split(state), strict=True)
        found = at_once([of_device(*x) for x in work])
        state = self.shares.join([[state for state, _ in parts] for parts in found])
        metrics = [jax.device_get(metrics) for parts in found for _, metrics in parts]
        return state, jax.tree.map(lambda *xs: np.concatenate(xs), *metrics)

    def _split(self, given: Given) -> list[list[Given]]:
        if self.given_axis == 0:
            return self.shares.split(given)
        return [[jax.device_put(given, x)] * self.shares.parts for x in self.shares.devices]


@dataclasses.dataclass(frozen=True)
class SharedBatch(Generic[State]):
    """Each device has its share of the only seed's environments, and all of its agent."""

    mesh: Mesh
    layout: PyTree[NamedSharding]
    """Of the state."""

    def lower(self, updated: Updated, given: Given, state: State) -> list[Lowered]:
        everywhere = along(self.mesh, None)
        program = jax.jit(
            jax.vmap(updated, in_axes=(None, 0, None)),
            donate_argnums=1,
            in_shardings=(everywhere, self.layout, everywhere),
            out_shardings=(self.layout, everywhere),
        )
        return [program.lower(given, state, jax.ShapeDtypeStruct((), np.int32))]

    def run(
        self, programs: Sequence[Compiled], given: Given, state: State, number: int
    ) -> tuple[State, PyTree[np.ndarray]]:
        given = jax.device_put(given, along(self.mesh, None))
        state, metrics = programs[0](given, jax.device_put(state, self.layout), np.int32(number))
        return state, jax.device_get(metrics)
