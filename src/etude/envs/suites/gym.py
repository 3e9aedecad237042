"""Gymnasium: any environment that is registered, and classes of the user's own."""

import math
from functools import partial
from typing import Any

import gymnasium
import jax
import numpy as np
from gymnasium import spaces

from etude import plugins
from etude.core.observations import Symbols
from etude.envs.host.gym_envs import GymEnvs, Leaf, MakeEnv, leaves_of, make_registered
from etude.envs.host.making import made
from etude.envs.host.processes import Processes
from etude.envs.host.simulator import Simulator
from etude.envs.tasks import HostTask
from etude.errors import UserError, did_you_mean, foreign_code
from etude.settings import parse_value


def make(spec: str, name: str, settings: dict[str, str]) -> HostTask:
    """The environment with an id, `module:id` if a module must be imported for it. Its settings
    are what `gymnasium.make` takes."""
    arguments = {key: parse_value(text) for key, text in settings.items()}
    module, _, own_name = name.rpartition(":")
    if module:
        plugins.import_module(module)
    if own_name not in gymnasium.registry:
        hint = did_you_mean(own_name, gymnasium.registry, "`etude envs gym` lists them.")
        raise UserError(f"Gymnasium has no environment {own_name!r}: {hint}")
    return task_of(spec, partial(make_registered, name, arguments))


def names() -> list[str]:
    return sorted(gymnasium.registry)


def task_of(spec: str, make_env: MakeEnv) -> HostTask:
    """A task of copies of a Gymnasium environment."""
    with foreign_code(f"Environment {spec!r} cannot be made"):
        env = made(make_env)
        env.close()
    _require_spaces(spec, env)
    actions = env.action_space
    if not isinstance(actions, spaces.Discrete):
        raise UserError(f"{spec!r} has {actions} actions; only discrete ones are supported so far.")
    observation = observation_in(spec, env.observation_space)
    if not sum(math.prod(x.shape) for x in jax.tree.leaves(observation)):
        raise UserError(f"{spec!r} has nothing to observe.")
    return HostTask(spec, int(actions.n), observation, partial(_open, make_env))


def _require_spaces(spec: str, env: object) -> None:
    if isinstance(env, gymnasium.vector.VectorEnv):
        raise UserError(
            f"{spec!r} is a vector environment: name the environment that it has copies of, or "
            "attach it from Python."
        )
    for name in ("action_space", "observation_space"):
        if not isinstance(getattr(env, name, None), spaces.Space):
            raise UserError(f"{spec!r} has no {name}.")


def _open(make_env: MakeEnv, num_envs: int, workers: int) -> Simulator:
    if workers:
        return Processes(make_env, num_envs, workers)
    return GymEnvs(partial(made, make_env), num_envs)


def observation_in(spec: str, space: spaces.Space) -> Any:
    """The form of observations in a space."""
    if isinstance(space, spaces.Dict):
        return {key: observation_in(spec, part) for key, part in space.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(observation_in(spec, part) for part in space)
    if not isinstance(
        space, spaces.Box | spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary
    ):
        raise UserError(
            f"{spec!r} observes a {type(space).__name__}, which no agent here can read."
        )
    (leaf,) = leaves_of(space)
    symbols = _symbols(leaf)
    if symbols:
        return Symbols(leaf.shape, leaf.dtype, symbols)
    return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype)


def _symbols(leaf: Leaf) -> int:
    """How many symbols an array consists of; 0 if its numbers are quantities."""
    if isinstance(leaf.space, spaces.Discrete):
        return int(leaf.space.start + leaf.space.n - leaf.below_zero)
    if isinstance(leaf.space, spaces.MultiDiscrete):
        return int(np.max(leaf.space.start + leaf.space.nvec - leaf.below_zero))
    return 0
