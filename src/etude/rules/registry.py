"""Makes rules from their names and files, and keeps them in files."""

import dataclasses
import hashlib
import inspect
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jaxtyping import PRNGKeyArray, PyTree

from etude import plugins
from etude.core.rule import Rule
from etude.errors import UserError, disk_errors, foreign_code, reason
from etude.rules import names
from etude.rules.disco import weights
from etude.rules.names import KINDS, PUBLISHED, Kind, kind_called
from etude.runs.arrays import read_arrays, write_arrays
from etude.runs.folder import IMPORT_FROM, RunFolder
from etude.runs.reading import is_file
from etude.runs.storage import from_arrays, sha256_of, to_arrays
from etude.settings import (
    Settings,
    as_text,
    join_spec,
    lists_to_tuples,
    replace_fields,
    split_spec,
)

# --- From a kind to a rule ------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class NoSettings:
    """The config of a rule that has none."""


def _class_of(kind: Kind) -> type[Rule]:
    found = plugins.import_class(kind.full_name)
    if not (isinstance(found, type) and issubclass(found, Rule)):
        raise UserError(f"{kind.full_name} is not a rule: it must be a subclass of etude.Rule.")
    return found


def _config_class(kind: Kind) -> type:
    """The class of its settings: the type of the rule's field `config`, if it has one."""
    made = _class_of(kind)
    fields = {field.name: field.type for field in dataclasses.fields(made)}
    config = fields.get("config", NoSettings)
    if isinstance(config, str):  # its module postpones annotations
        config = getattr(sys.modules[made.__module__], config, None)
    if not (isinstance(config, type) and dataclasses.is_dataclass(config)):
        raise UserError(f"The field `config` of {kind.full_name} must be a frozen dataclass.")
    return config


def _configured(kind: Kind, settings: dict[str, str], owner: str) -> Any:
    """The default settings of a kind, with changes."""
    try:
        default = _config_class(kind)()
    except TypeError as error:
        raise UserError(
            f"Every setting of {kind.full_name} needs a default: {reason(error)}."
        ) from None
    return replace_fields(default, settings, owner)


def _create(kind: Kind, config: object, key: PRNGKeyArray) -> Rule:
    """A rule of a kind; its constructor is given `config` and `key` if it takes them."""
    made = _class_of(kind)
    accepted = inspect.signature(made.__init__).parameters
    given = {"config": config, "key": key}
    with foreign_code(f"Rule {kind.full_name} cannot be made"):
        return made(**{name: x for name, x in given.items() if name in accepted})


def _form(kind: Kind, config: object) -> Rule:
    """The shapes of a rule's parameters."""
    return jax.eval_shape(lambda: _create(kind, config, jax.random.key(0)))


def load(spec: str, *, seed: int = 0, observation: PyTree = None, trust: bool = False) -> Rule:
    """The rule a spec names: a kind (`disco` starts from random η), `disco103`, a file, or a class
    of your own, `module:Class`.

    Settings may follow: `actor_critic:discount=0.9,entropy_cost=0.02`. Some rules read
    observations, and have to be told the form of one. A file that names a class which is not
    Etude's is read only if you `trust` it.
    """
    with plugins.trusting(trust):
        return maker(spec, observation)(jax.random.key(seed))


def maker(spec: str, observation: PyTree = None) -> Callable[[PRNGKeyArray], Rule]:
    """What makes the rule a spec names, of which some part may be random."""
    name, settings = split_spec(spec)
    if name not in KINDS and name not in PUBLISHED and not names.is_own(name):
        rule = _load_file(names.find_file(name), settings)
        return lambda key: rule
    kind = kind_called(PUBLISHED.get(name, name))
    config = _configured(kind, settings, f"Rule {name}")
    if name in PUBLISHED:
        return lambda key: weights.load_disco103(config)
    if hasattr(config, "fitted"):
        config = config.fitted(observation)
    return lambda key: _create(kind, config, key)


def class_named(spec: str) -> type[Rule]:
    """The class of the rule that a spec names, which is not made."""
    return _class_of(kind_called(names.kind_named(spec)))


# --- From a rule to its kind ----------------------------------------------------------------------


def kind_of(rule: Rule) -> str:
    """The name of the rule's kind: one of ours, or `module:Class` if that can make the rule again;
    otherwise just the name of its class."""
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
    return _class_of(kind) is type(rule) and jax.tree.structure(like) == jax.tree.structure(rule)


def _config_of(rule: Rule) -> Any:
    return getattr(rule, "config", NoSettings())


def spec_of(rule: Rule) -> str:
    """The spec that makes a rule like this one, apart from its parameters."""
    kind = kind_of(rule)
    if not names.is_kind(kind):
        return kind
    default, config = _configured(kind_called(kind), {}, kind), _config_of(rule)
    given = {f.name: getattr(config, f.name) for f in dataclasses.fields(config)}
    changed = {name: as_text(x) for name, x in given.items() if x != getattr(default, name)}
    return join_spec(kind, changed)


def digest(rule: Rule) -> str:
    """Equal for rules of the same kind, with the same settings and the same parameters."""
    text = f"{spec_of(rule)};{sha256_of(rule)}"
    return hashlib.sha256(text.encode()).hexdigest()


# --- Files ----------------------------------------------------------------------------------------


def require_kind(rule: Rule) -> None:
    """Only rules that can be made again can be kept, in a rule file or a run folder."""
    if not names.is_kind(kind := kind_of(rule)):
        raise UserError(
            f"{kind} is not a kind of rule that can be kept in a file: its class must be in a "
            "module, and be made from `config` and `key` alone; or train it without a folder."
        )


def save(
    path: Path | str, rule: Rule, training: Settings | None = None, run: str | None = None
) -> None:
    """Writes a rule file: its kind, its config, η, settings of training that suit it, as fields of
    `TrainRequest`, and the identity of the run that keeps it, if one does."""
    require_kind(rule)
    kind = kind_of(rule)
    training = names.training_settings(training or {}, "The rule")
    header = {"kind": kind, "config": dataclasses.asdict(_config_of(rule)), "training": training}
    header["run"] = run
    if kind not in KINDS:
        header[IMPORT_FROM] = os.getcwd()
    with disk_errors(f"The rule cannot be written to {path}"):
        write_arrays(Path(path), to_arrays(rule), header)


def save_kept(folder: RunFolder, name: str, rule: Rule, training: Settings | None = None) -> None:
    """Writes a rule file into a run folder, which will know it again."""
    save(folder.path / name, rule, training, folder.identity)


def load_kept(folder: RunFolder, name: str) -> Rule:
    """The rule that a run folder keeps under a name."""
    path = folder.path / name
    if not is_file(path):
        raise UserError(f"The run folder {folder.path} has lost its rule, {name}.")
    _, header = names.read_kind(path)
    folder.require_own(header.get("run"), f"rule {name}")
    return _load_file(path, {})


def _load_file(path: Path, settings: dict[str, str]) -> Rule:
    name, header = names.read_kind(path)
    kind, owner = kind_called(name), f"Rule {path}"
    if name not in KINDS:
        plugins.require_trust([name], str(path), header.get(IMPORT_FROM))
    arrays, _ = read_arrays(path)
    if names.is_published_format(arrays):  # weights as DeepMind publishes them
        return weights.from_published(arrays, _configured(kind, settings, owner), str(path))
    try:
        config = _config_class(kind)(**lists_to_tuples(header["config"]))
        config = replace_fields(config, settings, owner)
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
