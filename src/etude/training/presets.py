"""Settings that learn: what a run uses for everything its user leaves out."""

import dataclasses
import fnmatch
from typing import NamedTuple

from etude.errors import UserError
from etude.settings import Settings, flag, join_spec, split_spec
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

RULE = "rule"
"""Under this name a preset holds settings of the rule itself."""
MINATAR = "gymnax/*MinAtar"

OUTSIDE = dict(batch=32, replay_share=0.75, learning_rate=5e-4)
CLASSIC = dict(conv=(32, 64, 64), conv_kind="classic", torso=(512,))
STACKED = CLASSIC | dict(frame_stack=4)

# By rule and environment: the patterns that fit are laid over each other in this order.
PRESETS: dict[str, dict[str, Settings]] = {
    "disco*": {
        "*": dict(batch=64, rollout=28, replay_share=0.9375, learning_rate=1e-3),
        # One new trajectory in four, where the paper has one in twenty: two cores play little, but
        # learn from it slowly.
        "atari/*": STACKED | dict(steps=3_000_000, **OUTSIDE),
        "procgen/*": CLASSIC | dict(steps=3_000_000, **OUTSIDE),
        "crafter*": CLASSIC | dict(steps=1_000_000, **OUTSIDE),
        "nethack/*": dict(conv=(16, 16), torso=(256,), steps=3_000_000, **OUTSIDE),
        "minigrid/*": dict(torso=(64, 64), steps=500_000, **OUTSIDE),
        # The setting of the released notebook: 2 environments, 1 new trajectory in 32.
        "catch": dict(steps=57_792, replay_share=0.96875, learning_rate=1e-2),
    },
    "actor_critic": {
        "*": dict(batch=32, rollout=32, learning_rate=1e-3, torso=(128, 128)),
        "catch": dict(steps=150_000, batch=16, rollout=8, learning_rate=3e-3, torso=(256,))
        | dict(rule=dict(entropy_cost=0.1)),
        "gymnax/CartPole-v1": dict(steps=500_000, batch=8, learning_rate=3e-3, schedule="cosine")
        | dict(rule=dict(discount=0.995, td_lambda=0.98, entropy_cost=0.003)),
        MINATAR: dict(steps=1_000_000, batch=16, learning_rate=5e-4, schedule="cosine")
        | dict(torso=(256, 256), rule=dict(entropy_cost=0.03)),
    },
    "frodo": {
        "*": dict(rollout=20, learning_rate=1e-3, torso=(128, 128)),
        "catch": dict(rollout=5, meta_learning_rate=1e-2, rule=dict(entropy_cost=0.2))
        | dict(outer="actor_critic:td_lambda=1,entropy_cost=0.2"),
    },
    "frodo_q": {
        "*": dict(rollout=20, learning_rate=1e-3, torso=(128, 128), outer="q_learning"),
        "catch": dict(rollout=5, learning_rate=3e-3, meta_learning_rate=1e-2, outer="q_learning")
        | dict(torso=(256,)),
    },
    "q_learning": {
        "*": dict(batch=32, rollout=16, learning_rate=1e-3, torso=(128, 128)),
        "catch": dict(steps=300_000, batch=16, rollout=8, learning_rate=1e-3, torso=(256,)),
    },
    "sarsa": {
        "*": dict(batch=32, rollout=16, learning_rate=1e-3, torso=(128, 128)),
        "catch": dict(steps=300_000, batch=16, rollout=8, learning_rate=1e-3, torso=(256,)),
    },
    "metagrad": {"*": dict(rollout=20, learning_rate=1e-3, torso=(128, 128))},
    "ppo": {
        "*": dict(batch=16, rollout=128, epochs=4, minibatches=4, learning_rate=1e-3)
        | dict(schedule="cosine", torso=(128, 128)),
        "catch": dict(steps=150_000, rollout=16, learning_rate=3e-3),
        MINATAR: dict(steps=1_000_000, batch=64, minibatches=8, learning_rate=3e-3)
        | dict(torso=(128, 128, 64)),
        "atari/*": STACKED
        | dict(steps=3_000_000, batch=8, learning_rate=5e-4, rule=dict(clip=0.1)),
        "procgen/*": CLASSIC | dict(steps=3_000_000, batch=32, learning_rate=5e-4),
        "crafter*": CLASSIC | dict(steps=1_000_000, learning_rate=5e-4, workers=2),
        "nethack/*": dict(steps=3_000_000, conv=(16, 16), torso=(256,), learning_rate=5e-4),
        "minigrid/*": dict(steps=500_000, batch=32, rollout=64, torso=(64, 64)),
    },
    "policy_gradient": {
        "*": dict(batch=64, rollout=64, learning_rate=1e-3, torso=(128, 128)),
        "catch": dict(steps=200_000, batch=32, rollout=28),
    },
}


