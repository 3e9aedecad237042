"""MAML and E-MAML as a method: play, adapt, play again, and learn where to start."""

import dataclasses
from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from etude.acting.jax_source import JaxSource
from etude.adaptation.maml import Adaptation, Lesson, Start
from etude.adaptation.method import AdaptState, Method, Scores, draw_tasks
from etude.core.agent import Agent, Heads, NetworkConfig
from etude.core.optim import apply_gradient
from etude.core.types import Metrics, Rollout
from etude.meta.gradient import meta_gradient, record, train
from etude.rules.policy_gradient import PolicyGradient, PolicyGradientConfig


class Played(NamedTuple):
    """On each task: the lessons of the steps of adaptation, stacked, and the one after them."""

    inner: Lesson
    outer: Lesson


class ByGradient(Method):
    """MAML and E-MAML: adaptation is a few steps of policy gradient."""

    @property
    def steps_per_update(self) -> int:
        config = self.config
        return config.batch * config.episodes * self.env.horizon * (config.inner_steps + 1)

    @property
    def updates(self) -> int:
        return max(1, round(self.config.steps / self.steps_per_update))

    @cached_property
    def optimiser(self) -> optax.GradientTransformation:
        rate = self.config.learning_rate
        if self.config.schedule == "constant":
            return optax.adam(rate)
        return optax.adam(optax.cosine_decay_schedule(rate, self.updates * self.config.epochs))

    @property
    def rule(self) -> PolicyGradient:
        config = self.config
        return PolicyGradient(
            PolicyGradientConfig(
                discount=config.discount,
                td_lambda=config.td_lambda,
                baseline="linear",
                surrogate=config.surrogate,
                entropy_cost=0.0,
            )
        )

    @staticmethod
    def agent_of(policy: Start) -> Agent:
        return policy.agent

    @cached_property
    def problem(self) -> Adaptation:
        config = self.config
        return Adaptation(
            self.rule,
            learn_rates=config.learn_rates,
            first_order=config.first_order,
            exploration=config.exploration,
            clip=config.clip,
            entropy_cost=config.entropy_cost,
        )

    def init(self, key: PRNGKeyArray) -> AdaptState:
        policy_key, key = jax.random.split(key)
        policy = self.new_policy(policy_key)
        return AdaptState(policy, self.optimiser.init(policy), key)  # type: ignore[arg-type]

    def new_policy(self, key: PRNGKeyArray) -> Start:
        config = self.config
        heads, network = Heads({"pi": self.num_actions}), NetworkConfig(config.torso, tanh=True)
        agent = Agent(self.observation, self.num_actions, heads, network, key=key)
        return Start(agent, jax.tree.map(lambda _: jnp.log(config.inner_rate), agent))

    def iterate(
        self, state: AdaptState, pools: tuple[PyTree, PyTree]
    ) -> tuple[AdaptState, Metrics]:
        pool, test = pools
        key, task_key, play_key, test_key = jax.random.split(state.key, 4)
        played, scores = self.collect(state.policy, self._tasks(pool, task_key), play_key)
        policy, learning, metrics = self.learn(state.policy, state.learning, played)
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
        again = self.config.adaptations
        different = self.config.batch // again
        if pool is None:
            tasks = draw_tasks(self.env, key, different)
        else:
            number = jax.tree.leaves(pool)[0].shape[0]
            chosen = jax.random.choice(key, number, (different,), replace=different > number)
            tasks = jax.tree.map(lambda x: x[chosen], pool)
        return tasks if again == 1 else jax.tree.map(lambda x: jnp.repeat(x, again, axis=0), tasks)

    # --- Playing ---------------------------------------------------------------------------------

    def collect(self, policy: Start, tasks: PyTree, key: PRNGKeyArray) -> tuple[Played, Scores]:
        number = jax.tree.leaves(tasks)[0].shape[0]
        keys = jax.random.split(key, number)
        played = jax.vmap(self._collect_one, in_axes=(None, 0, 0))(policy, tasks, keys)
        before = jnp.mean(played.inner.returns[:, 0], axis=-1)
        return played, Scores(before, jnp.mean(played.outer.returns, axis=-1))

    def _collect_one(self, policy: Start, task: PyTree, key: PRNGKeyArray) -> Played:
        *keys, last = jax.random.split(key, self.config.inner_steps + 1)
        lessons, agent = self.adapt_to(policy, task, keys)
        return Played(lessons, self.lesson(agent, task, last))

    def adapt_to(
        self, policy: Start, task: PyTree, keys: Sequence[PRNGKeyArray]
    ) -> tuple[Lesson, Agent]:
        """What the steps of adaptation learned from, one for each key, and the policy after."""

        def play(source: None, agent: Agent, key: PRNGKeyArray) -> tuple[None, Lesson, None]:
            return None, self.lesson(agent, task, key), None

        window, _, _ = train(self.problem, policy, policy.agent, None, jnp.stack(keys), play)
        return window.experience, window.final

    def lesson(self, agent: Agent, task: PyTree, key: PRNGKeyArray) -> Lesson:
        rollout, _ = self.episodes(agent, task, key)
        targets, _ = self.rule.targets(agent, self.rule.init(agent), rollout)
        return Lesson(rollout, targets, jnp.zeros(()))

    def episodes(self, agent: Agent, task: PyTree, key: PRNGKeyArray) -> tuple[Rollout, PyTree]:
        """Whole episodes side by side, and the states they ended in. An end, by whatever cause, is
        worth nothing."""
        reset_key, key = jax.random.split(key)
        setting = dataclasses.replace(self.task, params=task)
        source = JaxSource(setting, self.config.episodes, once=True)
        actors = source.reset(agent, reset_key)
        actors, rollout, _ = source.collect(agent, actors, key, self.env.horizon)
        over = jnp.concatenate([rollout.seam[1:], jnp.ones_like(rollout.seam[:1])])
        rollout = eqx.tree_at(lambda r: r.terminal, rollout, over & ~rollout.seam)
        return rollout, actors.env_state

    def score(self, policy: Start, tasks: PyTree, key: PRNGKeyArray) -> Scores:
        return self.collect(policy, tasks, key)[1]

    def last_states(self, policy: Start, tasks: PyTree, key: PRNGKeyArray) -> tuple[PyTree, PyTree]:
        def one(task: PyTree, key: PRNGKeyArray) -> tuple[PyTree, PyTree]:
            *keys, last = jax.random.split(key, self.config.inner_steps + 1)
            _, adapted = self.adapt_to(policy, task, keys)
            before = self.episodes(policy.agent, task, keys[0])
            return before[1], self.episodes(adapted, task, last)[1]

        number = jax.tree.leaves(tasks)[0].shape[0]
        return jax.vmap(one)(tasks, jax.random.split(key, number))

    # --- Learning --------------------------------------------------------------------------------

    def learn(
        self, policy: Start, learning: PyTree, played: Played
    ) -> tuple[Start, PyTree, Metrics]:
        """Several steps on what was played, through the same updates each time."""

        def step(carry: tuple[Start, PyTree], _: None):
            policy, learning = carry
            gradient, metrics = self.gradient(policy, played)
            return apply_gradient(self.optimiser, gradient, learning, policy), metrics

        (policy, learning), metrics = jax.lax.scan(
            step, (policy, learning), length=self.config.epochs
        )
        metrics = jax.tree.map(jnp.mean, metrics)
        if self.config.learn_rates:
            logs = jnp.stack(jax.tree.leaves(policy.log_rates))
            metrics |= {"inner_rate": jnp.exp(jnp.mean(logs))}
        return policy, learning, metrics

    def gradient(self, policy: Start, played: Played) -> tuple[Start, Metrics]:
        """Of the outer loss, through the steps of adaptation: the mean over tasks."""

        def one(lessons: Lesson, last: Lesson) -> tuple[Start, Metrics]:
            window = record(self.problem, policy, policy.agent, lessons)
            found = meta_gradient(self.problem, policy, window, last)
            return found.gradient, found.metrics

        found = jax.vmap(one)(self._with_credit(played), played.outer)
        return jax.tree.map(lambda x: jnp.mean(x, axis=0), found)

    def _with_credit(self, played: Played) -> Lesson:
        """A task's exploration is paid by that task's outcome."""
        outcome: Float[Array, " tasks"] = jnp.mean(played.outer.returns, axis=-1)
        credit = relative(outcome, self.config.adaptations)
        credit = jnp.broadcast_to(credit[:, None], played.inner.credit.shape)
        return eqx.tree_at(lambda x: x.credit, played.inner, credit)


def relative(outcome: Float[Array, " N"], adaptations: int) -> Float[Array, " N"]:
    """Outcomes compared with the mean, or with that of the others on the same task if it was
    adapted to more than once; of unit variance."""
    baseline = jnp.mean(outcome)
    if adaptations > 1:
        by_task = outcome.reshape(-1, adaptations)
        others = jnp.sum(by_task, axis=1, keepdims=True) - by_task
        baseline = (others / (adaptations - 1)).ravel()
    gain = outcome - baseline
    return gain / (jnp.std(gain) + 1e-6)
