"""How trained agents do in episodes of their own, which nothing is learned from."""

import time
from collections.abc import Sequence
from contextlib import closing
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Key, PRNGKeyArray

from etude.acting.collector import Collector
from etude.acting.host_source import HostSource
from etude.acting.jax_source import JaxSource
from etude.core.agent import Agent
from etude.core.players import GREEDY, Player, Sharpened
from etude.core.types import Context
from etude.envs import HostTask, JaxTask, Task
from etude.rules import Rule
from etude.runs.folder import Record
from etude.training.config import TrainPlan
from etude.training.iteration import seed_keys

MOST_STEPS = 30_000
"""Of an episode: one that is not over by then counts with what it has."""
EVALUATED = 2**31 + 5
"""Folded into a seed's key for the episodes that it is evaluated in."""
CHUNK = 64
"""Steps that a simulator outside JAX plays at a time."""
MODES = {"sampled": 1.0, "greedy": GREEDY}
"""How much the logits of the actions are multiplied."""


class Played(NamedTuple):
    """Episodes of several players, as many of each."""

    returns: Float[np.ndarray, "players episodes"]
    unfinished: int
    """Episodes that were not over in time."""


def evaluate(
    task: Task, rule: Rule, agents: Agent, rule_axis: int | None, plan: TrainPlan
) -> Record:
    """What goes into a summary: the mean return of each seed's agent over `plan.eval_episodes`
    episodes, actions sampled and the likeliest ones taken. `rule_axis` is that of the seeds in the
    rule; None if they share one."""
    play = _play_outside if isinstance(task, HostTask) else _play_jax
    began = time.monotonic()
    found = {
        mode: play(task, rule, agents, rule_axis, plan, sharpness)  # type: ignore[arg-type]
        for mode, sharpness in MODES.items()
    }
    return {
        "episodes": plan.eval_episodes,
        **{mode: played.returns.mean(axis=1).tolist() for mode, played in found.items()},
        "unfinished": sum(played.unfinished for played in found.values()),
        "seconds": round(time.monotonic() - began, 3),
    }


def _keys(plan: TrainPlan) -> Key[Array, " seeds"]:
    keys = seed_keys(plan.seed, plan.seeds)
    return jax.vmap(lambda key: jax.random.fold_in(key, EVALUATED))(keys)


# --- In JAX ---------------------------------------------------------------------------------------


def episode_returns(
    task: JaxTask,
    player: Player,
    key: PRNGKeyArray,
    episodes: int,
    context: Context | None = None,
    most_steps: int = MOST_STEPS,
) -> tuple[Float[Array, " episodes"], Bool[Array, " episodes"]]:
    """The return of one episode in each of so many environments, and which of them were over in
    time. One per environment, so that short ones do not count more often than long ones."""
    source, (start_key, key) = JaxSource(task, episodes), jax.random.split(key)

    def goes_on(carry):
        _, _, over, step = carry
        return jnp.any(~over) & (step < most_steps)

    def move(carry):
        actors, returns, over, step = carry
        step_key = jax.random.fold_in(key, step)
        actors, (_, played) = source.step(player, actors, step_key, context)
        return actors, jnp.where(over, returns, played.returns), over | played.ended, step + 1

    none = jnp.zeros(episodes)
    start = (source.reset(player, start_key), none, none.astype(bool), jnp.zeros((), jnp.int32))
    _, returns, over, _ = jax.lax.while_loop(goes_on, move, start)
    return returns, over


def _play_jax(
    task: JaxTask,
    rule: Rule,
    agents: Agent,
    rule_axis: int | None,
    plan: TrainPlan,
    sharpness: float,
) -> Played:
    def one(rule: Rule, agent: Agent, key: PRNGKeyArray, sharpness: Float[Array, ""]):
        player = Sharpened(rule.player(agent), sharpness)
        return episode_returns(task, player, key, plan.eval_episodes, rule.context)

    program = jax.jit(jax.vmap(one, in_axes=(rule_axis, 0, 0, None)))
    returns, over = jax.device_get(program(rule, agents, _keys(plan), jnp.asarray(sharpness)))
    return Played(np.asarray(returns, float), int((~over).sum()))


# --- Outside JAX ----------------------------------------------------------------------------------


def _play_outside(
    task: HostTask,
    rule: Rule,
    agents: Agent,
    rule_axis: int | None,
    plan: TrainPlan,
    sharpness: float,
) -> Played:
    """As many environments as in training, each of which plays equally many episodes."""

    def acting(rule: Rule, agent: Agent):
        return rule.player(agent), None if rule.context is None else rule

    players = jax.vmap(acting, in_axes=(rule_axis, 0))(rule, agents)
    form = jax.tree.structure(players)

    def unpack(leaves: Sequence[Array]):
        *of_players, sharpness = leaves
        player, told_by = jax.tree.unflatten(form, of_players)
        return Sharpened(player, sharpness), None if told_by is None else told_by.context

    envs, seed = min(plan.num_envs, plan.eval_episodes), int(np.uint32(plan.seed ^ EVALUATED) // 2)
    source = HostSource(task, plan.seeds, envs, unpack, workers=plan.workers, seed=seed)
    leaves = [*jax.tree.leaves(players), jnp.full(plan.seeds, sharpness)]
    with closing(Collector(source, plan.step_timeout)) as collector:
        return _play_in_turn(collector, leaves, _keys(plan), -(-plan.eval_episodes // envs))


def _play_in_turn(
    collector: Collector, leaves: Sequence[Array], keys: Key[Array, " seeds"], quota: int
) -> Played:
    """`quota` episodes in each environment."""
    seeds, envs = collector.source.shape
    now = np.zeros((1, seeds, envs))
    returns, count = np.zeros((seeds, envs, quota)), np.zeros((seeds, envs), int)
    for chunk in range(quota * MOST_STEPS // CHUNK):
        chunk_keys = jax.vmap(lambda key, i=chunk: jax.random.fold_in(key, i))(keys)
        _, episodes = collector.play(leaves, chunk_keys, CHUNK)
        ended, now = (np.asarray(x) for x in (episodes.ended, episodes.returns))
        for t, seed, env in np.argwhere(ended):
            if (number := count[seed, env]) < quota:
                returns[seed, env, number] = now[t, seed, env]
                count[seed, env] = number + 1
        if (count == quota).all():
            break
    else:
        for seed, env in np.argwhere(count < quota):  # the one that is being played
            returns[seed, env, count[seed, env]] = now[-1, seed, env]
    return Played(returns.reshape(seeds, -1), int((quota - count).sum()))
