"""Settings that learn: what a run uses for everything its user leaves out."""

import dataclasses
import fnmatch
from typing import Any

from etude.errors import UserError
from etude.settings import join_spec, split_spec
from etude.training.config import TrainConfig

BASE: dict[str, Any] = dict(
    steps=500_000,
    batch=32,
    rollout=20,
    replay_share=0.0,
    replay_capacity=1024,
    learning_rate=1e-3,
    schedule="constant",
    warmup=0,
    weight_decay=0.0,
    max_update=1.0,
    torso=(512, 512),
    conv=(),
    model=128,
    head=128,
    optimiser="adam",
    epochs=1,
    minibatches=1,
    memory="none",
    memory_size=128,
    learn_rule=False,
)

ONLINE: dict[str, Any] = dict(
    inner_updates=5,
    outer="actor_critic",
    meta_optimiser="adam",
    meta_learning_rate=1e-3,
    revise=0.0,
)
"""Further settings, of rules that learn while their agents do."""
ONLINE_SETTINGS = (*ONLINE, "outer_rollout")

RULE = "rule"
"""Under this name a preset holds settings of the rule itself."""

# (rule, environment): the patterns that fit are laid over each other in this order.
PRESETS: list[tuple[str, str, dict[str, Any]]] = [
    ("disco*", "*", dict(batch=64, rollout=28, replay_share=0.9375, learning_rate=1e-3)),
    # The setting of the released notebook: 2 environments, 1 new trajectory in 32.
    ("disco*", "catch", dict(steps=57_792, replay_share=0.96875, learning_rate=1e-2)),
    ("actor_critic", "*", dict(batch=32, rollout=32, learning_rate=1e-3, torso=(128, 128))),
    (
        "actor_critic",
        "catch",
        dict(
            steps=150_000,
            batch=16,
            rollout=8,
            learning_rate=3e-3,
            torso=(256,),
            rule=dict(entropy_cost=0.1),
        ),
    ),
    (
        "actor_critic",
        "gymnax/CartPole-v1",
        dict(
            steps=500_000,
            batch=8,
            learning_rate=3e-3,
            schedule="cosine",
            rule=dict(discount=0.995, td_lambda=0.98, entropy_cost=0.003),
        ),
    ),
    (
        "actor_critic",
        "gymnax/*MinAtar",
        dict(
            steps=1_000_000,
            batch=16,
            learning_rate=5e-4,
            torso=(256, 256),
            schedule="cosine",
            rule=dict(entropy_cost=0.03),
        ),
    ),
    ("frodo", "*", dict(rollout=20, learning_rate=1e-3, torso=(128, 128))),
    (
        "frodo",
        "catch",
        dict(
            rollout=5,
            meta_learning_rate=1e-2,
            outer="actor_critic:td_lambda=1,entropy_cost=0.2",
            rule=dict(entropy_cost=0.2),
        ),
    ),
    ("metagrad", "*", dict(rollout=20, learning_rate=1e-3, torso=(128, 128))),
    (
        "ppo",
        "*",
        dict(
            batch=16,
            rollout=128,
            epochs=4,
            minibatches=4,
            learning_rate=1e-3,
            schedule="cosine",
            torso=(128, 128),
        ),
    ),
    ("policy_gradient", "*", dict(batch=64, rollout=64, learning_rate=1e-3, torso=(128, 128))),
    ("policy_gradient", "catch", dict(steps=200_000, batch=32, rollout=28)),
]


def resolve(
    config: TrainConfig,
    rule_kind: str,
    suggested: dict[str, Any] | None = None,
    rule_is_made: bool = False,
) -> TrainConfig:
    """`config` with every gap filled. `rule_kind` decides for rules that come from a file; what
    the file itself has `suggested` goes before the presets. A rule that `is_made` already keeps
    its settings."""
    env, _ = split_spec(config.env)
    rule, given = split_spec(config.rule)
    values, rule_settings = BASE | ONLINE, {}
    for rule_pattern, env_pattern, settings in PRESETS:
        fits = fnmatch.fnmatch(rule, rule_pattern) or fnmatch.fnmatch(rule_kind, rule_pattern)
        if fits and fnmatch.fnmatch(env, env_pattern):
            values |= settings
            rule_settings |= values.pop(RULE, {})
    values |= suggested or {}
    learns = values["learn_rule"] if config.learn_rule is None else config.learn_rule
    if not learns:
        _refuse_online(config)
        values = {k: v for k, v in values.items() if k not in ONLINE}
    gaps = {k: v for k, v in values.items() if getattr(config, k) is None}
    if rule == rule_kind and not rule_is_made:  # a rule from a file brings its own settings
        gaps["rule"] = join_spec(rule, {k: str(v) for k, v in rule_settings.items()} | given)
    full = dataclasses.replace(config, **gaps)
    if learns and full.outer_rollout is None:
        full = dataclasses.replace(full, outer_rollout=full.rollout)
    if full.log_every is None:
        full = dataclasses.replace(full, log_every=max(1, full.updates // 100))
    return full


def _refuse_online(config: TrainConfig) -> None:
    """Settings that would do nothing are mistakes."""
    for name in ONLINE_SETTINGS:
        if getattr(config, name) is not None:
            flag = name.replace("_", "-")
            raise UserError(
                f"--{flag} is for a rule that learns while its agents do: frodo, metagrad, or "
                "another with --learn-rule."
            )
