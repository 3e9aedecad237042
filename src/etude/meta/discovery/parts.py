"""Parts of a population: the agents that are placed, and run, together.

The agents of an environment are split at places that the settings say, whatever machines there are:
each part is one vmapped program and adds one sum to the rule's step, and these sums are added one
after another in the order of the parts. So the bits of a run depend on its parts, and not on where
they are computed.
"""

import dataclasses
import itertools
import operator
from collections.abc import Sequence
from typing import NamedTuple

import jax
import numpy as np
from jax.stages import Compiled, Lowered

from etude.core.rule import Rule
from etude.core.types import Metrics
from etude.errors import UserError
from etude.meta.discovery.config import DiscoverConfig
from etude.meta.discovery.population import Group, HostGroup
from etude.meta.discovery.rule_optimiser import RuleUpdate
from etude.meta.discovery.seats import Seat
from etude.placing import devices
from etude.runs.storage import bytes_of

Likeness = tuple[int, int]
"""The environment's number and the number of agents: parts with the same share their programs, if
they run on the same device."""
Key = tuple[Likeness, jax.Device | None]


class Stepped(NamedTuple):
    """A meta-step of one part."""

    update: RuleUpdate
    seats: Seat
    played: Metrics
    """One entry per agent."""


class Place(NamedTuple):
    """Where a part is in the population."""

    env: int
    """The environment's number."""
    first: int
    """The first agent's number among those of the environment."""
    agents: int
    of: int
    """How many agents the environment has."""


@dataclasses.dataclass(frozen=True)
class Part:
    """Agents of one environment that run as one program."""

    group: Group
    """Of its own, for it may have simulators."""
    place: Place
    device: jax.Device | None = None
    """Where it runs, if several devices share out the population."""

    @staticmethod
    def of(group: Group, place: Place, device: jax.Device | None = None) -> "Part":
        return Part(dataclasses.replace(group, collectors=[]), place, device)

    @property
    def name(self) -> str:
        env = self.group.task.name
        _, first, agents, number = self.place
        if agents == number:
            return env
        last = first + agents
        return f"{env} ({f'agents {first + 1} to' if agents > 1 else 'agent'} {last})"

    @property
    def likeness(self) -> Likeness:
        return self.place.env, self.place.agents

    @property
    def key(self) -> Key:
        return self.likeness, self.device

    def new_seats(self, rule: Rule, seed: int) -> Seat:
        """At the start of a run; an agent has the same key however the others are split."""
        env, first, agents, number = self.place
        key = jax.random.fold_in(jax.random.key(seed), env)
        keys = jax.random.split(key, number)[first : first + agents]
        return jax.vmap(self.group.new_seat, in_axes=(None, 0))(rule, keys)

    def shapes(self, rule: Rule) -> Seat:
        return jax.eval_shape(lambda rule: self.new_seats(rule, 0), rule)


def seats_per_env(config: DiscoverConfig) -> list[int]:
    """Agents are assigned to the environments in turn."""
    share, rest = divmod(config.agents, len(config.env_names))
    return [share + (i < rest) for i in range(len(config.env_names))]


def cut(config: DiscoverConfig) -> list[Place]:
    """Where the population is split, in the order in which what the parts say is added up."""
    found = []
    for env, number in enumerate(seats_per_env(config)):
        size = config.part_of(env) or number
        firsts = range(0, number, size)
        found += [Place(env, first, min(size, number - first), number) for first in firsts]
    return found


def parts_of(groups: Sequence[Group], config: DiscoverConfig) -> tuple[Part, ...]:
    """All parts of a population, in turn on the devices in use."""
    places, found = cut(config), devices.in_use()
    if len(found) == 1:
        return tuple(Part.of(groups[place.env], place) for place in places)
    if len(found) > len(places):
        raise UserError(
            f"--devices {len(found)} is more than there are parts of the population, of which "
            f"there are {len(places)}: a smaller --part makes more."
        )
    if outside := [x.task.name for x in groups if isinstance(x, HostGroup)]:
        raise UserError(f"--devices is for environments in JAX; {outside[0]} runs outside it.")
    turns = zip(places, itertools.cycle(found), strict=False)
    return tuple(Part.of(groups[place.env], place, device) for place, device in turns)


