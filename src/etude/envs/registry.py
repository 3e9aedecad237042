"""Environments by name: `catch:rows=8,columns=8`, `gymnax/CartPole-v1`, `gym/CartPole-v1`,
`my_module:MyEnv`."""

import dataclasses
import importlib
import inspect
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from etude import plugins
from etude.core.observations import Symbols
from etude.envs.catalogue import (
    GYMNAX,
    OURS,
    SUITES,
    TRIALS,
    require_installed,
    require_known,
    unknown,
)
from etude.envs.tasks import JaxTask, Playable, Task
from etude.envs.trials import Trials, as_distribution
from etude.errors import UserError, foreign_code, reason
from etude.settings import as_type, replace_fields, split_spec, unknown_setting


def make(spec: str) -> Task:
    """The task that `spec` names; a `UserError` says what is wrong with it."""
    require_known(spec)
    name, settings = split_spec(spec)
    if name.startswith(TRIALS):
        return _make_trials(spec, name, settings)
    return _make(spec, name, settings)


def _make(spec: str, name: str, settings: dict[str, str], others: Iterable[str] = ()) -> Task:
    """The environment of that name; `others` are settings of the spec that are not its own."""
    suite, _, own_name = name.partition("/")
    if suite in SUITES:
        return suite_module(suite).make(spec, own_name, settings)
    factory = _factory(name)
    _require_environment(name, factory)
    if is_gymnasium(factory):
        return _make_gymnasium(spec, name, factory, settings)
    accepted = _accepted_arguments(factory)
    arguments = _arguments(accepted, settings, name)
    with foreign_code(f"Environment {spec!r} cannot be made"):
        env = factory(**arguments)
        params = env.default_params
    if not isinstance(env, Playable):
        raise UserError(f"{name!r} is not an environment: it lacks reset, step or action_space.")
    fields = {k: v for k, v in settings.items() if k not in accepted}
    params = _with_fields(params, fields, split_spec(spec)[0], [*others, *accepted])
    return checked(spec, env, params)


def make_jax(spec: str) -> JaxTask:
    """As `make`, of environments that JAX can trace."""
    return _require_jax(make(spec))


def _require_jax(task: Task) -> JaxTask:
    if not isinstance(task, JaxTask):
        raise UserError(
            f"{task.name} runs outside JAX; this needs an environment that JAX can trace."
        )
    return task


def suite_module(suite: str) -> ModuleType:
    """The module of a suite, if what it needs is installed."""
    require_installed(suite)
    return importlib.import_module(f"etude.envs.suites.{suite}")


def listed(suite: str) -> Iterator[tuple[str, Task | UserError]]:
    """The environments of a suite as they are without settings, or why one cannot be used."""
    for name in suite_module(suite).names():
        spec = f"{suite}/{name}" if name else suite
        yield spec, _made_or_refused(spec)


def _made_or_refused(spec: str) -> Task | UserError:
    try:
        with warnings.catch_warnings(action="ignore"):  # Gymnasium's, of versions that are old
            return make(spec)
    except UserError as error:
        return error


def is_gymnasium(factory: Callable) -> bool:
    """Whether it is a class of Gymnasium's, which then is imported already."""
    gymnasium = sys.modules.get("gymnasium")
    if gymnasium is None or not inspect.isclass(factory):
        return False
    return issubclass(factory, (gymnasium.Env, gymnasium.vector.VectorEnv))


def _make_gymnasium(spec: str, name: str, factory: Callable, settings: dict[str, str]) -> Task:
    """One of the user's own."""
    from etude.envs.suites import gym

    accepted = _accepted_arguments(factory)
    if unknown := [key for key in settings if key not in accepted]:
        raise unknown_setting(f"Environment {name!r}", unknown[0], accepted)
    return gym.task_of(spec, partial(factory, **_arguments(accepted, settings, name)))


def _make_trials(spec: str, name: str, settings: dict[str, str]) -> Task:
    """Trials on the tasks of another environment, to which all settings but those of trials go."""
    accepted = _accepted_arguments(Trials)
    of_tasks = {key: text for key, text in settings.items() if key not in accepted}
    tasks = _require_jax(_make(spec, name.removeprefix(TRIALS), of_tasks, accepted))
    env = as_distribution(tasks.env, name.removeprefix(TRIALS))
    arguments = _arguments(accepted, settings, spec)
    try:
        return checked(spec, Trials(env, tasks.num_actions, **arguments), None)
    except ValueError as error:
        raise UserError(f"Environment {spec!r} cannot be made: {reason(error)}") from None


def _accepted_arguments(factory: Callable) -> dict[str, Any]:
    """The names of the constructor's arguments, with their types."""
    try:
        parameters = inspect.signature(factory).parameters
    except ValueError:  # built into Python
        return {}
    return {
        name: Any if parameter.annotation is parameter.empty else parameter.annotation
        for name, parameter in parameters.items()
        if parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
    }


def _arguments(accepted: dict[str, Any], settings: dict[str, str], owner: str) -> dict[str, Any]:
    """Those of the settings that the constructor accepts, as values of its types."""
    return {
        key: as_type(text, accepted[key], f"{key} of {owner!r}")
        for key, text in settings.items()
        if key in accepted
    }


