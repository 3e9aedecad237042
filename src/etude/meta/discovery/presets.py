"""Settings of whole discoveries: what a run uses for everything its user leaves out."""

from typing import NamedTuple

from etude.envs.catalogue import ATARI_GAMES
from etude.errors import UserError, did_you_mean
from etude.meta.discovery.config import DiscoverConfig
from etude.settings import Settings, make_config

# The agents play on and on: the notebook never resets them. It has no periodic check either; ours
# is as long as agents with so small a step size need.
NOTEBOOK: Settings = dict(
    envs="catch:rows=5,columns=5",
    agents=2,
    meta_steps=800,
    size="paper",
    inner_updates=2,
    rollout=16,
    batch=32,
    validation_rollout=32,
    validation_batch=32,
    budgets=(),
    learning_rate=5e-4,
    torso=(512, 512),
    model=256,
    head=128,
    meta_learning_rate=5e-4,
    meta_average="gradients",
    meta_schedule="constant",
    meta_clip=0.0,
    meta_entropy_cost=1e-2,
    value_torso=(256, 256),
    value_discount=0.99,
    value_lambda=0.96,
    value_learning_rate=1e-3,
    collect="ahead",
    check_every=400,
    check_updates=800,
    check_seeds=4,
)
# Trajectories of 29 steps have 28 transitions. For how many meta-steps it went on is not printed.
PAPER: Settings = dict(
    envs=",".join(f"atari/{game}" for game in ATARI_GAMES),
    agents=128,
    size="paper",
    inner_updates=20,
    rollout=28,
    batch=96,
    replay=0.9,
    validation_rollout=28,
    validation_batch=48,
    budgets=(200_000_000, 100_000_000, 50_000_000, 20_000_000),
    learning_rate=3e-4,
    conv=(256, 384, 384, 256),
    torso=(768,),
    frame_stack=4,
    model=1024,
    head=128,
    meta_learning_rate=1e-3,
    meta_average="updates",
    meta_schedule="constant",
    meta_clip=1.0,
    meta_entropy_cost=1e-2,
    value_torso=(256, 256),
    value_discount=0.997,
    value_lambda=0.95,
    value_learning_rate=3e-4,
    collect="fresh",
    record="nested",
)
PRESETS: dict[str, Settings] = {"laptop": {}, "notebook": NOTEBOOK, "paper": PAPER}


class Resolved(NamedTuple):
    """The settings of a run, and where each of them comes from."""

    config: DiscoverConfig
    origins: dict[str, str]


def resolve(asked: Settings, owner: str = "etude discover") -> Resolved:
    """What a run does of which only some settings were asked for."""
    name = str(asked.get("preset", DiscoverConfig.preset))
    if name not in PRESETS:
        known = f"there are: {', '.join(PRESETS)}."
        raise UserError(f"There is no preset {name!r}: {did_you_mean(name, PRESETS, known)}")
    preset = PRESETS[name]
    if asked.get("from_") is not None:  # that rule has a size of its own
        preset = {k: v for k, v in preset.items() if k != "size"}
    config = make_config(DiscoverConfig, owner, **preset | asked)
    origins = dict.fromkeys(vars(config), "default") | dict.fromkeys(preset, f"preset {name}")
    return Resolved(config, origins | dict.fromkeys(asked, "flag"))
