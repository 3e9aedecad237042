"""What the command line says to those who come from elsewhere, and of itself."""

import platform
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version

from etude.errors import UserError, did_you_mean
from etude.settings import shown

COMMANDS = ("train", "discover", "adapt", "compare", "tune", "reproduce")
COMMANDS += ("envs", "rules", "plot", "play", "inspect", "report")
MEANT = {
    "--lr": "--learning-rate",
    "--learning_rate": "--learning-rate",
    "--env-id": "--env",
    "--environment": "--env",
    "--gamma": "--rule NAME:discount=…",
    "--num-envs": "--batch",
    "--n-envs": "--batch",
    "--batch-size": "--batch",
    "--num-steps": "--rollout",
    "--n-steps": "--rollout",
    "--total-timesteps": "--steps",
    "--timesteps": "--steps",
    "--num-seeds": "--seeds",
    "--hidden-sizes": "--torso",
    "--output": "--out",
    "--output-dir": "--out",
    "--algorithm": "--rule, or --algo of etude adapt",
}
"""What other libraries call our flags, where the letters do not tell."""


def refuse_others_words(arguments: Sequence[str]) -> None:
    """Refuses commands that there are not, and flags that there are elsewhere."""
    if (command := next(iter(arguments), "-")) not in COMMANDS and not command.startswith("-"):
        hint = did_you_mean(command, COMMANDS, f"it is one of {', '.join(COMMANDS)}.")
        raise UserError(f"There is no command {shown(command)!r}: {hint}")
    for argument in arguments:
        name = argument.partition("=")[0]
        if name in MEANT:
            raise UserError(f"There is no flag {name}: did you mean {MEANT[name]}?")


def versions() -> str:
    """Of Etude, and of what its numbers depend on."""
    others = ", ".join(f"{name} {_version(name)}" for name in ("jax", "jaxlib", "numpy"))
    return f"etude {_version('etude')} (Python {platform.python_version()}, {others})"


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:  # run from its sources
        return "of unknown version"
