"""RL² and E-RL²: an agent with memory, trained by PPO on trials, as any agent is on anything.

What it has found out about a task is in its memory, which lasts over the episodes of a trial (RL²,
arXiv 1611.02779). In E-RL² (arXiv 1803.01118) the first episodes of a trial are not paid.
"""

import dataclasses
from functools import cached_property
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from etude import envs
from etude.acting.jax_source import JaxSource
from etude.adaptation.method import AdaptState, Method, Scores
from etude.core.agent import Agent
from etude.core.learner import Learner
from etude.core.players import Player
from etude.core.types import Metrics
from etude.envs import JaxTask
from etude.envs.catalogue import TRIALS
from etude.rules.ppo import PPO, PPOConfig
from etude.settings import join_spec, split_spec
from etude.training.config import TrainPlan, TrainRequest
from etude.training.iteration import Training, TrainState, World
from etude.training.presets import resolve


class Learning(eqx.Module):
    """What training keeps beside the agent."""

    optimiser_state: PyTree[Array]
    rule_state: PyTree[Array]
    world: World


class Trial(eqx.Module):
    """A trial on each of N tasks, of T steps; those after its last episode do not count."""

    reward: Float[Array, "*N T"]
    episode: Int[Array, "*N T"]
    """Which of the trial's episodes each step belongs to."""
    observation: PyTree[Array]
    state: PyTree[Array]
    """What was to be seen of the environment before each step."""

    def returns(self, first: int, last: int) -> Float[Array, "*N"]:
        """The mean return of the episodes from `first` up to, but not including, `last`."""
        counts = (self.episode >= first) & (self.episode < last)
        return jnp.sum(jnp.where(counts, self.reward, 0.0), axis=-1) / (last - first)

    def at_end_of(self, episode: int) -> Int[Array, "*N"]:
        """The step after the last of an episode."""
        return jnp.argmax(self.episode == episode + 1, axis=-1)


class Recurrent(Method):
    """RL² and E-RL²: adaptation is what happens in the agent's memory."""

    @property
    def steps_per_update(self) -> int:
        return self.plan.steps_per_update

    @property
    def updates(self) -> int:
        return self.plan.updates

    @cached_property
    def plan(self) -> TrainPlan:
        config = self.config
        request = TrainRequest(
            env=self._trials(config.episodes, self._unpaid, config.expected),
            rule="ppo",
            steps=config.steps,
            batch=config.batch,
            rollout=config.episodes * self.env.horizon,
            epochs=config.epochs,
            minibatches=config.minibatches,
            learning_rate=config.learning_rate,
            schedule=config.schedule,
            torso=(config.hidden,),
            memory=config.cell,
            memory_size=config.hidden,
            memory_gate=config.associative,
        )
        return resolve(request, "ppo", rule_is_made=True)

    @property
    def rule(self) -> PPO:
        config = self.config
        return PPO(
            PPOConfig(
                discount=config.discount,
                td_lambda=config.td_lambda,
                clip=config.clip,
                entropy_cost=config.entropy_cost,
            )
        )

    @staticmethod
    def agent_of(policy: Agent) -> Agent:
        return policy

    @cached_property
    def training(self) -> Training:
        return Training.create(envs.make_jax(self.plan.env), self.plan)

    @cached_property
    def judged(self) -> JaxTask:
        """Trials in which everything is paid, with an episode more than counts: so the end of the
        last one that does can be seen."""
        return envs.make_jax(self._trials(self.config.episodes + 1, 0, False))

    @property
    def _unpaid(self) -> int:
        return self.config.explore if self.config.algo == "erl2" else 0

    def _trials(self, episodes: int, explore: int, expected: bool) -> str:
        name, settings = split_spec(self.config.tasks)
        own = dict(
            episodes=episodes, explore=explore, pairs=self.config.associative, expected=expected
        )
        own = {key: str(value) for key, value in own.items()}
        return join_spec(f"{TRIALS}{name}", settings | own)

    # --- Learning --------------------------------------------------------------------------------

    def init(self, key: PRNGKeyArray) -> AdaptState:
        return _packed(self.training.init(self.rule, key))

    def iterate(
        self, state: AdaptState, pools: tuple[PyTree, PyTree]
    ) -> tuple[AdaptState, Metrics]:
        """One iteration of training, tested on the tasks of the second pool."""
        train, test = pools
        learning, test_key = state.learning, jax.random.fold_in(state.key, TEST_KEY)
        learner = Learner(state.policy, learning.optimiser_state, learning.rule_state)
        before = TrainState(learner, learning.world, state.key)
        training = dataclasses.replace(
            self.training, task=dataclasses.replace(self.training.task, params=train)
        )
        after, metrics = training.iterate(self.rule, before)
        tested = self.score(after.learner.agent, test, test_key)
        metrics |= {
            "test_before": jnp.mean(tested.before),
            "test_after": jnp.mean(tested.after),
        }
        return _packed(after), metrics

    # --- Judging ---------------------------------------------------------------------------------

    def score(self, policy: Agent, tasks: PyTree, key: PRNGKeyArray) -> Scores:
        """The first episode is before, those after `explore` episodes are after."""
        config = self.config
        trial = self.play(policy, tasks, key, lambda state: None)
        return Scores(trial.returns(0, 1), trial.returns(config.explore, config.episodes))

    def play(self, player: Player, tasks: PyTree, key: PRNGKeyArray, see: Any) -> Trial:
        """A whole trial on each of the tasks."""
        length = self.config.episodes * self.env.horizon + 1

        def one(task: PyTree, key: PRNGKeyArray) -> Trial:
            pool = jax.tree.map(lambda x: x[None], task)
            source = JaxSource(dataclasses.replace(self.judged, params=pool), 1)
            reset_key, key = jax.random.split(key)
            actors = source.reset(player, reset_key)
            _, rollout, _, seen = source.watch(player, actors, key, length, see)
            reward, observation, seen = jax.tree.map(
                lambda x: x[:length, 0], (rollout.reward, rollout.observation, seen)
            )
            episode = jnp.cumsum(observation.ended.astype(jnp.int32))
            return Trial(reward, episode, observation, seen)

        number = jax.tree.leaves(tasks)[0].shape[0]
        return jax.vmap(one)(tasks, jax.random.split(key, number))

    def last_states(self, policy: Agent, tasks: PyTree, key: PRNGKeyArray) -> tuple[PyTree, PyTree]:
        trial = self.play(policy, tasks, key, lambda state: state.last)
        ends = jnp.stack([trial.at_end_of(e) for e in range(self.config.episodes)], axis=1)
        states = jax.vmap(lambda tree, at: jax.tree.map(lambda x: x[at], tree))(trial.state, ends)
        explore = self.config.explore
        before, after = (
            jax.tree.map(lambda x, part=part: x[:, part], states)
            for part in (slice(explore), slice(explore, None))
        )
        return before, after


TEST_KEY = 2
"""Folded into the key of an iteration for its test."""


def _packed(state: TrainState) -> AdaptState:
    learner = state.learner
    learning = Learning(learner.optimiser_state, learner.rule_state, state.world)
    return AdaptState(learner.agent, learning, state.key)
