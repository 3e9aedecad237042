"""Files of settings: what `--preset FILE` reads and `etude tune` writes, and what Etude's own
presets are kept in. Reading one imports nothing that it names."""

import fnmatch
import functools
import re
from pathlib import Path
from typing import Any, NamedTuple, NotRequired, TypedDict

from etude import plugins
from etude.errors import UserError, did_you_mean
from etude.runs.reading import CONFIG_LIMITS, damaged, is_file, read_json, shortened
from etude.settings import Settings, lists_to_tuples, make_config, unknown_setting
from etude.training.config import TrainRequest

FORMAT = 1
RULE = "rule"
"""Under this name a layer holds settings of the rule itself."""
NOT_PRESET = ("env", "rule", "preset", "seed", "seeds", "max_seconds", "eval_episodes")
"""What is trained where, from which seeds, and how it is judged, is the user's to say."""
HOME = Path(__file__).parent
LAPTOP, PAPER = "laptop", "paper"
"""Presets that come along: one file per rule, and one for all of them."""


class Provenance(TypedDict, total=False):
    """How settings were found."""

    command: str
    commit: str | None
    """Of Etude, or its version where there is no telling."""
    envs: list[str]
    steps: int
    seed: int
    seeds: int
    trials: int
    objective: str
    score: float | None
    defaults: float | None
    """The score of what was used before."""


class LayerForm(TypedDict):
    """Settings for some environments."""

    envs: list[str]
    """Patterns of their names."""
    training: NotRequired[dict[str, Any]]
    """Fields of `TrainRequest`."""
    rule: NotRequired[dict[str, bool | int | float | str | list[int]]]
    about: NotRequired[str]
    made_by: NotRequired[Provenance]


class PresetForm(TypedDict):
    """A file of settings."""

    format: int
    rule: str
    """The name or kind of the rule they are for, or a pattern."""
    layers: list[LayerForm]
    """Those that fit an environment are laid over each other in this order."""


class Layer(NamedTuple):
    envs: list[str]
    settings: Settings
    """Of training; those of the rule are a dictionary under `RULE`."""

    def fitting(self, env: str) -> str | None:
        """The first of its patterns that an environment has."""
        return next((x for x in self.envs if fnmatch.fnmatchcase(env, x)), None)


class Preset(NamedTuple):
    """What a file holds, checked."""

    rule: str
    layers: list[Layer]

    def suits(self, *names: str) -> bool:
        """Whether it is for a rule with these names: its own, and that of its kind."""
        return any(name == self.rule or fnmatch.fnmatchcase(name, self.rule) for name in names)


@functools.cache
def laptop() -> list[Preset]:
    """Settings that learn on a laptop: a file per rule."""
    return [read(path) for path in sorted((HOME / LAPTOP).glob("*.json"))]


def find(name: str) -> Preset:
    """The preset that comes along under a name, or that in a file."""
    return read(path_of(name))


def path_of(name: str) -> Path:
    """Where the preset of that name is, or the file."""
    path = HOME / f"{PAPER}.json" if name == PAPER else Path(name)
    if not is_file(path):
        hint = did_you_mean(name, (LAPTOP, PAPER), f"there are {LAPTOP}, {PAPER}, and files.")
        raise UserError(f"There is no preset {shortened(name)!r} and no file of that name: {hint}")
    return path


def held_by(path: Path) -> PresetForm:
    """What a file holds, if it has the form of a preset."""
    held: PresetForm = read_json(path, CONFIG_LIMITS, PresetForm)
    if held["format"] != FORMAT:
        raise UserError(
            f"{path} has format {held['format']} of settings files; this version of Etude reads "
            f"format {FORMAT}."
        )
    _require_known(held, PresetForm, str(path))
    return held


def read(path: Path) -> Preset:
    """The preset in a file; a sentence if it is none, or if a setting in it makes no sense."""
    held = held_by(path)
    return Preset(held["rule"], [_layer(x, str(path)) for x in held["layers"]])


def _layer(held: LayerForm, path: str) -> Layer:
    _require_known(held, LayerForm, f"A layer of {path}")
    training, own = held.get("training", {}), held.get("rule", {})
    plugins.require_trust(plugins.code_in([training, own]), path, None)
    if chosen := [name for name in NOT_PRESET if name in training]:
        raise UserError(f"{path} sets {chosen[0]}, which is not for a preset to choose.")
    for name, value in own.items():
        if not name.isidentifier() or (
            isinstance(value, str) and not re.fullmatch(r"[\w.+-]+", value)
        ):
            raise damaged(path, f"{name[:50]} of the rule should be a number, a name or a list")
    try:
        settings = make_config(TrainRequest, "A training run", **training).asked
    except UserError as error:
        raise UserError(f"{path} holds a setting that makes no sense: {error}") from None
    return Layer(held["envs"], settings | ({RULE: lists_to_tuples(own)} if own else {}))


def _require_known(held: Any, form: Any, owner: str) -> None:
    """A name that is not read might be a mistake for one that is."""
    known = form.__required_keys__ | form.__optional_keys__
    if unknown := sorted(held.keys() - known):
        raise unknown_setting(owner, unknown[0], sorted(known))
