"""The parts that a worker holds."""

import pickle
from collections.abc import Iterator, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from etude import envs
from etude.meta.discovery.cluster.worker import Arrays, PartStep, Setup
from etude.meta.discovery.lives import shape_of
from etude.meta.discovery.parts import Part, Programs, Stepped, cut
from etude.meta.discovery.placement import Threads
from etude.meta.discovery.population import Group
from etude.meta.discovery.seats import Seat
from etude.rules import Rule
from etude.runs.storage import from_arrays, to_arrays


class Held:
    """Parts by number, with their seats. Only the environments that they need are made."""

    def __init__(self, setup: Setup):
        self._config = setup.config
        self._start: Rule = jax.tree.map(jnp.asarray, pickle.loads(setup.rule))
        self._programs = Programs(self._start)
        self._threads = Threads(setup.threads)
        self._groups: dict[int, Group] = {}
        self._parts: dict[int, Part] = {}
        self._seats: dict[int, Seat] = {}

    def prepare(self, pieces: Sequence[int]) -> None:
        for piece in pieces:
            self._programs.compiled(self._part(piece))
            self._programs.replacing(self._part(piece))  # now: later it would look like hanging

    def _part(self, piece: int) -> Part:
        if piece not in self._parts:
            place = cut(self._config)[piece]
            if place.env not in self._groups:
                names = self._config.env_names
                task = envs.make(names[place.env])
                shaped = shape_of(task, names, place.env, self._config)
                self._groups[place.env] = Group.create(*shaped)
            self._parts[piece] = Part.of(self._groups[place.env], place)
        return self._parts[piece]

    def adopt(self, piece: int, seats: Arrays) -> None:
        part = self._part(piece)
        part.group.close()  # its simulators are where others left them
        self._seats[piece] = from_arrays(part.shapes(self._start), seats, part.name)

    def drop(self, piece: int) -> None:
        del self._seats[piece]
        self._part(piece).group.close()

    def fetch(self, piece: int) -> Arrays:
        return to_arrays(self._seats[piece])

    def step(self, pieces: Sequence[int], leaves: list[np.ndarray]) -> Iterator[PartStep]:
        structure = jax.tree.structure(self._start)
        rule = jax.tree.unflatten(structure, [jnp.asarray(x) for x in leaves])

        def step(part: Part, seats: Seat) -> Stepped:
            return jax.block_until_ready(self._programs.step(part, rule, seats))

        parts = [self._part(piece) for piece in pieces]
        seats = [self._seats[piece] for piece in pieces]
        for piece, done in zip(pieces, self._threads.each(step, parts, seats), strict=True):
            self._seats[piece] = done.seats
            update, played = jax.device_get((done.update, done.played))
            yield PartStep(jax.tree.leaves(update.total), np.asarray(update.agents), played)