class Programs:
    """What this process computes parts with, traced and compiled once for all that are alike."""

    def __init__(self, rule: Rule):
        """`rule`: one of the form of those that there will be."""
        self._rule = rule
        self._traced: dict[Key, dict[str, Lowered]] = {}
        self._compiled: dict[Key, dict[str, Compiled]] = {}
        self._replace: dict[Key, Compiled] = {}

    def traced(self, part: Part) -> dict[str, Lowered]:
        if part.key not in self._traced:
            with jax.default_device(part.device):
                lowered = part.group.lower(self._rule, part.shapes(self._rule))
            self._traced[part.key] = lowered
        return self._traced[part.key]

    def compiled(self, part: Part) -> dict[str, Compiled]:
        if part.key not in self._compiled:
            programs = {name: x.compile() for name, x in self.traced(part).items()}
            self._compiled[part.key] = programs
        return self._compiled[part.key]

    def replacing(self, part: Part) -> Compiled:
        """What puts fresh agents in others' places; compiled when it is first needed."""
        if part.key not in self._replace:
            over = jax.ShapeDtypeStruct((part.place.agents,), bool)
            program = jax.jit(part.group.replace, donate_argnums=1)
            with jax.default_device(part.device):
                lowered = program.lower(self._rule, part.shapes(self._rule), over)
            self._replace[part.key] = lowered.compile()
        return self._replace[part.key]

    def step(self, part: Part, rule: Rule, seats: Seat) -> Stepped:
        """A meta-step of a part; those whose time is over are replaced. The old seats are used
        up."""
        if part.device is not None:
            rule, seats = jax.device_put((rule, seats), part.device)
        programs = self.compiled(part)
        update, seats, played = part.group.meta_step(programs, rule, seats)
        if np.any(played["over"]):
            seats = self.replacing(part)(rule, seats, played["over"])
            part.group.replaced(played["over"])
        return Stepped(update, seats, played)

    # --- Memory ----------------------------------------------------------------------------------

    def state_memory(self, part: Part) -> int:
        """Bytes of the agents' states."""
        return bytes_of(part.shapes(self._rule))

    def extra_memory(self, part: Part) -> int:
        """Bytes that a meta-step takes beside the agents' states, as the compiler says."""
        seats = self.state_memory(part)
        needs = [seats]  # of those that take others' places
        for program in self.compiled(part).values():
            if (found := program.memory_analysis()) is None:
                raise UserError("The compiler does not say here what --memory-limit asks for.")
            given = found.argument_size_in_bytes + found.output_size_in_bytes
            needs.append(given - found.alias_size_in_bytes + found.temp_size_in_bytes - seats)
        return max(needs)


def is_outside(part: Part) -> bool:
    """Whether its agents play in a simulator, which cannot be saved."""
    return isinstance(part.group, HostGroup)


class Sum:
    """The parts' updates, added up one after another in the parts' order, so that no more than two
    are in memory and the bits are the same wherever they come from."""

    def __init__(self):
        self.update: RuleUpdate | None = None

    def add(self, update: RuleUpdate) -> None:
        self.update = update if self.update is None else _added(self.update, update)

    @property
    def whole(self) -> RuleUpdate:
        assert self.update is not None, "a population has at least one part"
        return self.update


@jax.jit
def _added(a: RuleUpdate, b: RuleUpdate) -> RuleUpdate:
    return jax.tree.map(operator.add, a, b)


def by_environment(
    parts: Sequence[Part], played: Sequence[dict[str, np.ndarray]]
) -> dict[str, dict[str, np.ndarray]]:
    """The metrics of an environment's agents in their order, however they are split."""
    found: dict[str, list[dict[str, np.ndarray]]] = {}
    for part, metrics in zip(parts, played, strict=True):
        found.setdefault(part.group.task.name, []).append(metrics)
    return {
        env: jax.tree.map(lambda *xs: np.concatenate(xs), *several)
        for env, several in found.items()
    }
