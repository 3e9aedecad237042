"""Makes rules from their names and files, and keeps them in files."""

import dataclasses
import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jaxtyping import PRNGKeyArray, PyTree

from etude import plugins
from etude.core.rule import Rule
from etude.errors import UserError, reason
from etude.rules.names import (
    KINDS,
    PUBLISHED,
    Kind,
    NoSettings,
    find_file,
    is_own,
    is_published_format,
    kind_called,
    kind_in_file,
    training_settings,
)
from etude.runs.arrays import read_arrays, write_arrays
from etude.runs.folder import IMPORT_FROM
from etude.runs.storage import from_arrays, sha256_of, to_arrays
from etude.settings import as_text, join_spec, lists_to_tuples, replace_fields, split_spec


def kind_of(rule: Rule) -> str:
    """The name of the rule's kind: one of ours, or `module:Class` if that can make the rule again;
    otherwise the mere name of its class."""
    made = type(rule)
    own = Kind(made.__module__, made.__qualname__)
    for name, kind in KINDS.items():
        if kind.full_name == own.full_name:
            return name
    return own.full_name if _can_be_made_again(rule, own) else made.__name__


def _can_be_made_again(rule: Rule, kind: Kind) -> bool:
    """In another process, where only the class's name and the rule's settings are known."""
    if kind.module == "__main__":
        return False
    try:
        like = _form(kind, _config_of(rule))
    except UserError:
        return False
    return kind.rule is type(rule) and jax.tree.structure(like) == jax.tree.structure(rule)


def _form(kind: Kind, config: Any) -> Rule:
    """The shapes of a rule's parameters."""
    return jax.eval_shape(lambda: kind.create(config, jax.random.key(0)))


def _config_of(rule: Rule) -> Any:
    return getattr(rule, "config", NoSettings())


def load(spec: str, *, seed: int = 0, observation: PyTree = None) -> Rule:
    """The rule a spec names: a kind (`disco` starts from random η), `disco103`, a file, or a class
    of your own, `module:Class`.

    Settings may follow: `actor_critic:discount=0.9,entropy_cost=0.02`. Some rules read
    observations, and have to be told the form of one.
    """
    return maker(spec, observation)(jax.random.key(seed))


def maker(spec: str, observation: PyTree = None) -> Callable[[PRNGKeyArray], Rule]:
    """What makes the rule a spec names, of which some part may be random."""
    name, settings = split_spec(spec)
    if name not in KINDS and not is_own(name):
        rule = _load_published(name, settings)
        return lambda key: rule
    kind = kind_called(name)
    config = replace_fields(_default_config(kind), settings, f"Rule {name}")
    if hasattr(config, "fitted"):
        config = config.fitted(observation)
    return lambda key: kind.create(config, key)


def _default_config(kind: Kind) -> Any:
    try:
        return kind.config()
    except TypeError as error:
        raise UserError(
            f"Every setting of {kind.full_name} needs a default: {reason(error)}."
        ) from None


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
    if not _is_known(kind):
        return kind
    default, config = _default_config(kind_called(kind)), _config_of(rule)
    given = {f.name: getattr(config, f.name) for f in dataclasses.fields(config)}
    changed = {name: x for name, x in given.items() if x != getattr(default, name)}
    return join_spec(kind, {name: as_text(value) for name, value in changed.items()})


def _is_known(kind: str) -> bool:
    """Whether rules of this kind can be found again by its name."""
    return kind in KINDS or plugins.is_named(kind)


def digest(rule: Rule) -> str:
    """Equal for rules of the same kind, with the same settings and the same parameters."""
    text = f"{spec_of(rule)};{sha256_of(rule)}"
    return hashlib.sha256(text.encode()).hexdigest()


def save(path: Path | str, rule: Rule, training: dict[str, Any] | None = None) -> None:
    """Writes a rule file: its kind, its config, η, and settings of training that suit it, as
    fields of `TrainRequest`."""
    require_kind(rule)
    kind = kind_of(rule)
    training = training_settings(training or {}, "The rule")
    header = {"kind": kind, "config": dataclasses.asdict(_config_of(rule)), "training": training}
    if kind not in KINDS:
        header[IMPORT_FROM] = os.getcwd()
    try:
        write_arrays(Path(path), to_arrays(rule), header)
    except OSError as error:
        raise UserError(f"The rule cannot be written to {path}: {reason(error)}.") from None


def require_kind(rule: Rule) -> None:
    """Only rules that can be made again can be kept, in a rule file or a run folder."""
    if not _is_known(kind := kind_of(rule)):
        raise UserError(
            f"{kind} is not a kind of rule that can be kept in a file: its class must be in a "
            "module, and be made from `config` and `key` alone; or train it without a folder."
        )


def _load_file(path: Path, settings: dict[str, str]) -> Rule:
    kind = kind_called(kind_in_file(path))
    arrays, header = read_arrays(path)
    if IMPORT_FROM in header:
        plugins.look_in(str(header[IMPORT_FROM]))
    if is_published_format(arrays):  # weights as DeepMind publishes them
        config = replace_fields(kind.config(), settings, f"Rule {path}")
        from etude.rules.disco.weights import from_published

        return from_published(arrays, config, str(path))
    try:
        config = kind.config(**lists_to_tuples(header["config"]))
        config = replace_fields(config, settings, f"Rule {path}")
        like = _form(kind, config)
    except UserError:
        raise
    except Exception:  # a damaged header can fail in any way
        raise UserError(f"{path} holds settings this version does not know.") from None
    rule = from_arrays(like, arrays, str(path))
    for name, x in arrays.items():
        if not np.isfinite(x).all():
            raise UserError(f"{path} is damaged: {name} holds numbers that are not finite.")
    return rule
