"""Update rules by name, and what their files say of them. None of this needs JAX: the rules
themselves are imported when they are made."""

import dataclasses
import difflib
import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from etude.errors import UserError, reason
from etude.runs.arrays import read_arrays
from etude.settings import split_spec
from etude.training.config import TrainRequest, lists_to_tuples

RULE_FILE = "rule.npz"
"""In a run folder: the rule that others may use."""
START_FILE = "start.npz"
"""In the folder of a run that changes its rule: where it started."""


@dataclasses.dataclass(frozen=True)
class Kind:
    """A family of rules: how its members are made from a config."""

    module: str
    name: str
    """Of the class; that of its config is the same with `Config` after it."""
    learned_online: bool = False
    """Whether a new rule of this kind is learned while an agent is trained under it."""

    @property
    def create(self) -> Callable[..., Any]:
        return getattr(importlib.import_module(self.module), self.name)

    @property
    def config(self) -> type:
        return getattr(importlib.import_module(self.module), f"{self.name}Config")


KINDS = {
    "disco": Kind("etude.rules.disco.rule", "Disco"),
    "actor_critic": Kind("etude.rules.actor_critic", "ActorCritic"),
    "ppo": Kind("etude.rules.ppo", "PPO"),
    "policy_gradient": Kind("etude.rules.policy_gradient", "PolicyGradient"),
    "frodo": Kind("etude.rules.frodo", "Frodo", learned_online=True),
    "metagrad": Kind("etude.rules.metagrad", "MetaGrad", learned_online=True),
}
PUBLISHED = {"disco103": "disco"}
"""Rules whose parameters others have published, with their kinds."""


def kind_named(spec: str) -> str:
    """The kind of the rule that a spec names."""
    name, _ = split_spec(spec)
    if name in PUBLISHED:
        return PUBLISHED[name]
    return name if name in KINDS else kind_in_file(find_file(name))


def learns_online(spec: str) -> bool:
    """Whether the rule a spec names is one that learns while agents are trained under it."""
    name, _ = split_spec(spec)
    return name in KINDS and KINDS[name].learned_online


def suggested(spec: str) -> dict[str, Any]:
    """The settings of training that a rule's file suggests, as fields of `TrainRequest`."""
    name, _ = split_spec(spec)
    if name in PUBLISHED or name in KINDS:
        return {}
    _, header = read_arrays(find_file(name))
    return training_settings(header.get("training", {}), name)


def training_settings(fields: Any, owner: str) -> dict[str, Any]:
    """The settings of training that go with a rule, or a sentence if they make no sense."""
    try:
        settings = lists_to_tuples(dict(fields))
        TrainRequest(**settings)
    except (TypeError, ValueError, UserError) as error:
        raise UserError(f"{owner} suggests settings that make no sense: {reason(error)}") from None
    return settings


def find_file(name: str) -> Path:
    """The rule file of that name, or that in a run folder of that name."""
    path = Path(name)
    if path.exists():
        return path / RULE_FILE if path.is_dir() else path
    names = [*PUBLISHED, *KINDS]
    close = difflib.get_close_matches(name, names, n=1)
    hint = f"did you mean {close[0]!r}?" if close else f"there are {', '.join(names)}, and files."
    raise UserError(f"There is no rule {name!r} and no file of that name: {hint}")


def kind_in_file(path: Path) -> str:
    arrays, header = read_arrays(path)
    if is_published_format(arrays):
        return "disco"
    kind = header.get("kind")
    if not isinstance(kind, str) or kind not in KINDS:
        raise UserError(f"{path} is not a rule file: it names no known kind of rule.")
    return kind


def is_published_format(arrays: dict[str, Any]) -> bool:
    """Whether the arrays carry the names of DeepMind's file instead of ours."""
    return "lstm/lstm/linear/w" in arrays
