"""Update rules by name, and rule files."""

import dataclasses
import difflib
import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jaxtyping import PRNGKeyArray, PyTree

from etude.core.rule import Rule
from etude.errors import UserError, reason
from etude.rules.actor_critic import ActorCritic, ActorCriticConfig
from etude.rules.disco.rule import Disco, DiscoConfig
from etude.rules.disco.weights import from_published, is_published_format, load_disco103
from etude.rules.frodo import Frodo, FrodoConfig
from etude.rules.metagrad import MetaGrad, MetaGradConfig
from etude.rules.policy_gradient import PolicyGradient, PolicyGradientConfig
from etude.rules.ppo import PPO, PPOConfig
from etude.runs.storage import from_arrays, read_arrays, sha256_of, to_arrays, write_arrays
from etude.settings import as_text, join_spec, replace_fields, split_spec
from etude.training.config import TrainConfig, lists_to_tuples

__all__ = [
    "KINDS",
    "PUBLISHED",
    "Kind",
    "Rule",
    "digest",
    "kind_named",
    "kind_of",
    "learns_online",
    "load",
    "load_kept",
    "maker",
    "require_kind",
    "save",
    "spec_of",
    "suggested",
]

RULE_FILE = "rule.npz"
"""In a run folder: the rule that others may use."""
START_FILE = "start.npz"
"""In the folder of a run that changes its rule: where it started."""


@dataclasses.dataclass(frozen=True)
class Kind:
    """A family of rules: how its members are made from a config."""

    create: Callable[..., Any]
    config: type
    learned_online: bool = False
    """Whether a new rule of this kind is learned while an agent is trained under it."""

    @property
    def about(self) -> str:
        return (self.create.__doc__ or "").split("\n")[0]


KINDS = {
    "disco": Kind(Disco, DiscoConfig),
    "actor_critic": Kind(ActorCritic, ActorCriticConfig),
    "ppo": Kind(PPO, PPOConfig),
    "policy_gradient": Kind(PolicyGradient, PolicyGradientConfig),
    "frodo": Kind(Frodo, FrodoConfig, learned_online=True),
    "metagrad": Kind(MetaGrad, MetaGradConfig, learned_online=True),
}
PUBLISHED = {"disco103": ("disco", load_disco103)}


def kind_of(rule: Rule) -> str:
    """The name of the rule's kind; the name of its class if it is of none of ours."""
    kinds = (name for name, kind in KINDS.items() if type(rule) is kind.create)
    return next(kinds, type(rule).__name__)


def kind_named(spec: str) -> str:
    """The kind of the rule that a spec names."""
    name, _ = split_spec(spec)
    if name in PUBLISHED:
        return PUBLISHED[name][0]
    return name if name in KINDS else _kind_in_file(_find_file(name))


def load(spec: str, *, seed: int = 0, observation: PyTree = None) -> Rule:
    """The rule a spec names: a kind (`disco` starts from random η), `disco103`, or a file.

    Settings may follow: `actor_critic:discount=0.9,entropy_cost=0.02`. Some rules read
    observations, and have to be told the form of one.
    """
    return maker(spec, observation)(jax.random.key(seed))


def maker(spec: str, observation: PyTree = None) -> Callable[[PRNGKeyArray], Rule]:
    """What makes the rule a spec names, of which some part may be random."""
    name, settings = split_spec(spec)
    if name not in KINDS:
        rule = _load_published(name, settings)
        return lambda key: rule
    config = replace_fields(KINDS[name].config(), settings, f"Rule {name}")
    if hasattr(config, "fitted"):
        config = config.fitted(observation)
    return lambda key: KINDS[name].create(config, key=key)


def _load_published(name: str, settings: dict[str, str]) -> Rule:
    """A rule whose parameters come from a file, someone else's or one of ours."""
    if name not in PUBLISHED:
        return _load_file(_find_file(name), settings)
    kind, load = PUBLISHED[name]
    return load(replace_fields(KINDS[kind].config(), settings, f"Rule {name}"))


def learns_online(spec: str) -> bool:
    """Whether the rule a spec names is one that learns while agents are trained under it."""
    name, _ = split_spec(spec)
    return name in KINDS and KINDS[name].learned_online


