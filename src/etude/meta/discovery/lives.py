"""What differs from life to life: the ranges that are stated, and what is drawn from them."""

import dataclasses
import random
from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray, PyTree

from etude.envs import JaxTask, Task
from etude.envs.registry import checked
from etude.envs.trials import TaskDistribution
from etude.errors import UserError, foreign_code
from etude.meta.discovery.config import DiscoverConfig

LIFE_KEY = 1
"""Folded into a newborn's key for its task and habits, so that all else is drawn as it is where
lives are alike."""


def life_keys(key: PRNGKeyArray) -> tuple[PRNGKeyArray, PRNGKeyArray]:
    """For the task and for the habits."""
    task_key, habit_key = jax.random.split(jax.random.fold_in(key, LIFE_KEY))
    return task_key, habit_key


def family_of(task: Task, config: DiscoverConfig) -> TaskDistribution | None:
    """What draws the tasks of lives in an environment, if each is to have its own."""
    if not config.draw_tasks or not isinstance(task, JaxTask):
        return None
    return task.env if isinstance(task.env, TaskDistribution) else None


def require_drawable(task: Task, config: DiscoverConfig) -> None:
    """The tasks of a user's family must look like the one that the environment has by default."""
    family = family_of(task, config)
    if family is None:
        return
    with foreign_code(f"{task.name} cannot draw a task"):
        params = jax.jit(family.sample_task)(jax.random.key(0))
    assert isinstance(task, JaxTask)
    other = checked(task.name, task.env, params)
    if (str(other.observation), other.num_actions) != (str(task.observation), task.num_actions):
        raise UserError(
            f"A drawn task of {task.name} has other observations or actions than its default "
            "parameters."
        )


def draw_task(family: TaskDistribution, key: PRNGKeyArray) -> PyTree[Array]:
    return jax.tree.map(jnp.asarray, family.sample_task(key))


def shapes_of(tasks: Sequence[Task], config: DiscoverConfig) -> list[tuple[Task, DiscoverConfig]]:
    """The environments of the population, each with the settings of its agents."""
    names = [task.name for task in tasks]
    return [shape_of(task, names, i, config) for i, task in enumerate(tasks)]


def shape_of(
    task: Task, names: Sequence[str], env: int, config: DiscoverConfig
) -> tuple[Task, DiscoverConfig]:
    """The environment of that number among all `names`, with the settings of its agents: what
    changes the shapes of arrays is drawn once, for all of them. What is there several times is
    numbered."""
    if names.count(task.name) > 1:
        number = 1 + names[:env].count(task.name)
        task = dataclasses.replace(task, name=f"{task.name} #{number}")
    return task, _with_shapes(config, random.Random(f"{config.seed} {env}"))


def _with_shapes(config: DiscoverConfig, drawn: random.Random) -> DiscoverConfig:
    lives, shares, changes = config.ranges, (drawn.random(), drawn.random()), {}
    if lives.batch is not None:
        changes["batch"] = _whole(*lives.batch, shares[0])
    if lives.width is not None:
        changes["torso"] = (_whole(*lives.width, shares[1]),) * len(config.torso)
    return dataclasses.replace(config, **changes) if changes else config


def _whole(low: int, high: int, share: float) -> int:
    """A whole number between two, both included, log-uniform."""
    return min(high, int(low * ((high + 1) / low) ** share))
