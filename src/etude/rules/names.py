"""Update rules by name, and what their files say of them. None of this needs JAX: the rules
themselves are imported when they are made."""

from collections.abc import Container
from pathlib import Path
from typing import Any, NamedTuple

from etude import plugins
from etude.errors import UserError, did_you_mean, disk_errors, reason
from etude.runs.arrays import read_header
from etude.runs.formats import RuleHeader
from etude.runs.reading import damaged, misfit, shortened
from etude.settings import Settings, lists_to_tuples, malformed, split_spec
from etude.training.config import TrainRequest

RULE_FILE = "rule.npz"
"""In a run folder: the rule that others may use."""
START_FILE = "start.npz"
"""In the folder of a run that changes its rule: where it started."""


class Kind(NamedTuple):
    """A family of rules: the class that makes them."""

    module: str
    name: str
    learned_online: bool = False
    """Whether a new rule of this kind is learned while an agent is trained under it."""

    @property
    def full_name(self) -> str:
        return f"{self.module}:{self.name}"


KINDS = {
    "disco": Kind("etude.rules.disco.rule", "Disco"),
    "actor_critic": Kind("etude.rules.actor_critic", "ActorCritic"),
    "residual": Kind("etude.rules.residual.rule", "Residual"),
    "ppo": Kind("etude.rules.ppo", "PPO"),
    "policy_gradient": Kind("etude.rules.policy_gradient", "PolicyGradient"),
    "q_learning": Kind("etude.rules.value_based", "QLearning"),
    "sarsa": Kind("etude.rules.value_based", "Sarsa"),
    "frodo": Kind("etude.rules.frodo", "Frodo", learned_online=True),
    "frodo_q": Kind("etude.rules.frodo_q", "FrodoQ", learned_online=True),
    "metagrad": Kind("etude.rules.metagrad", "MetaGrad", learned_online=True),
}
NOT_SUGGESTED = {"env", "rule", "outer", "preset", "workers", "max_seconds", "eval_episodes"}
"""What a rule's file says nothing about: what is trained where is the user's to name."""
PUBLISHED = {"disco103": "disco"}
"""Rules whose parameters others have published, with their kinds."""


def is_own(name: str) -> bool:
    """Whether a name is that of a class of the user's: `module:Class`."""
    module, _, rest = name.partition(":")
    if rest.islower() and (module in KINDS or module in PUBLISHED):
        raise malformed(name, rest)
    with disk_errors(f"The rule {shortened(name)} cannot be read"):
        return plugins.is_named(name) and not Path(name).exists()


def is_kind(name: str) -> bool:
    """Whether rules of a kind can be found again by its name."""
    return name in KINDS or plugins.is_named(name)


def kind_called(name: str) -> Kind:
    """One of ours, or `module:Class`."""
    module, _, attribute = name.partition(":")
    return KINDS[name] if name in KINDS else Kind(module, attribute)


def kind_named(spec: str) -> str:
    """The kind of the rule that a spec names."""
    name, _ = split_spec(spec)
    if name in KINDS or is_own(name):
        return name
    return PUBLISHED[name] if name in PUBLISHED else read_kind(find_file(name))[0]


def learns_online(spec: str) -> bool:
    """Whether the rule a spec names is one that learns while agents are trained under it."""
    name, _ = split_spec(spec)
    return name in KINDS and KINDS[name].learned_online


def suggested(spec: str) -> dict[str, Any]:
    """The settings of training that a rule's file suggests, as fields of `TrainRequest`."""
    name, _ = split_spec(spec)
    if name in PUBLISHED or name in KINDS or is_own(name):
        return {}
    _, header = read_header(find_file(name))
    return training_settings(header.get("training", {}), name)


def training_settings(fields: Any, owner: str) -> dict[str, Any]:
    """The settings of training that go with a rule, or a sentence if they make no sense."""
    try:
        given = dict(fields)
        if chosen := sorted(given.keys() & NOT_SUGGESTED):
            raise UserError(f"no rule chooses {', '.join(chosen)}.")
        return TrainRequest(**lists_to_tuples(given)).asked
    except (TypeError, ValueError, UserError) as error:
        raise UserError(f"{owner} suggests settings that make no sense: {reason(error)}") from None


def find_file(name: str) -> Path:
    """The rule file of that name, or that in a run folder of that name."""
    path = Path(name)
    with disk_errors(f"The rule {shortened(name)} cannot be read"):
        if path.is_dir() and not (path / RULE_FILE).exists():
            raise UserError(f"{path} holds no {RULE_FILE}, as runs of etude train and discover do.")
        if path.exists():
            return path / RULE_FILE if path.is_dir() else path
    names = [*PUBLISHED, *KINDS]
    hint = did_you_mean(name, names, f"there are {', '.join(names)}, and files.")
    raise UserError(f"There is no rule {name!r} and no file of that name: {hint}")


def read_kind(path: Path) -> tuple[str, Settings]:
    """The kind of the rule in a file, and its header; nothing that it names is imported."""
    arrays, header = read_header(path)
    if is_published_format(arrays):
        return "disco", header
    kind = header.get("kind")
    if not isinstance(kind, str) or not is_kind(kind):
        raise UserError(f"{path} is not a rule file: it names no known kind of rule.")
    if wrong := misfit(header, RuleHeader):
        raise damaged(f"The header of {path}", wrong)
    return kind, header


def is_published_format(arrays: Container[str]) -> bool:
    """Whether the arrays carry the names of DeepMind's file instead of ours."""
    return "lstm/lstm/linear/w" in arrays
