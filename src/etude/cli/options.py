"""What every run in a terminal may be told beside its settings."""

import dataclasses
import importlib.util

from etude.errors import UserError
from etude.settings import flag


@dataclasses.dataclass(frozen=True)
class RunOptions:
    """Where a run is kept, and what is written while it runs."""

    out: str | None = None
    """Folder for the run; by default a new one under runs/."""
    resume: str | None = None
    """Continue the run in this folder, to its end or, given more steps, to a later one."""
    dry_run: bool = False
    """Print every setting and where it comes from, then stop: nothing is run or written."""
    checkpoint_seconds: float = 30.0
    """Seconds between checkpoints; 0 saves one after each line of metrics."""
    tensorboard: bool = False
    """Also write TensorBoard events into the run folder."""

    def __post_init__(self):
        if not self.checkpoint_seconds >= 0:
            raise UserError(
                f"--checkpoint-seconds must be 0 or more, not {self.checkpoint_seconds}."
            )
        if self.tensorboard and importlib.util.find_spec("tensorboardX") is None:
            raise UserError(
                "--tensorboard needs the package tensorboardX: pip install tensorboardX."
            )


OF_THE_COMMAND = {"resume", "dry_run", "checkpoint_seconds", "tensorboard"}
"""Those that say nothing about the run itself."""


def refuse_flags_but(*changeable: str, given: list[str]) -> None:
    """Where a run is named, even a flag that repeats a default would say something about it."""
    if wrong := [name for name in given if name not in (*changeable, *OF_THE_COMMAND)]:
        flags = " and ".join(map(flag, changeable))
        raise UserError(
            f"A run keeps its own settings: only {flags} can change here, not {flag(wrong[0])}."
        )
