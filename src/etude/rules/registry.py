"""Makes rules from their names and files, and keeps them in files."""

import dataclasses
import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jaxtyping import PRNGKeyArray, PyTree

from etude.core.rule import Rule
from etude.errors import UserError, reason
from etude.rules.names import (
    KINDS,
    PUBLISHED,
    find_file,
    is_published_format,
    kind_in_file,
    training_settings,
)
from etude.runs.arrays import read_arrays, write_arrays
from etude.runs.storage import from_arrays, sha256_of, to_arrays
from etude.settings import as_text, join_spec, replace_fields, split_spec
from etude.training.config import lists_to_tuples


def kind_of(rule: Rule) -> str:
    """The name of the rule's kind; the name of its class if it is of none of ours."""
    kinds = (name for name, kind in KINDS.items() if type(rule) is kind.create)
    return next(kinds, type(rule).__name__)


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
        return _load_file(find_file(name), settings)
    from etude.rules.disco.weights import load_disco103

    return load_disco103(replace_fields(KINDS["disco"].config(), settings, f"Rule {name}"))


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


def save(path: Path | str, rule: Rule, training: dict[str, Any] | None = None) -> None:
    """Writes a rule file: its kind, its config, η, and settings of training that suit it, as
    fields of `TrainRequest`."""
    require_kind(rule)
    kind = kind_of(rule)
    config = dataclasses.asdict(rule.config)  # type: ignore[attr-defined]
    training = training_settings(training or {}, "The rule")
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


def _load_file(path: Path, settings: dict[str, str]) -> Rule:
    kind = KINDS[kind_in_file(path)]
    arrays, header = read_arrays(path)
    if is_published_format(arrays):  # weights as DeepMind publishes them
        config = replace_fields(kind.config(), settings, f"Rule {path}")
        from etude.rules.disco.weights import from_published

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
