"""What the algorithms have in common: tasks in, a policy that adapts out."""

import abc
from typing import Any, cast

import equinox as eqx
import jax
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from etude.adaptation.config import AdaptConfig
from etude.core.agent import Agent
from etude.core.rule import Rule
from etude.core.types import Metrics
from etude.envs import JaxTask
from etude.envs.trials import TaskDistribution


class Scores(eqx.Module):
    """Mean returns of an episode on each of N tasks, before adapting to it and after."""

    before: Float[Array, " N"]
    after: Float[Array, " N"]


class AdaptState(eqx.Module):
    """All that a run must not lose: this tree is the checkpoint."""

    policy: PyTree[Array]
    learning: PyTree[Array]
    """What the method keeps beside the policy, the optimiser's state above all."""
    key: PRNGKeyArray


class Method(abc.ABC):
    """An algorithm, as pure functions: jit them, vmap them over seeds."""

    def __init__(self, tasks: JaxTask, config: AdaptConfig):
        self.task = tasks
        self.env: TaskDistribution = cast(Any, tasks.env)
        self.observation, self.num_actions = tasks.observation, tasks.num_actions
        self.config: Any = config.filled()  # types cannot say that no gap is left

    @property
    @abc.abstractmethod
    def rule(self) -> Rule:
        """What agents adapt by (maml, emaml) or are trained under (rl2, erl2)."""

    @staticmethod
    @abc.abstractmethod
    def agent_of(policy: PyTree) -> Agent:
        """What acts on a new task, before it has adapted."""

    @property
    @abc.abstractmethod
    def updates(self) -> int:
        """Of a whole run."""

    @property
    @abc.abstractmethod
    def steps_per_update(self) -> int:
        """Environment steps of an update."""

    @abc.abstractmethod
    def init(self, key: PRNGKeyArray) -> AdaptState:
        """A policy that has learned nothing, and what learning starts with."""

    @abc.abstractmethod
    def iterate(
        self, state: AdaptState, pools: tuple[PyTree, PyTree]
    ) -> tuple[AdaptState, Metrics]:
        """One update on tasks of the first pool (None for fresh ones), tested on those of the
        second, which nothing is learned from."""

    @abc.abstractmethod
    def score(self, policy: Any, tasks: PyTree, key: PRNGKeyArray) -> Scores:
        """How well the policy does on tasks before adapting to them and after."""

    @abc.abstractmethod
    def last_states(self, policy: Any, tasks: PyTree, key: PRNGKeyArray) -> tuple[PyTree, PyTree]:
        """The states that episodes ended in, before adapting and after (tasks × episodes)."""


def draw_tasks(env: TaskDistribution, key: PRNGKeyArray, number: int) -> PyTree:
    return jax.vmap(env.sample_task)(jax.random.split(key, number))
