"""Jumanji: puzzles, packing and routing in JAX."""

from importlib import import_module
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, PyTree

from etude.envs.base import Action, Environment, Transition
from etude.envs.suites.common import known
from etude.envs.suites.jax_env import plain_key, task_of
from etude.envs.tasks import JaxTask
from etude.errors import UserError, reason

jumanji: Any = import_module("jumanji")  # not this module, to those who read types
DOWNLOADS = "Sokoban-v0"
"""Fetches its levels from elsewhere whenever it is made."""


class Played(eqx.Module):
    state: Any
    truncated: Bool[Array, ""]


class Jumanji(Environment[Played, None, PyTree]):
    """An environment of theirs with a single, discrete action. Which actions are allowed is part of
    what is observed (`action_mask`); what happens if another is taken is up to the environment."""

    def __init__(self, name: str):
        self.env = jumanji.make(name)
        actions = self.env.action_spec
        if not isinstance(actions, jumanji.specs.DiscreteArray):
            raise UserError(
                f"jumanji/{name} takes {type(actions).__name__} actions; only single discrete "
                "ones are supported so far."
            )
        self.num_actions = int(actions.num_values)

    @property
    def default_params(self) -> None:
        return None

    def reset_env(self, key: Array, params: None) -> tuple[PyTree, Played]:
        state, step = self.env.reset(plain_key(key))
        return as_dict(step.observation), Played(state, jnp.zeros((), bool))

    def step_env(
        self, key: Array, state: Played, action: Action, params: None
    ) -> Transition[PyTree, Played]:
        after, step = self.env.step(state.state, jnp.asarray(action, jnp.int32))
        played = Played(after, step.last() & (step.discount > 0.0))
        terminated = step.last() & (step.discount == 0.0)
        return as_dict(step.observation), played, step.reward, terminated, {}

    def is_truncated(self, state: Played, params: None) -> Bool[Array, ""]:
        return state.truncated


def as_dict(observation: Any) -> PyTree:
    """Named tuples as dictionaries."""
    if hasattr(observation, "_asdict"):
        return {name: as_dict(part) for name, part in observation._asdict().items()}
    return observation


def make(spec: str, name: str, settings: dict[str, str]) -> JaxTask:
    known("jumanji", name, jumanji.registered_environments())
    if settings:
        raise UserError(f"Environment 'jumanji/{name}' has no settings.")
    try:
        env = Jumanji(name)
    except UserError:
        raise
    except Exception as error:
        raise UserError(f"Environment {spec!r} cannot be made: {reason(error)}") from error
    return task_of(spec, env)


def names() -> list[str]:
    return sorted(set(jumanji.registered_environments()) - {DOWNLOADS})
