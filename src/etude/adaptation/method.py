"""What the algorithms have in common: tasks in, a policy that adapts out."""

import abc
from typing import Any, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from etude.adaptation.config import AdaptConfig
from etude.adaptation.episodes import TaskDistribution
from etude.core.types import Metrics
from etude.envs import Task


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

    def __init__(self, tasks: Task, config: AdaptConfig):
        self.env: TaskDistribution = cast(Any, tasks.env)
        self.observation, self.num_actions = tasks.observation, tasks.num_actions
        self.config: Any = config.filled()  # types cannot say that no gap is left
        rate: Any = config.learning_rate
        if config.schedule == "cosine":
            rate = optax.cosine_decay_schedule(rate, self.updates * self.optimiser_steps)
        self.optimiser = optax.adam(rate)

    @property
    def updates(self) -> int:
        """Of a whole run."""
        return max(1, round(self.config.steps / self.steps_per_update))

    @property
    @abc.abstractmethod
    def steps_per_update(self) -> int:
        """Environment steps of an update."""

    @property
    @abc.abstractmethod
    def optimiser_steps(self) -> int:
        """Of an update."""

    @abc.abstractmethod
    def new_policy(self, key: PRNGKeyArray) -> Any:
        """A policy that has learned nothing."""

    @abc.abstractmethod
    def collect(self, policy: Any, tasks: PyTree, key: PRNGKeyArray) -> tuple[Any, Scores]:
        """What is played on the tasks, and how it went."""

    @abc.abstractmethod
    def learn(
        self, policy: Any, learning: PyTree, played: Any, key: PRNGKeyArray
    ) -> tuple[Any, PyTree, Metrics]:
        """The policy after an update."""

    def init(self, key: PRNGKeyArray) -> AdaptState:
        policy_key, key = jax.random.split(key)
        policy = self.new_policy(policy_key)
        return AdaptState(policy, self.start_learning(policy), key)

    def start_learning(self, policy: Any) -> PyTree[Array]:
        return self.optimiser.init(policy)

    def iterate(
        self, state: AdaptState, pools: tuple[PyTree, PyTree]
    ) -> tuple[AdaptState, Metrics]:
        """One update, tested on the tasks of the second pool, which nothing is learned from."""
        train, test = pools
        key, task_key, play_key, learn_key, test_key = jax.random.split(state.key, 5)
        tasks = self._tasks(train, task_key)
        played, scores = self.collect(state.policy, tasks, play_key)
        policy, learning, metrics = self.learn(state.policy, state.learning, played, learn_key)
        _, tested = self.collect(policy, test, test_key)
        metrics |= {
            "before": jnp.mean(scores.before),
            "after": jnp.mean(scores.after),
            "test_before": jnp.mean(tested.before),
            "test_after": jnp.mean(tested.after),
        }
        return AdaptState(policy, learning, key), metrics

    def _tasks(self, pool: PyTree | None, key: PRNGKeyArray) -> PyTree:
        """The tasks of an update: fresh ones, or some of those that there are."""
        batch = self.config.batch
        if pool is None:
            return draw_tasks(self.env, key, batch)
        number = jax.tree.leaves(pool)[0].shape[0]
        chosen = jax.random.choice(key, number, (batch,), replace=batch > number)
        return jax.tree.map(lambda x: x[chosen], pool)


def draw_tasks(env: TaskDistribution, key: PRNGKeyArray, number: int) -> PyTree:
    return jax.vmap(env.sample_task)(jax.random.split(key, number))