def load_kept(path: Path) -> Rule:
    """The rule that a run folder keeps."""
    if not path.is_file():
        raise UserError(f"The run folder {path.parent} has lost its rule, {path.name}.")
    return _load_file(path, {})


def spec_of(rule: Rule) -> str:
    """The spec that makes a rule like this one, apart from its parameters."""
    kind = kind_of(rule)
    if kind not in KINDS:
        return kind
    fields = dataclasses.fields(KINDS[kind].config)
    given = {f.name: getattr(rule.config, f.name) for f in fields}  # type: ignore[attr-defined]
    changed = {f.name: given[f.name] for f in fields if given[f.name] != f.default}
    return join_spec(kind, {name: as_text(value) for name, value in changed.items()})


def digest(rule: Rule) -> str:
    """Equal for rules of the same kind, with the same settings and the same parameters."""
    text = f"{spec_of(rule)};{sha256_of(rule)}"
    return hashlib.sha256(text.encode()).hexdigest()


def suggested(spec: str) -> dict[str, Any]:
    """The settings of training that a rule's file suggests, as fields of `TrainConfig`."""
    name, _ = split_spec(spec)
    if name in PUBLISHED or name in KINDS:
        return {}
    _, header = read_arrays(_find_file(name))
    return _training_settings(header.get("training", {}), name)


def _training_settings(fields: Any, owner: str) -> dict[str, Any]:
    """The settings of training that go with a rule, or a sentence if they make no sense."""
    try:
        settings = lists_to_tuples(dict(fields))
        TrainConfig(**settings)
    except (TypeError, ValueError, UserError) as error:
        raise UserError(f"{owner} suggests settings that make no sense: {reason(error)}") from None
    return settings


def save(path: Path | str, rule: Rule, training: dict[str, Any] | None = None) -> None:
    """Writes a rule file: its kind, its config, η, and settings of training that suit it, as
    fields of `TrainConfig`."""
    require_kind(rule)
    kind = kind_of(rule)
    config = dataclasses.asdict(rule.config)  # type: ignore[attr-defined]
    training = _training_settings(training or {}, "The rule")
    header = {"kind": kind, "config": config, "training": training}
    try:
        write_arrays(Path(path), to_arrays(rule), header)
    except OSError as error:
        raise UserError(f"The rule cannot be written to {path}: {reason(error)}.") from None


def require_kind(rule: Rule) -> None:
    """Only rules of a kind that is known by name can be kept, in a rule file or a run folder."""
    if (kind := kind_of(rule)) not in KINDS:
        raise UserError(
            f"{kind} is not a kind of rule that can be kept in a file; train it without a folder."
        )


def _find_file(name: str) -> Path:
    path = Path(name)
    if path.exists():
        return path / RULE_FILE if path.is_dir() else path
    names = [*PUBLISHED, *KINDS]
    close = difflib.get_close_matches(name, names, n=1)
    hint = f"did you mean {close[0]!r}?" if close else f"there are {', '.join(names)}, and files."
    raise UserError(f"There is no rule {name!r} and no file of that name: {hint}")


def _kind_in_file(path: Path) -> str:
    arrays, header = read_arrays(path)
    if is_published_format(arrays):
        return "disco"
    kind = header.get("kind")
    if not isinstance(kind, str) or kind not in KINDS:
        raise UserError(f"{path} is not a rule file: it names no known kind of rule.")
    return kind


def _load_file(path: Path, settings: dict[str, str]) -> Rule:
    kind = KINDS[_kind_in_file(path)]
    arrays, header = read_arrays(path)
    if is_published_format(arrays):  # weights as DeepMind publishes them
        config = replace_fields(kind.config(), settings, f"Rule {path}")
        return from_published(arrays, config, str(path))
    try:
        config = kind.config(**lists_to_tuples(header["config"]))
        config = replace_fields(config, settings, f"Rule {path}")
        like = jax.eval_shape(lambda: kind.create(config, key=jax.random.key(0)))
    except UserError:
        raise
    except Exception:  # a damaged header can fail in any way
        raise UserError(f"{path} holds settings this version does not know.") from None
    rule = from_arrays(like, arrays, str(path))
    for name, x in arrays.items():
        if not np.isfinite(x).all():
            raise UserError(f"{path} is damaged: {name} holds numbers that are not finite.")
    return rule
