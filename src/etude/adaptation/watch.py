"""Watching a policy adapt to a task it has never seen."""

import dataclasses
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from etude import envs
from etude.acting.jax_source import JaxSource
from etude.adaptation.by_gradient import ByGradient
from etude.adaptation.maml import Start
from etude.adaptation.rl2 import Recurrent
from etude.adaptation.run import AdaptRun
from etude.core.agent import Agent
from etude.core.players import Sharpened
from etude.envs import JaxTask


class Scenes(NamedTuple):
    """The steps of an episode, stacked, and what it ended in."""

    state: PyTree[Array]
    observation: PyTree[Array]
    reward: Float[Array, " steps"]
    last_state: PyTree[Array]
    last_observation: PyTree[Array]


class Story(NamedTuple):
    """Episodes on one task, one after another."""

    task: JaxTask
    episodes: list[list[tuple[PyTree, PyTree]]]
    """Of each, the states and observations, up to the one that it ended in."""
    returns: list[float]


def adapt_and_watch(
    work: AdaptRun, policy: PyTree, key: PRNGKeyArray, episodes: int, sharpness: float = 1.0
) -> Story:
    """A fresh task: the episodes of a trial or, where adaptation is by gradient, one episode before
    adapting and the others after. Logits are multiplied by `sharpness`."""
    task_key, key = jax.random.split(key)
    method, params = work.method, jax.jit(work.method.env.sample_task)(task_key)
    if isinstance(method, ByGradient):
        watched = _watch_gradient(method, policy, params, key, episodes, sharpness)
    else:
        assert isinstance(method, Recurrent)
        watched = _watch_trial(method, policy, params, key, episodes, sharpness)
    told = []
    for scenes in watched:
        steps = [_at((scenes.state, scenes.observation), t) for t in range(len(scenes.reward))]
        told.append([*steps, (scenes.last_state, scenes.last_observation)])
    task = dataclasses.replace(method.task, params=params)
    return Story(task, told, [float(scenes.reward.sum()) for scenes in watched])


def _at(tree: PyTree, index: int | np.ndarray | tuple[np.ndarray, int]) -> PyTree:
    return jax.tree.map(lambda x: x[index], tree)


def _watch_trial(
    method: Recurrent,
    policy: Agent,
    params: PyTree,
    key: PRNGKeyArray,
    episodes: int,
    sharpness: float,
) -> list[Scenes]:
    config = dataclasses.replace(method.config, episodes=episodes, explore=0)
    method = Recurrent(envs.make_jax(config.tasks), config)
    tasks = jax.tree.map(lambda x: x[None], params)
    player = Sharpened(policy, sharpness)
    play = jax.jit(lambda key: method.play(player, tasks, key, lambda state: state))
    trial = _at(jax.device_get(play(key)), 0)
    found = []
    for number in range(episodes):
        steps = np.flatnonzero(trial.episode == number)
        state, seen, reward = _at((trial.state.inner, trial.observation, trial.reward), steps)
        last = _at(trial.state.last, int(steps[-1]) + 1)
        # The last observation of an episode is not in a trial: the next episode's first is.
        found.append(Scenes(state, seen.observation, reward, last, _at(seen.observation, -1)))
    return found


def _watch_gradient(
    method: ByGradient,
    policy: Start,
    params: PyTree,
    key: PRNGKeyArray,
    episodes: int,
    sharpness: float,
) -> list[Scenes]:
    adapt_key, *keys = jax.random.split(key, episodes + 1)
    source = JaxSource(dataclasses.replace(method.task, params=params), 1, once=True)

    @jax.jit
    def play(agent: Agent, key: PRNGKeyArray):
        player, (reset_key, key) = Sharpened(agent, sharpness), jax.random.split(key)
        actors = source.reset(player, reset_key)
        return source.watch(player, actors, key, method.env.horizon, lambda state: state)

    def episode(agent: Agent, key: PRNGKeyArray) -> Scenes:
        actors, rollout, _, states = jax.device_get(play(agent, key))
        steps = np.flatnonzero(rollout.mask[:, 0])
        state, seen, reward = _at((states, rollout.observation, rollout.reward), (steps, 0))
        last = _at((actors.env_state, actors.observation), 0)
        return Scenes(state, seen, reward, *last)

    steps = list(jax.random.split(adapt_key, method.config.inner_steps))
    adapted = jax.jit(lambda keys: method.adapt_to(policy, params, keys)[1])(steps)
    agents = [policy.agent] + [adapted] * (episodes - 1)
    return [episode(agent, key) for agent, key in zip(agents, keys, strict=True)]
