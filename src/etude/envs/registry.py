"""Environments by name: `catch:rows=8,columns=8`, `gymnax/CartPole-v1`, `my_module:MyEnv`."""

import dataclasses
import difflib
import importlib
import inspect
import os
import sys
from collections.abc import Callable
from typing import Any

import gymnax
import jax
import jax.numpy as jnp
from gymnax.environments import spaces
from gymnax.environments.environment import Environment
from jaxtyping import PyTree

from etude import specs
from etude.envs.catch import Catch
from etude.errors import UserError

BUILT_IN: dict[str, Callable[..., Environment]] = {"catch": Catch}


@dataclasses.dataclass(frozen=True)
class Task:
    """An environment with the parameters it is played under, by the name that makes it."""

    name: str
    env: Environment
    params: PyTree
    num_actions: int
    observation: PyTree
    """Shapes and types of one observation."""


def available() -> dict[str, str]:
    """The names of all environments that come along, with a line about each."""
    ours = {name: _first_line(factory) for name, factory in BUILT_IN.items()}
    theirs = {f"gymnax/{name}": "" for name in gymnax.registered_envs}
    return ours | theirs


def make(spec: str) -> Task:
    """The task that `spec` names; a `UserError` says what is wrong with it."""
    name, settings = specs.split(spec)
    factory = _factory(name)
    accepted = _accepted_arguments(factory)
    arguments = {k: specs.parse_value(v) for k, v in settings.items() if k in accepted}
    try:
        env = factory(**arguments)
        params = env.default_params
    except Exception as error:  # the user's code may raise anything
        raise UserError(f"Environment {spec!r} cannot be made: {_reason(error)}") from None
    if not all(hasattr(env, name) for name in ("reset", "step", "action_space")):
        raise UserError(f"{name!r} is not an environment: it lacks reset, step or action_space.")
    fields = {k: v for k, v in settings.items() if k not in accepted}
    if fields and not dataclasses.is_dataclass(params):
        raise UserError(f"{name!r} has no setting {', '.join(fields)}.")
    if fields:
        params = specs.replace_fields(params, fields, f"Environment {name!r}")
    return _checked(spec, env, params)


def _factory(name: str) -> Callable[..., Any]:
    if name in BUILT_IN:
        return BUILT_IN[name]
    if name.startswith("gymnax/") and name.removeprefix("gymnax/") in gymnax.registered_envs:
        try:
            return type(gymnax.make(name.removeprefix("gymnax/"))[0])
        except Exception as error:
            raise UserError(f"Environment {name!r} cannot be made: {_reason(error)}") from None
    if ":" in name:
        return _import(name)
    close = difflib.get_close_matches(name, available(), n=1, cutoff=0.4)
    hint = f"did you mean {close[0]!r}?" if close else "`etude envs` lists them."
    raise UserError(f"There is no environment {name!r}: {hint}")


def _import(name: str) -> Callable[..., Any]:
    module_name, _, attribute = name.partition(":")
    if os.getcwd() not in sys.path:  # an installed script does not look where the user stands
        sys.path.insert(0, os.getcwd())
    try:
        factory = getattr(importlib.import_module(module_name), attribute)
    except ModuleNotFoundError as error:
        raise UserError(f"Cannot import {name!r}: there is no module {error.name!r}.") from None
    except AttributeError:
        raise UserError(f"Module {module_name!r} has no class {attribute!r}.") from None
    except Exception as error:
        raise UserError(f"Module {module_name!r} cannot be imported: {_reason(error)}") from None
    if not callable(factory):
        raise UserError(f"{name!r} is not a class.")
    return factory


def _accepted_arguments(factory: Callable) -> list[str]:
    return [
        name
        for name, parameter in inspect.signature(factory).parameters.items()
        if parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
    ]


def _reason(error: Exception) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__


def _checked(spec: str, env: Environment, params: Any) -> Task:
    """Looks at the environment's shapes without running it, so that mistakes show at once."""
    space = env.action_space(params)
    if not isinstance(space, spaces.Discrete):
        raise UserError(f"{spec!r} has {space} actions; only discrete ones are supported so far.")
    key = jax.random.key(0)
    try:
        observation, state = jax.eval_shape(env.reset, key, params)
        action = jnp.zeros((), jnp.int32)
        after, state_after, reward, *ends, _info = jax.eval_shape(
            env.step, key, state, action, params
        )
    except Exception as error:  # the user's code may raise anything
        raise UserError(f"{spec!r} cannot be reset and stepped: {_reason(error)}") from None
    if (jax.tree.structure(state), reward.shape) != (jax.tree.structure(state_after), ()):
        raise UserError(
            f"{spec!r} changes the form of its state in `step`, or its reward is no scalar."
        )
    if len(ends) != 2:
        raise UserError(
            f"{spec!r} must return observation, state, reward, terminated, truncated, info."
        )
    shapes = [[x.shape for x in jax.tree.leaves(tree)] for tree in (observation, after)]
    if shapes[0] != shapes[1]:
        raise UserError(f"{spec!r} observes shapes {shapes[0]} at reset but {shapes[1]} in `step`.")
    return Task(spec, env, params, int(space.n), observation)


def _first_line(factory: Callable) -> str:
    return (inspect.getdoc(factory) or "").split("\n")[0]
