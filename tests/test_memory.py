"""Agents with memory: unrolled they know what they knew when they acted, and they use it."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from etude.acting.jax_source import JaxSource
from etude.acting.replay import Replay, join
from etude.api import train
from etude.core.agent import Agent, NetworkConfig
from etude.core.learner import Learner, Passes, mean_loss, update
from etude.core.optim import adam
from etude.envs import make
from etude.rules.actor_critic import ActorCritic
from etude.rules.disco.rule import Disco, DiscoConfig
from etude.rules.ppo import PPO
from tests import parity

CUT = "gymnax/CartPole-v1:max_steps_in_episode=5"
"""Episodes are cut every few steps, and some end."""


def recurrent(cell, rule=None, spec=CUT, gated=False):
    task = make(spec)
    heads = (rule or ActorCritic()).heads(task.num_actions)
    config = NetworkConfig((8, 6), model=5, head=4, memory=cell, memory_size=7, gated=gated)
    agent = Agent(task.observation, task.num_actions, heads, config, key=jax.random.key(1))
    # Larger heads than at the start, so that memory makes a visible difference to the policy.
    return task, eqx.tree_at(lambda a: a.head["pi"].w, agent, replace_fn=lambda w: 50.0 * w)


def played(task, agent, length=23, num_envs=3, before=11):
    """A rollout that starts in the middle of episodes."""
    source, keys = JaxSource(task, num_envs), jax.random.split(jax.random.key(0), 3)
    actors = source.reset(agent, keys[0])
    actors, _, _ = source.collect(agent, actors, keys[1], before)
    return source.collect(agent, actors, keys[2], length)[1]


@pytest.mark.parametrize("cell, gated", [("gru", False), ("lstm", False), ("gru", True)])
def test_unrolling_equals_acting_step_by_step(cell, gated, x64):
    task, agent = recurrent(cell, gated=gated)
    rollout = played(task, agent)
    assert rollout.seam.any() and any((x != 0).any() for x in jax.tree.leaves(rollout.memory))
    np.testing.assert_allclose(
        agent.logits(rollout), rollout.behaviour_logits, rtol=1e-12, atol=1e-12
    )


def test_acting_by_hand_equals_what_the_source_does(x64):
    """Somebody else's loop has `first` to say where episodes begin."""
    task, agent = recurrent("lstm")
    rollout = played(task, agent, before=1)
    memory = jax.tree.map(lambda x: x[0], rollout.memory)
    for t, first in enumerate(rollout.starts):
        observation = rollout.observation[t]
        memory, logits = agent.act(memory, observation, first)
        np.testing.assert_allclose(logits, rollout.behaviour_logits[t], rtol=1e-12, atol=1e-12)


def test_what_was_known_in_an_episode_is_forgotten_in_the_next():
    task, agent = recurrent("gru")
    rollout = played(task, agent)
    other = eqx.tree_at(lambda r: r.memory, rollout, 3.0 + rollout.memory)
    same = jnp.isclose(agent.logits(rollout), agent.logits(other), atol=1e-6).all(axis=-1)
    begun = jnp.cumsum(rollout.starts, axis=0) > 0
    np.testing.assert_array_equal(same, begun)


def test_an_agent_without_memory_carries_none():
    task, agent = recurrent("none")
    assert agent.memory is None and agent.start(3) is None
    assert played(task, agent).memory is None


def test_replay_keeps_the_memory_of_each_trajectory():
    task, agent = recurrent("lstm")
    rollout = played(task, agent, length=4)
    replay = Replay.empty(rollout, 6).add(rollout)
    drawn = replay.sample(jax.random.key(0), 5)
    both = join(rollout, drawn)
    np.testing.assert_allclose(agent.logits(both), both.behaviour_logits, atol=1e-5)


@pytest.mark.parametrize("rule", [ActorCritic(), PPO()], ids=["actor_critic", "ppo"])
def test_gradients_reach_the_memory(rule):
    task, agent = recurrent("gru", rule)
    rollout = played(task, agent)
    targets, _ = rule.targets(agent, rule.init(agent), rollout)
    gradient = jax.grad(lambda a: mean_loss(a, rule, targets, rollout)[0])(agent)
    for x in jax.tree.leaves(gradient.memory):
        assert jnp.isfinite(x).all() and (x != 0).any()


@pytest.mark.parametrize("minibatches, epochs", [(1, 2), (3, 1), (3, 2)])
def test_minibatches_of_recurrent_agents_descend_on_whole_trajectories(minibatches, epochs):
    task, agent = recurrent("gru")
    rollout = played(task, agent)
    rule, optimiser = ActorCritic(), adam(1e-3)
    learner = Learner.create(agent, rule, optimiser)
    passes = Passes(epochs, minibatches)
    after, metrics = passes.update(rule, optimiser, learner, rollout, jax.random.key(0))
    assert after.optimiser_state[0].steps == epochs * minibatches
    assert jnp.isfinite(metrics["loss"])


def test_one_pass_over_the_whole_batch_is_the_plain_update():
    task, agent = recurrent("gru")
    rollout = played(task, agent)
    rule, optimiser = ActorCritic(), adam(1e-3)
    learner = Learner.create(agent, rule, optimiser)
    plain, _ = update(rule, optimiser, learner, rollout)
    passed, _ = Passes().update(rule, optimiser, learner, rollout, jax.random.key(0))
    for a, b in zip(jax.tree.leaves(plain), jax.tree.leaves(passed), strict=True):
        np.testing.assert_array_equal(a, b)


SMALL_DISCO = DiscoConfig(
    prediction=8, hidden=8, rnn=4, embedding=4, channels=(4, 2), pi_channels=4, bins=11
)


def test_disco_updates_a_recurrent_agent():
    rule = Disco(SMALL_DISCO, key=jax.random.key(0))
    task, agent = recurrent("gru", rule)
    learner = Learner.create(agent, rule, adam(1e-2))
    after, metrics = jax.jit(lambda x, r: update(rule, adam(1e-2), x, r))(
        learner, played(task, agent)
    )
    assert jnp.isfinite(metrics["loss"])
    changed = jax.tree.map(lambda a, b: (a != b).any(), learner.agent.memory, after.agent.memory)
    assert all(jax.tree.leaves(changed))


RECALL = "tests.probes:RecallFirst"
"""A sign is shown at first, and asked for after three blank steps: +1 if it is right, −1 if not."""
SETTINGS = dict(batch=32, rollout=8, torso=(32,), memory_size=16, seeds=1, log_every=50)


@pytest.mark.slow
@pytest.mark.parametrize(
    "rule, settings",
    [
        ("ppo", dict(steps=60_000, learning_rate=3e-3, epochs=4, minibatches=2)),
        ("actor_critic:bins=0", dict(steps=120_000, learning_rate=3e-3)),
        ("disco103", dict(steps=10_000, learning_rate=1e-2, model=32, head=32)),
    ],
)
def test_memory_is_what_solves_a_task_that_needs_it(rule, settings):
    if rule == "disco103":
        parity.published_rule()
    shorter = min(settings["steps"], 20_000)
    solved = train(RECALL, rule, memory="gru", **SETTINGS | settings)
    blind = train(RECALL, rule, memory="none", **SETTINGS | settings | dict(steps=shorter))
    assert solved.summary["final_return"]["mean"] > 0.9
    assert abs(blind.summary["final_return"]["mean"]) < 0.4
