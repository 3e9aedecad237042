"""Watching a policy adapt to a task it has never seen."""

import dataclasses
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Array, PRNGKeyArray, PyTree

from etude import envs
from etude.acting.players import Sharpened
from etude.adaptation.algorithms import ByGradient, Start
from etude.adaptation.episodes import play, policy_of
from etude.adaptation.rl2 import Recurrent
from etude.adaptation.run import AdaptRun
from etude.core.agent import Agent
from etude.envs import Task


class Scene(NamedTuple):
    """What was there at a step: shown as an observation, so that it is kept with those."""

    observation: PyTree[Array]
    state: PyTree[Array]


class Watched:
    """An environment that shows its state beside what it lets others observe."""

    def __init__(self, env: Any):
        self.env = env
        self.horizon = env.horizon

    def sample_task(self, key: PRNGKeyArray) -> Any:
        return self.env.sample_task(key)

    def reset_env(self, key: Any, params: Any) -> tuple[Scene, Any]:
        observation, state = self.env.reset_env(key, params)
        return Scene(observation, state), state

    def step_env(self, key: Any, state: Any, action: Any, params: Any) -> tuple:
        observation, state, *rest = self.env.step_env(key, state, action, params)
        return (Scene(observation, state), state, *rest)


class Story(NamedTuple):
    """Episodes on one task, one after another."""

    task: Task
    episodes: list[list[tuple[Any, Any]]]
    """Of each, the states and observations, up to the one that it ended in."""
    returns: list[float]


def adapt_and_watch(
    work: AdaptRun, policy: Any, key: PRNGKeyArray, episodes: int, sharpness: float = 1.0
) -> Story:
    """A fresh task: the episodes of a trial or, where adaptation is by gradient, one episode before
    adapting and the others after. Logits are multiplied by `sharpness`."""
    task_key, key = jax.random.split(key)
    params = jax.jit(work.method.env.sample_task)(task_key)
    watch: Any = _watch_gradient if isinstance(work.method, ByGradient) else _watch_trial
    parts = jax.device_get(watch(work.method, policy, params, key, episodes, sharpness))
    task = dataclasses.replace(envs.make(work.config.tasks), params=params)
    told, returns = [], []
    for scenes, rewards, mask, last in parts:
        steps = int(mask.sum())
        scene = [jax.tree.map(lambda x, t=t: x[t], scenes) for t in range(steps)]
        told.append([(x.state, x.observation) for x in scene] + [(last, scene[-1].observation)])
        returns.append(float(rewards[:steps].sum()))
    return Story(task, told, returns)


def _watch_trial(
    method: Recurrent, policy: Agent, params: Any, key: Any, episodes: int, sharpness: float
) -> list[tuple]:
    config = dataclasses.replace(method.config, episodes=episodes, explore=0)
    method = Recurrent(envs.make(config.tasks), config)
    tasks = jax.tree.map(lambda x: x[None], params)
    player = Sharpened(policy, sharpness)
    play = jax.jit(lambda key: method.play(player, tasks, key, lambda state: state))
    trial = jax.tree.map(lambda x: x[0], jax.device_get(play(key)))
    found = []
    for number in range(episodes):
        steps = np.flatnonzero(trial.episode == number)
        scenes = Scene(trial.observation.observation, trial.state.inner)
        last = jax.tree.map(lambda x, at=steps[-1] + 1: x[at], trial.state.last)
        record = jax.tree.map(lambda x, at=steps: x[at], (scenes, trial.reward))
        found.append((*record, np.ones(len(steps), bool), last))
    return found


def _watch_gradient(
    method: ByGradient, policy: Start, params: Any, key: Any, episodes: int, sharpness: float
) -> list[tuple]:
    env: Any = Watched(method.env)
    adapt_key, *keys = jax.random.split(key, episodes + 1)

    @jax.jit
    def episode(agent: Any, key: Any) -> tuple:
        played = play(
            env, lambda x: sharpness * policy_of(agent)(x.observation), params, key, number=1
        )
        record = (played.observation, played.reward, played.mask)
        steps = jax.tree.map(lambda x: x[:, 0], record)
        return (*steps, jax.tree.map(lambda x: x[0], played.last_state))

    steps = list(jax.random.split(adapt_key, method.config.inner_steps))
    adapted = jax.jit(lambda keys: method.adapt_to(policy, params, keys)[1])(steps)
    agents = [policy.agent] + [adapted] * (episodes - 1)
    return [episode(agent, key) for agent, key in zip(agents, keys, strict=True)]
