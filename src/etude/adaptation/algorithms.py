"""MAML and E-MAML as a method, and the choice between the methods."""

from collections.abc import Sequence
from functools import cached_property
from typing import Any, NamedTuple, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from etude.adaptation.config import AdaptConfig
from etude.adaptation.episodes import (
    Episodes,
    advantages,
    linear_values,
    play,
    policy_of,
    standardised,
)
from etude.adaptation.maml import adapt, clipped_loss, exploration_loss
from etude.adaptation.method import AdaptState, Method, Scores, draw_tasks
from etude.adaptation.rl2 import Recurrent
from etude.core.agent import Agent, Heads, NetworkConfig
from etude.core.distributions import entropy
from etude.core.types import Metrics
from etude.envs import Task


class Start(eqx.Module):
    """What MAML learns: the policy that every task starts from, and how far its steps go."""

    agent: Agent
    log_rates: PyTree[Float[Array, ""]]

    @property
    def rates(self) -> PyTree[Float[Array, ""]]:
        return jax.tree.map(jnp.exp, self.log_rates)


class Batch(NamedTuple):
    """Episodes, and what their steps were worth."""

    episodes: Episodes
    advantage: Float[Array, "*tasks T N"]


class Played(NamedTuple):
    """On each task: the episodes that each step of adaptation learned from, and those after."""

    inner: tuple[Batch, ...]
    outer: Batch


