"""What every run in a terminal may be told beside its settings."""

import dataclasses
import importlib.util

from etude.errors import UserError
from etude.placing.cluster import ClusterOptions
from etude.settings import flag
from etude.stopping import GRACE

LOGGERS = {"tensorboard": "tensorboardX", "wandb": "wandb"}
"""The package that each needs, by the name of the option and of the extra that installs it."""


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
    grace: float = GRACE
    """Seconds that finishing and saving may take after a first Ctrl-C, SIGTERM or SIGHUP."""
    devices: str = "1"
    """Devices of this process that share out the run: a number, or all. Each has its part of the
    seeds or agents; a single agent's batch is shared out."""
    force: bool = False
    """Run even what would take more memory than there is, or compile for very long."""
    tensorboard: bool = False
    """Also write TensorBoard events into the run folder."""
    trust: bool = False
    """Import the environment or rule, if it is not Etude's, that a run folder or rule file names:
    its code will run."""
    wandb: bool = False
    """Also log to Weights & Biases; with WANDB_MODE=offline into the run folder alone."""

    def __post_init__(self):
        if not self.checkpoint_seconds >= 0:
            raise UserError(
                f"--checkpoint-seconds must be 0 or more, not {self.checkpoint_seconds}."
            )
        if not self.grace >= 0:
            raise UserError(f"--grace must be 0 or more, not {self.grace}.")
        for name, package in LOGGERS.items():
            if getattr(self, name) and importlib.util.find_spec(package) is None:
                raise UserError(
                    f"{flag(name)} needs {package}, which is not installed: "
                    f"pip install 'etude[{name}]'."
                )


OF_THE_COMMAND = {"resume", "dry_run", "checkpoint_seconds", "grace", "trust", *LOGGERS}
OF_THE_COMMAND |= {"processes", "force", "devices", *vars(ClusterOptions())}
"""Those that say nothing about the run itself."""


def refuse_flags_but(*changeable: str, given: list[str]) -> None:
    """Where a run is named, even a flag that repeats a default would say something about it."""
    if wrong := [name for name in given if name not in (*changeable, *OF_THE_COMMAND)]:
        flags = " and ".join(map(flag, changeable))
        raise UserError(
            f"A run keeps its own settings: only {flags} can change here, not {flag(wrong[0])}."
        )
