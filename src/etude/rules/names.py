"""Update rules by name, and what their files say of them. None of this needs JAX: the rules
themselves are imported when they are made."""

import dataclasses
import difflib
import inspect
import sys
from pathlib import Path
from typing import Any

from etude import plugins
from etude.errors import UserError, reason
from etude.runs.arrays import read_arrays
from etude.settings import lists_to_tuples, split_spec
from etude.training.config import TrainRequest

RULE_FILE = "rule.npz"
"""In a run folder: the rule that others may use."""
START_FILE = "start.npz"
"""In the folder of a run that changes its rule: where it started."""


@dataclasses.dataclass(frozen=True)
class NoSettings:
    """The config of a rule that has none."""


@dataclasses.dataclass(frozen=True)
class Kind:
    """A family of rules: how its members are made from a config and a random key."""

    module: str
    name: str
    """Of the class."""
    learned_online: bool = False
    """Whether a new rule of this kind is learned while an agent is trained under it."""

    @property
    def full_name(self) -> str:
        return f"{self.module}:{self.name}"

    @property
    def rule(self) -> type:
        """The class itself."""
        from etude.core.rule import Rule  # imports JAX

        found = plugins.import_class(self.full_name)
        if not (isinstance(found, type) and issubclass(found, Rule)):
            raise UserError(f"{self.full_name} is not a rule: it must be a subclass of etude.Rule.")
        return found

    @property
    def config(self) -> type:
        """The class of its settings: the type of the rule's field `config`, if it has one."""
        fields = {field.name: field.type for field in dataclasses.fields(self.rule)}
        config = fields.get("config", NoSettings)
        if isinstance(config, str):  # its module postpones annotations
            config = getattr(sys.modules[self.rule.__module__], config, None)
        if not (isinstance(config, type) and dataclasses.is_dataclass(config)):
            raise UserError(f"The field `config` of {self.full_name} must be a frozen dataclass.")
        return config

    def create(self, config: Any, key: Any) -> Any:
        """A rule of this kind; its constructor is given `config` and `key` if it takes them."""
        accepted = inspect.signature(self.rule.__init__).parameters
        given = {"config": config, "key": key}
        try:
            return self.rule(**{name: x for name, x in given.items() if name in accepted})
        except UserError:
            raise
        except Exception as error:  # the user's code may raise anything
            raise UserError(f"Rule {self.full_name} cannot be made: {reason(error)}") from error


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


def is_own(name: str) -> bool:
    """Whether a name is that of a class of the user's: `module:Class`."""
    return plugins.is_named(name) and not Path(name).exists()


def kind_called(name: str) -> Kind:
    """One of ours, or `module:Class`."""
    if name in KINDS:
        return KINDS[name]
    module, _, attribute = name.partition(":")
    return Kind(module, attribute)


def kind_named(spec: str) -> str:
    """The kind of the rule that a spec names."""
    name, _ = split_spec(spec)
    if name in PUBLISHED:
        return PUBLISHED[name]
    return name if name in KINDS or is_own(name) else kind_in_file(find_file(name))


def learns_online(spec: str) -> bool:
    """Whether the rule a spec names is one that learns while agents are trained under it."""
    name, _ = split_spec(spec)
    return name in KINDS and KINDS[name].learned_online


def suggested(spec: str) -> dict[str, Any]:
    """The settings of training that a rule's file suggests, as fields of `TrainRequest`."""
    name, _ = split_spec(spec)
    if name in PUBLISHED or name in KINDS or is_own(name):
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
    if not isinstance(kind, str) or not (kind in KINDS or plugins.is_named(kind)):
        raise UserError(f"{path} is not a rule file: it names no known kind of rule.")
    return kind


def is_published_format(arrays: dict[str, Any]) -> bool:
    """Whether the arrays carry the names of DeepMind's file instead of ours."""
    return "lstm/lstm/linear/w" in arrays
