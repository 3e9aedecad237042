"""How many agents run as one program, so that a population fits into a stated memory.

The compiler says what a program takes: for one agent, and for all of an environment. What lies
between is taken to be proportional, and is asked of the compiler again before it is settled.
"""

import dataclasses
import math

from etude.errors import UserError
from etude.meta.discovery.config import DiscoverConfig
from etude.meta.discovery.parts import Part, Programs
from etude.rules import Rule
from etude.settings import as_bytes
from etude.text import size


@dataclasses.dataclass(frozen=True)
class Fitting:
    """Finds the parts of a population for `--memory-limit`."""

    config: DiscoverConfig
    rule: Rule
    ones: tuple[Part, ...]
    """The population in parts of one agent each."""

    def sizes(self) -> tuple[int, ...]:
        """For each environment, how many agents run as one program."""
        states = sum(map(Programs(self.rule).state_memory, self.ones))
        room = as_bytes(self.config.memory_limit) - states
        firsts = {part.place.env: part for part in reversed(self.ones)}
        return tuple(self._size(firsts[env], room) for env in sorted(firsts))

    def _size(self, one: Part, room: int) -> int:
        number = one.place.of
        alone = self._extra(one, 1)
        if alone > room:
            raise UserError(
                f"--memory-limit {self.config.memory_limit} is too little: beside the agents' "
                f"states it leaves {size(max(0, room))}, and one agent in {one.group.task.name} "
                f"takes {size(alone)}."
            )
        if number == 1 or (whole := self._extra(one, number)) <= room:
            return number
        each = max(1.0, (whole - alone) / (number - 1))
        found = even(number, 1 + int((room - alone) / each))
        while found > 1 and self._extra(one, found) > room:
            found = even(number, found - 1)
        return found

    def _extra(self, one: Part, agents: int) -> int:
        part = dataclasses.replace(one, place=one.place._replace(agents=agents))
        return Programs(self.rule).extra_memory(part)


def even(number: int, most: int) -> int:
    """The size of as few parts as can be, none larger than `most`, that differ as little as can
    be."""
    return math.ceil(number / math.ceil(number / max(1, min(most, number))))