class ByGradient(Method):
    """MAML and E-MAML: adaptation is a few steps of policy gradient."""

    @property
    def steps_per_update(self) -> int:
        config = self.config
        return config.batch * config.episodes * self.env.horizon * (config.inner_steps + 1)

    @property
    def updates(self) -> int:
        return max(1, round(self.config.steps / self.steps_per_update))

    @property
    def optimiser_steps(self) -> int:
        return self.config.epochs

    @cached_property
    def optimiser(self) -> optax.GradientTransformation:
        rate: Any = self.config.learning_rate
        if self.config.schedule == "cosine":
            rate = optax.cosine_decay_schedule(rate, self.updates * self.optimiser_steps)
        return optax.adam(rate)

    def init(self, key: PRNGKeyArray) -> AdaptState:
        policy_key, key = jax.random.split(key)
        policy = self.new_policy(policy_key)
        return AdaptState(policy, self.optimiser.init(cast(Any, policy)), key)

    def iterate(
        self, state: AdaptState, pools: tuple[PyTree, PyTree]
    ) -> tuple[AdaptState, Metrics]:
        train, test = pools
        key, task_key, play_key, learn_key, test_key = jax.random.split(state.key, 5)
        tasks = self._tasks(train, task_key)
        played, scores = self.collect(state.policy, tasks, play_key)
        policy, learning, metrics = self.learn(state.policy, state.learning, played, learn_key)
        tested = self.score(policy, test, test_key)
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

    def score(self, policy: Start, tasks: PyTree, key: PRNGKeyArray) -> Scores:
        return self.collect(policy, tasks, key)[1]

    def last_states(self, policy: Start, tasks: PyTree, key: PRNGKeyArray) -> tuple[PyTree, PyTree]:
        played, _ = self.collect(policy, tasks, key)
        return played.inner[0].episodes.last_state, played.outer.episodes.last_state

    def new_policy(self, key: PRNGKeyArray) -> Start:
        config = self.config
        heads, network = Heads({"pi": self.num_actions}), NetworkConfig(config.torso, tanh=True)
        agent = Agent(self.observation, self.num_actions, heads, network, key=key)
        return Start(agent, jax.tree.map(lambda _: jnp.log(config.inner_rate), agent))

    def collect(self, policy: Start, tasks: PyTree, key: PRNGKeyArray) -> tuple[Played, Scores]:
        number = jax.tree.leaves(tasks)[0].shape[0]
        played = jax.vmap(self._collect_one, in_axes=(None, 0, 0))(
            policy, tasks, jax.random.split(key, number)
        )
        first, last = (
            jax.vmap(lambda x: jnp.mean(x.returns))(batch.episodes)
            for batch in (played.inner[0], played.outer)
        )
        return played, Scores(first, last)

    def _collect_one(self, policy: Start, task: PyTree, key: PRNGKeyArray) -> Played:
        *keys, last = jax.random.split(key, self.config.inner_steps + 1)
        inner, agent = self.adapt_to(policy, task, keys)
        return Played(inner, self._play(agent, task, last))

    def adapt_to(
        self, policy: Start, task: PyTree, keys: Sequence[PRNGKeyArray]
    ) -> tuple[tuple[Batch, ...], Agent]:
        """What the steps of adaptation learned from, one for each key, and the policy after."""
        agent, inner = policy.agent, []
        for key in keys:
            inner.append(self._play(agent, task, key))
            agent = self._adapt(agent, policy.rates, inner[-1])
        return tuple(inner), agent

    def _play(self, agent: Agent, task: PyTree, key: PRNGKeyArray) -> Batch:
        config = self.config
        episodes = play(self.env, policy_of(agent), task, key, config.episodes)
        features = agent.torso.flatten(episodes.observation)
        values = linear_values(episodes, features, config.discount)
        return Batch(episodes, advantages(episodes, values, config.discount, config.td_lambda))

    def _adapt(self, agent: Agent, rates: PyTree, batch: Batch) -> Agent:
        """Advantages are scaled, so that one rate suits rewards of any size; steps are averaged."""
        episodes, advantage = batch
        scaled = standardised(advantage, episodes.mask) / episodes.mask.shape[0]
        kind, first_order = self.config.surrogate, self.config.first_order
        return adapt(agent, rates, episodes, scaled, kind, first_order)

    def learn(
        self, policy: Start, learning: PyTree, played: Played, key: PRNGKeyArray
    ) -> tuple[Start, PyTree, Metrics]:
        del key  # nothing is random here

        def step(carry, _):
            policy, state = carry
            gradient, metrics = jax.grad(self._loss, has_aux=True)(policy, played)
            updates, state = self.optimiser.update(gradient, state, cast(Any, policy))
            return (cast(Start, optax.apply_updates(cast(Any, policy), updates)), state), metrics

        (policy, learning), metrics = jax.lax.scan(
            step, (policy, learning), length=self.config.epochs
        )
        metrics = jax.tree.map(jnp.mean, metrics)
        if self.config.learn_rates:
            logs = jnp.stack(jax.tree.leaves(policy.log_rates))
            metrics |= {"inner_rate": jnp.exp(jnp.mean(logs))}
        return policy, learning, metrics

    def _loss(self, policy: Start, played: Played) -> tuple[Float[Array, ""], Metrics]:
        outcome = jax.vmap(lambda x: jnp.mean(x.returns))(played.outer.episodes)
        credit = (outcome - jnp.mean(outcome)) / (jnp.std(outcome) + 1e-6)
        losses = jax.vmap(self._task_loss, in_axes=(None, 0, 0))(policy, played, credit)
        metrics = jax.tree.map(jnp.mean, losses)
        return metrics["loss"], metrics

    def _task_loss(self, policy: Start, played: Played, credit: Float[Array, ""]) -> Metrics:
        config = self.config
        rates = policy.rates if config.learn_rates else jax.lax.stop_gradient(policy.rates)
        agent, exploring = policy.agent, jnp.zeros(())
        for batch in played.inner:
            if config.exploration:
                term = exploration_loss(agent, batch.episodes, credit, config.clip)
                exploring = exploring + term / jnp.sum(batch.episodes.mask)
            agent = self._adapt(agent, rates, batch)
        episodes = played.outer.episodes
        advantage = standardised(played.outer.advantage, episodes.mask)
        outer = clipped_loss(agent, episodes, advantage, config.clip)
        bonus = episodes.mean(entropy(policy_of(agent)(episodes.observation)))
        total = outer + config.exploration * exploring - config.entropy_cost * bonus
        return {"loss": total, "exploration_loss": exploring, "entropy": bonus}


def make_method(tasks: Task, config: AdaptConfig) -> Method:
    return (ByGradient if config.by_gradient else Recurrent)(tasks, config)
