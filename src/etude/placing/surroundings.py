"""What a process elsewhere must know of this one, to do as it would."""

import os
import sys
from typing import NamedTuple

OURS = ("JAX_", "XLA_", "ETUDE_", "PYTHONPATH")
"""What variables begin with that JAX, Etude and their processes look at."""
DEVICES = "JAX_PLATFORMS"


class Surroundings(NamedTuple):
    """Of a process."""

    environment: dict[str, str]
    folder: str
    path: list[str]
    """Where modules are looked for."""

    @staticmethod
    def of_this_process(gpus: bool = False) -> "Surroundings":
        """`gpus`: whether others have some, which this one may not."""
        found = {name: x for name, x in os.environ.items() if name.startswith(OURS)}
        if gpus:
            found.pop(DEVICES, None)
        return Surroundings(found, os.getcwd(), [*sys.path])

    def take_on(self) -> None:
        """Has this process see what the other does, as far as it is there."""
        os.environ.update(self.environment)
        if os.path.isdir(self.folder):
            os.chdir(self.folder)
        sys.path += [x for x in self.path if x not in sys.path]
