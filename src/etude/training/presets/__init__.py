"""Settings that learn: what a run uses for everything its user leaves out."""

import dataclasses
from typing import NamedTuple

from etude.errors import UserError
from etude.settings import Settings, as_text, flag, join_spec, split_spec
from etude.text import as_words
from etude.training.config import (
    BASE,
    ONLINE,
    ONLINE_SETTINGS,
    TrainPlan,
    TrainRequest,
    require_memory,
    updates_per_line,
)
from etude.training.presets.files import LAPTOP, RULE, find, laptop


class Resolved(NamedTuple):
    """A plan, and where each of its settings comes from."""

    plan: TrainPlan
    origins: dict[str, str]


def resolve(
    request: TrainRequest,
    rule_kind: str,
    suggested: Settings | None = None,
    rule_is_made: bool = False,
) -> TrainPlan:
    """The plan for a request, every gap of it filled.

    `rule_kind` decides for rules that come from a file; what the file itself has `suggested` goes
    before the presets. A rule that `is_made` already keeps its settings.
    """
    return explain(request, rule_kind, suggested, rule_is_made).plan


def explain(
    request: TrainRequest,
    rule_kind: str,
    suggested: Settings | None = None,
    rule_is_made: bool = False,
    learns: bool = False,
) -> Resolved:
    """As `resolve`, with the origin of every value. `learns`: whether the rule does by default."""
    asked = request.asked
    rule, given = split_spec(asked.get("rule", BASE["rule"]))
    env, _ = split_spec(asked.get("env", BASE["env"]))
    layers = [("default", BASE | ONLINE), *_laptop(rule, rule_kind, env, rule_is_made)]
    layers += [(f"rule {rule}", {"learn_rule": True} if learns else {})]
    layers += [("rule file", suggested or {})]
    if (preset := asked.get("preset", LAPTOP)) != LAPTOP:
        layers += _chosen(preset, [rule, rule_kind], env)
    layers += [("flag", asked)]
    values, origins, rule_settings = {}, {}, {}
    for origin, settings in layers:
        own = settings.get(RULE)
        if isinstance(own, dict):
            rule_settings |= own
            settings = {name: value for name, value in settings.items() if name != RULE}
        values |= settings
        origins |= dict.fromkeys(settings, origin)
    if rule_is_made:
        _require_none_for_made(rule_settings, preset)
    elif added := {k: as_text(v) for k, v in rule_settings.items() if k not in given}:
        values[RULE] = join_spec(rule, added | given)
        origins[RULE] += ", with settings of the preset"
    return _completed(request, values, origins)


def _laptop(rule: str, rule_kind: str, env: str, is_made: bool) -> list[tuple[str, Settings]]:
    """The layers that come along for a rule, with a name for each. Rules of the user's own,
    `module:Class`, have none; a rule from a file, or that is made, brings its own settings."""
    names = [name for name in (rule, rule_kind) if ":" not in name]
    left_out = () if rule == rule_kind and not is_made else (RULE,)
    return [
        (
            f"preset {preset.rule}" + ("" if pattern == "*" else f" on {pattern}"),
            {name: x for name, x in layer.settings.items() if name not in left_out},
        )
        for preset in laptop()
        if preset.suits(*names)
        for layer in preset.layers
        if (pattern := layer.fitting(env)) is not None
    ]


def _chosen(name: str, names: list[str], env: str) -> list[tuple[str, Settings]]:
    """Those of the preset that the user chose, which must be meant for this rule and environment.
    Nothing but the user's own flags goes before it."""
    preset = find(name)
    if not preset.suits(*names):
        raise UserError(f"--preset {name} is for the rule {preset.rule}, not for {names[0]}.")
    found = [x.settings for x in preset.layers if x.fitting(env) is not None]
    if not found:
        envs = ", ".join(dict.fromkeys(x for layer in preset.layers for x in layer.envs))
        raise UserError(f"--preset {name} knows {envs}; of {env} it says nothing.")
    return [(f"preset {name}", settings) for settings in found]


def _require_none_for_made(settings: Settings, preset: str) -> None:
    if settings:
        raise UserError(
            f"--preset {preset} sets {min(settings)} of the rule, but the rule is made already: "
            "train it by its name."
        )


def _completed(request: TrainRequest, values: Settings, origins: dict[str, str]) -> Resolved:
    """With those settings that depend on others. What is asked for must be of use."""
    require_memory(values["memory"], request.asked)
    if not values["learn_rule"]:
        if needless := [name for name in ONLINE_SETTINGS if name in request.asked]:
            raise UserError(
                f"{flag(needless[0])} is for a rule that learns while its agents do: frodo, "
                " metagrad, or another with --learn-rule."
            )
    elif "outer_rollout" not in values:
        values["outer_rollout"], origins["outer_rollout"] = values["rollout"], "as rollout"
    plan = TrainPlan.of({"log_every": 1} | values)
    if plan.warmup > plan.steps:
        raise UserError(
            f"--warmup {plan.warmup} goes beyond the end of the run, {plan.steps} steps."
        )
    if "log_every" not in values:
        plan = dataclasses.replace(plan, log_every=updates_per_line(plan.updates))
        origins["log_every"] = "default, a hundredth of the updates"
    used = [name for name, value in plan.settings().items() if value is not None]
    return Resolved(plan, {name: origins[name] for name in used})


def default_of(name: str) -> str:
    """In words for the help: what a setting is if nobody says."""
    computed = {
        "learn_rule": "as frodo and metagrad do, unless they come from a file",
        "outer_rollout": "as --rollout",
        "log_every": "a hundredth of the updates",
    }
    if name in computed:
        return computed[name]
    text = as_words((BASE | ONLINE)[name])
    varies = name != RULE and any(name in x.settings for y in laptop() for x in y.layers)
    return f"{text}, or that of a preset" if varies else text