def _with_fields(params: PyTree, fields: dict[str, str], name: str, accepted: list[str]) -> PyTree:
    """The environment's parameters, changed by those settings that its constructor lacks."""
    fields_of = dataclasses.fields(params) if dataclasses.is_dataclass(params) else ()
    known = [f.name for f in fields_of if not isinstance(getattr(params, f.name), jax.Array)]
    if unknown := [key for key in fields if key not in known]:
        raise unknown_setting(f"Environment {name!r}", unknown[0], [*accepted, *known])
    return replace_fields(params, fields, f"Environment {name!r}") if fields else params


def _factory(name: str) -> type:
    if name.startswith(GYMNAX):
        return _gymnax_factory(name)
    if name not in OURS and not plugins.is_named(name):
        raise unknown(name)
    return plugins.import_class(OURS[name].home if name in OURS else name)


def _require_environment(name: str, factory: type) -> None:
    """Before anything of it is called."""
    needed = ("reset", "step", "action_space")
    if not is_gymnasium(factory) and not all(hasattr(factory, x) for x in needed):
        raise UserError(
            f"{name!r} is not an environment: it lacks {', '.join(needed[:-1])} or {needed[-1]}."
        )


def _gymnax_factory(name: str) -> type:
    import gymnax  # takes seconds, which others need not wait for

    own_name = name.removeprefix(GYMNAX)
    if own_name not in gymnax.registered_envs:
        raise unknown(name)
    try:
        return type(gymnax.make(own_name)[0])
    except Exception as error:
        raise UserError(f"Environment {name!r} cannot be made: {reason(error)}") from None


def checked(spec: str, env: Playable, params: PyTree) -> JaxTask:
    """Looks at the environment's shapes without running it, so that mistakes show at once."""
    limit = getattr(params, "max_steps_in_episode", None)
    if isinstance(limit, int) and limit < 1:
        raise UserError(f"max_steps_in_episode of {spec!r} must be at least 1, not {limit}.")
    key, action = jax.random.key(0), jnp.zeros((), jnp.int32)
    with foreign_code(f"{spec!r} cannot be reset and stepped"):
        space = env.action_space(params)
        observation, state = jax.eval_shape(env.reset, key, params)
        result = jax.eval_shape(env.step, key, state, action, params)
    if not isinstance(getattr(space, "n", None), int):
        raise UserError(f"{spec!r} has {space} actions; only discrete ones are supported so far.")
    if not isinstance(result, tuple) or len(result) != 6:
        raise UserError(
            f"{spec!r} must return observation, state, reward, terminated, truncated, info."
        )
    after, state_after, reward, *ends, info = result
    if jax.tree.structure(state) != jax.tree.structure(state_after):
        raise UserError(f"{spec!r} changes the form of its state in `step`.")
    if any(jnp.shape(x) != () for x in (reward, *ends)):
        raise UserError(f"{spec!r} must give its reward, terminated and truncated as scalars.")
    _require_kinds(spec, observation, reward, *ends)
    if "final_observation" not in info:
        raise UserError(
            f"{spec!r} must give the observation before a reset as info['final_observation']; "
            "gymnax's own `step`, around your `step_env`, does."
        )
    shapes = [[x.shape for x in jax.tree.leaves(tree)] for tree in (observation, after)]
    if shapes[0] != shapes[1]:
        raise UserError(f"{spec!r} observes shapes {shapes[0]} at reset but {shapes[1]} in `step`.")
    if not shapes[0]:
        raise UserError(f"{spec!r} has nothing to observe.")
    return JaxTask(spec, int(space.n), _with_symbols(env, params, observation), env, params)


TRUTH: tuple[Any, ...] = (jnp.bool_, jnp.integer)
REAL: tuple[Any, ...] = (*TRUTH, jnp.floating)


def _require_kinds(spec: str, observation: PyTree, reward: Any, *ends: Any) -> None:
    """A complex number is no reward, and NaN neither ends an episode nor lets it go on."""
    expected = [("observation", x, REAL, "real numbers") for x in jax.tree.leaves(observation)]
    expected.append(("reward", reward, REAL, "a real number"))
    for name, value in zip(("terminated", "truncated"), ends, strict=True):
        expected.append((name, value, TRUTH, "true or false"))
    for name, value, kinds, what in expected:
        found = jnp.result_type(value)
        if not any(jnp.issubdtype(found, kind) for kind in kinds):
            raise UserError(f"{spec!r} must give its {name} as {what}, not {found.name}.")


MOST_SYMBOLS = 64
"""Of whole numbers in a range, so many may be names of things, like places; more are amounts."""


def _with_symbols(env: Playable, params: PyTree, observation: PyTree) -> PyTree:
    """Marks a number that is an index (of a cell, or a row and a column), or a few of them, as
    symbols: agents see one-hot what as an amount would tell them next to nothing."""
    make_space = getattr(env, "observation_space", None)
    is_array = isinstance(observation, jax.ShapeDtypeStruct)
    if make_space is None or not is_array or observation.ndim > 1:
        return observation
    try:
        number = _symbols_in(make_space(params))
    except Exception:  # the user's code may raise anything; that it is there at all is optional
        return observation
    is_index = jnp.issubdtype(observation.dtype, jnp.integer) and number
    return Symbols(observation.shape, observation.dtype, number) if is_index else observation


def _symbols_in(space: Any) -> int:
    """How many there are in a space of gymnax: all of `Discrete`, those of a narrow `Box`; or 0."""
    if isinstance(getattr(space, "n", None), int):
        return space.n
    low, high = jnp.min(space.low), jnp.max(space.high)
    return int(high) + 1 if low >= 0 and high < MOST_SYMBOLS else 0
