"""Watching a policy adapt to a task it has never seen."""

import dataclasses
from typing import Any, NamedTuple

import jax
from jaxtyping import Array, PRNGKeyArray, PyTree

from etude import envs
from etude.adaptation.algorithms import ByGradient, Start
from etude.adaptation.episodes import play, policy_of
from etude.adaptation.recurrent import RecurrentPolicy, Seen
from etude.adaptation.rl2 import play_trials
from etude.adaptation.run import AdaptRun
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


@dataclasses.dataclass(frozen=True)
class Blinkered:
    """A recurrent policy that sees only the observations of scenes."""

    policy: RecurrentPolicy
    sharpness: float

    def start(self, *batch: int) -> PyTree[Array]:
        return self.policy.start(*batch)

    def step(self, state: PyTree[Array], seen: Seen) -> tuple:
        plain = seen._replace(
            observation=seen.observation.observation, before=seen.before.observation
        )
        state, logits, value = self.policy.step(state, plain)
        return state, self.sharpness * logits, value


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
    method: Any, policy: RecurrentPolicy, params: Any, key: Any, episodes: int, sharpness: float
) -> list[tuple]:
    env: Any = Watched(method.env)
    tasks = jax.tree.map(lambda x: x[None], params)
    player = Blinkered(policy, sharpness)
    trials = jax.jit(lambda key: play_trials(env, player, tasks, key, episodes))(key)
    found = []
    for number in range(episodes):
        steps = slice(number * env.horizon, (number + 1) * env.horizon)
        record = (trials.seen.observation, trials.reward, trials.mask)
        parts = jax.tree.map(lambda x, steps=steps: x[steps, 0], record)
        found.append((*parts, jax.tree.map(lambda x, i=number: x[i, 0], trials.last_state)))
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
