"""Update rules by name, and rule files."""

import dataclasses
import difflib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax

from etude import specs
from etude.errors import UserError
from etude.rules.actor_critic import ActorCritic, ActorCriticConfig
from etude.rules.base import Rule
from etude.rules.disco import Disco, DiscoConfig
from etude.rules.policy_gradient import PolicyGradient, PolicyGradientConfig
from etude.rules.weights import load_disco103
from etude.storage import from_arrays, read_arrays, to_arrays, write_arrays

__all__ = ["KINDS", "PUBLISHED", "Kind", "Rule", "load", "save"]

RULE_FILE = "rule.npz"


@dataclasses.dataclass(frozen=True)
class Kind:
    """A family of rules: how its members are made from a config."""

    create: Callable[..., Any]
    config: type

    @property
    def about(self) -> str:
        return (self.create.__doc__ or "").split("\n")[0]


KINDS = {
    "disco": Kind(Disco, DiscoConfig),
    "actor_critic": Kind(ActorCritic, ActorCriticConfig),
    "policy_gradient": Kind(PolicyGradient, PolicyGradientConfig),
}
PUBLISHED = {"disco103": ("disco", load_disco103)}


def kind_of(rule: Rule) -> str:
    return next(name for name, kind in KINDS.items() if isinstance(rule, kind.create))  # type: ignore[arg-type]


def load(spec: str, *, seed: int = 0) -> Rule:
    """The rule a spec names: a kind (`disco` starts from random η), `disco103`, or a file.

    Settings may follow: `actor_critic:discount=0.9,entropy_cost=0.02`.
    """
    name, settings = specs.split(spec)
    if name in PUBLISHED:
        kind, load_published = PUBLISHED[name]
        return load_published(specs.replace_fields(KINDS[kind].config(), settings, f"Rule {name}"))
    if name in KINDS:
        config = specs.replace_fields(KINDS[name].config(), settings, f"Rule {name}")
        return KINDS[name].create(config, key=jax.random.key(seed))
    if Path(name).exists():
        return _load_file(Path(name), settings)
    names = [*PUBLISHED, *KINDS]
    close = difflib.get_close_matches(name, names, n=1)
    hint = f"did you mean {close[0]!r}?" if close else f"there are {', '.join(names)}, and files."
    raise UserError(f"There is no rule {name!r} and no file of that name: {hint}")


def save(path: Path, rule: Rule) -> None:
    """Writes a rule file: its kind, its config and η."""
    header = {"kind": kind_of(rule), "config": dataclasses.asdict(rule.config)}  # type: ignore[attr-defined]
    write_arrays(path, to_arrays(rule), header)


def _load_file(path: Path, settings: dict[str, str]) -> Rule:
    path = path / RULE_FILE if path.is_dir() else path
    arrays, header = read_arrays(path)
    kind = KINDS.get(header.get("kind", ""))
    if kind is None:
        raise UserError(f"{path} is not a rule file: it names no known kind of rule.")
    fields = {
        key: tuple(value) if isinstance(value, list) else value
        for key, value in header.get("config", {}).items()
    }
    try:
        config = kind.config(**fields)
    except TypeError:
        raise UserError(f"{path} holds settings this version does not know.") from None
    config = specs.replace_fields(config, settings, f"Rule {path}")
    like = jax.eval_shape(lambda: kind.create(config, key=jax.random.key(0)))
    return from_arrays(like, arrays, str(path))
