"""Trials: several episodes on one task, as one episode of an environment (RL², arXiv 1611.02779).

An agent with memory that is trained on trials, by any rule, learns to find out about its task. In
E-RL² (arXiv 1803.01118) the first episodes are there to explore: their rewards are seen as ever,
but not paid.
"""

from typing import Protocol, cast, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from etude.core.trees import choose
from etude.core.types import EXPECTED_REWARD
from etude.envs.base import Action, Environment, EnvState, TaskEnvironment, Transition
from etude.errors import UserError


@runtime_checkable
class TaskDistribution(Protocol):
    """An environment whose parameters are the task, and which can draw such tasks."""

    @property
    def horizon(self) -> int:
        """The maximum number of steps per episode."""
        ...

    def sample_task(self, key: PRNGKeyArray) -> PyTree: ...

    def reset_env(self, key: Array, params: PyTree) -> tuple[PyTree, PyTree]: ...

    def step_env(
        self, key: Array, state: PyTree, action: Action, params: PyTree
    ) -> Transition[PyTree, PyTree]: ...


def as_distribution(env: object, name: str) -> TaskDistribution:
    needed = ("sample_task", "horizon", "reset_env", "step_env")
    if lacks := [f"`{x}`" for x in needed if not hasattr(env, x)]:
        raise UserError(
            f"{name} is one task, not a distribution of tasks: it lacks {' and '.join(lacks)}."
        )
    return cast(TaskDistribution, env)


class Seen(eqx.Module):
    """What is observed in a trial: beside the task's own observation, what the last action led to,
    across the borders of episodes too."""

    observation: PyTree[Array]
    before: PyTree[Array]
    """The observation in which the last action was taken; zeros at the start of a trial."""
    action: Float[Array, " A"]
    """The last action, one-hot; zeros at the start of a trial."""
    reward: Float[Array, ""]
    """What it brought, paid or not."""
    ended: Float[Array, ""]
    """1 if it ended an episode, so that this is the first observation of another."""
    pairs: Float[Array, " pairs"] | None = None
    """What was done where, and what it brought: products of `before`, `action` and `reward`."""


class TrialState(EnvState):
    task: PyTree[Array]
    inner: PyTree[Array]
    """The state of the task's environment."""
    seen: Seen
    episode: Int[Array, ""]
    """Which of the trial's episodes this is, from 0."""
    episode_time: Int[Array, ""]
    last: PyTree[Array]
    """The state that the last episode ended in; at first, that of the start."""


class Trials(Environment[TrialState, PyTree, Seen]):
    """Trials of `episodes` episodes on a fresh task each, the first `explore` of them unpaid.

    `pairs` adds products of what was seen, done and paid to the observation, which suits tasks of
    few symbols. `expected` pays the mean of each reward, which the task must tell, since luck
    teaches nothing; what is seen is always what was drawn.
    """

    def __init__(
        self,
        env: TaskDistribution,
        num_actions: int,
        /,
        episodes: int = 5,
        explore: int = 0,
        pairs: bool = False,
        expected: bool = False,
    ):
        if episodes < 1 or explore < 0:
            raise ValueError(
                "A trial has 1 or more episodes, and 0 or more to explore, "
                f"not {episodes} and {explore}."
            )
        if explore >= episodes:
            raise ValueError(
                f"A trial of {episodes} episodes cannot have {explore} to explore: nothing would "
                "be paid."
            )
        self.env, self.num_actions = env, num_actions
        self.episodes, self.explore = episodes, explore
        self.pairs, self.expected = pairs, expected

    @property
    def default_params(self) -> PyTree:
        return None  # each trial draws a fresh task

    def starts_are_costly(self, params: PyTree) -> bool:
        return params is None  # a task has to be drawn

    def reset_env(self, key: Array, params: PyTree) -> tuple[Seen, TrialState]:
        """A trial on a fresh task or, if the parameters are tasks along a first axis, on one of
        them."""
        task_key, key = jax.random.split(key)
        if params is None:
            task = self.env.sample_task(task_key)
        else:
            number = jax.tree.leaves(params)[0].shape[0]
            chosen = jax.random.randint(task_key, (), 0, number)
            task = jax.tree.map(lambda x: x[chosen], params)
        observation, inner = self.env.reset_env(key, task)
        nothing = jax.tree.map(jnp.zeros_like, observation)
        zero = jnp.zeros(())
        seen = self._see(observation, nothing, jnp.zeros(self.num_actions), zero, zero)
        count = jnp.zeros((), jnp.int32)
        return seen, TrialState(count, task, inner, seen, count, count, inner)

    def step_env(
        self, key: Array, state: TrialState, action: Action, params: PyTree
    ) -> Transition[Seen, TrialState]:
        step_key, reset_key = jax.random.split(key)
        observation, inner, reward, ended, info = self.env.step_env(
            step_key, state.inner, action, state.task
        )
        ended = ended | (state.episode_time + 1 >= self.env.horizon)
        if isinstance(self.env, TaskEnvironment) and self.env.own_limits:
            ended = ended | self.env.is_truncated(inner, state.task)
        if self.expected and EXPECTED_REWARD not in info:
            raise ValueError(
                "expected=true is for tasks that tell the mean of each reward in "
                f"info[{EXPECTED_REWARD!r}]."
            )
        paid = info[EXPECTED_REWARD] if self.expected else reward
        paid = jnp.where(state.episode >= self.explore, paid, 0.0)
        first, fresh = self.env.reset_env(reset_key, state.task)
        seen = self._see(
            choose(ended, first, observation),
            state.seen.observation,
            jax.nn.one_hot(action, self.num_actions),
            jnp.asarray(reward, float),
            ended.astype(float),
        )
        after = TrialState(
            task=state.task,
            inner=choose(ended, fresh, inner),
            seen=seen,
            episode=state.episode + ended,
            episode_time=jnp.where(ended, 0, state.episode_time + 1),
            last=choose(ended, inner, state.last),
            time=state.time + 1,
        )
        return seen, after, paid, after.episode >= self.episodes, {}

    def _see(
        self, observation: PyTree, before: PyTree, action: Array, reward: Array, ended: Array
    ) -> Seen:
        pairs = None
        if self.pairs:
            flat = jnp.concatenate([jnp.ravel(x).astype(float) for x in jax.tree.leaves(before)])
            done_there = jnp.outer(flat, action).ravel()
            pairs = jnp.concatenate([done_there, reward * done_there])
        return Seen(observation, before, action, reward, ended, pairs)

    def render(self, state: TrialState, params: PyTree) -> np.ndarray | None:
        render = getattr(self.env, "render", None)
        return None if render is None else render(state.inner, state.task)
