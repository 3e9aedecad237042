"""What suites have in common: names, and settings."""

from collections.abc import Iterable
from typing import TypeVar

from etude.errors import UserError, did_you_mean
from etude.settings import replace_fields, split_spec

Settings = TypeVar("Settings")


def known(suite: str, name: str, names: Iterable[str]) -> str:
    """The name, if it is one of the suite's."""
    names = list(names)
    if name not in names:
        otherwise = f"`etude envs {suite}` lists them."
        lower = {x.lower(): x for x in names}
        close = lower.get(name.lower())
        hint = f"did you mean {close!r}?" if close else did_you_mean(name, names, otherwise)
        raise UserError(f"{suite}/ has no environment {name!r}: {hint}")
    return name


def settings_from(defaults: Settings, settings: dict[str, str], spec: str) -> Settings:
    """The defaults, changed by what the user has written, and checked by their own class."""
    return replace_fields(defaults, settings, f"Environment {split_spec(spec)[0]!r}")