PAPER_NETWORK = dict(conv=(256, 384, 384, 256), conv_kind="residual", torso=(768,), model=1024)
# Of DiscoRL, as far as it says; the network is that of Atari throughout.
PAPER: dict[str, Settings] = {
    suite: dict(rollout=28, learning_rate=3e-4, schedule="cosine") | PAPER_NETWORK | settings
    for suite, settings in {
        "atari/*": dict(steps=50_000_000, warmup=5_000_000, weight_decay=0.1, frame_stack=4)
        | dict(batch=96, replay_share=0.95),
        "crafter*": dict(steps=20_000_000, schedule="constant", weight_decay=0.3, frame_stack=32)
        | dict(batch=24, replay_share=0.99),
        "nethack/*": dict(steps=50_000_000, learning_rate=1e-4, warmup=10_000_000)
        | dict(weight_decay=0.03, frame_stack=4, batch=96, replay_share=0.95, max_update=0.3),
        "procgen/*": dict(steps=50_000_000, warmup=1_000_000, weight_decay=0.1, frame_stack=4)
        | dict(batch=192, replay_share=0.9),
    }.items()
}


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
    layers = [("default", BASE | ONLINE), *_presets(rule, rule_kind, env)]
    if asked.get("preset") == "paper":
        layers.append(("preset paper", _paper(env)))
    layers += [(f"rule {rule}", {"learn_rule": True} if learns else {})]
    layers += [("rule file", suggested or {}), ("flag", asked)]
    values, origins, rule_settings = {}, {}, {}
    for origin, settings in layers:
        own = settings.get(RULE)
        if isinstance(own, dict):
            rule_settings |= own
            settings = {name: value for name, value in settings.items() if name != RULE}
        values |= settings
        origins |= dict.fromkeys(settings, origin)
    if rule == rule_kind and not rule_is_made:  # a rule from a file brings its own settings
        values[RULE] = join_spec(rule, {k: str(v) for k, v in rule_settings.items()} | given)
        origins[RULE] += ", with settings of the preset" if rule_settings.keys() - given else ""
    return _completed(request, values, origins)


def _presets(rule: str, rule_kind: str, env: str) -> list[tuple[str, Settings]]:
    """Those that fit, with a name for each. Rules of the user's own, `module:Class`, have none."""
    names = [name for name in (rule, rule_kind) if ":" not in name]
    return [
        (f"preset {rule_pattern}" + ("" if env_pattern == "*" else f" on {env_pattern}"), settings)
        for rule_pattern, by_env in PRESETS.items()
        if any(fnmatch.fnmatch(name, rule_pattern) for name in names)
        for env_pattern, settings in by_env.items()
        if fnmatch.fnmatch(env, env_pattern)
    ]


def _paper(env: str) -> Settings:
    found = [settings for pattern, settings in PAPER.items() if fnmatch.fnmatch(env, pattern)]
    if not found:
        suites = ", ".join(PAPER)
        raise UserError(f"--preset paper knows {suites}; of {env} the paper says nothing.")
    return found[0]


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
    varies = name != RULE and any(name in x for by_env in PRESETS.values() for x in by_env.values())
    return f"{text}, or that of a preset" if varies else text
