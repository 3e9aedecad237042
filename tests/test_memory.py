"""Agents with memory: unrolled they know what they knew when they acted, and they use it."""

import functools
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import PyTree

from etude.acting.jax_source import JaxSource
from etude.acting.replay import Replay, join
from etude.api import train
from etude.core.agent import Agent, NetworkConfig
from etude.core.learner import Learner, Passes, mean_loss, update
from etude.core.optim import adam
from etude.core.types import Rollout
from etude.envs import make
from etude.rules.actor_critic import ActorCritic
from etude.rules.disco.rule import Disco, DiscoConfig
from etude.rules.ppo import PPO
from tests import parity

CUT = "gymnax/CartPole-v1:max_steps_in_episode=5"
"""Episodes are cut every few steps, and some end."""

logits_of = jax.jit(Agent.logits)


def recurrent(cell, rule=None, spec=CUT, gated=False):
    task = make(spec)
    heads = (rule or ActorCritic()).heads(task.num_actions)
    config = NetworkConfig((8, 6), model=5, head=4, memory=cell, memory_size=7, gated=gated)
    make_agent = lambda key: Agent(task.observation, task.num_actions, heads, config, key=key)  # noqa: E731
    agent = jax.jit(make_agent)(jax.random.key(1))
    # Larger heads than at the start, so that memory makes a visible difference to the policy.
    return task, eqx.tree_at(lambda a: a.head["pi"].w, agent, replace_fn=lambda w: 50.0 * w)


def played(task, agent, length=23, num_envs=3, before=11):
    """A rollout that starts in the middle of episodes."""
    source = JaxSource(task, num_envs)

    def play(agent):
        keys = jax.random.split(jax.random.key(0), 3)
        actors = source.reset(agent, keys[0])
        actors, _, _ = source.collect(agent, actors, keys[1], before)
        return source.collect(agent, actors, keys[2], length)[1]

    return jax.jit(play)(agent)


@pytest.mark.parametrize("cell, gated", [("gru", False), ("lstm", False), ("gru", True)])
def test_unrolling_equals_acting_step_by_step(cell, gated, x64):
    task, agent = recurrent(cell, gated=gated)
    rollout = played(task, agent)
    assert rollout.seam.any() and any((x != 0).any() for x in jax.tree.leaves(rollout.memory))
    logits = logits_of(agent, rollout)
    np.testing.assert_allclose(logits, rollout.behaviour_logits, rtol=1e-12, atol=1e-12)


def test_acting_by_hand_equals_what_the_source_does(x64):
    """Somebody else's loop has `first` to say where episodes begin."""
    task, agent = recurrent("lstm")
    rollout = played(task, agent, before=1)
    memory = jax.tree.map(lambda x: x[0], rollout.memory)
    act = jax.jit(Agent.act)
    for t, first in enumerate(rollout.starts):
        memory, logits = act(agent, memory, rollout.observation[t], first)
        np.testing.assert_allclose(logits, rollout.behaviour_logits[t], rtol=1e-12, atol=1e-12)


def test_what_was_known_in_an_episode_is_forgotten_in_the_next():
    task, agent = recurrent("gru")
    rollout = played(task, agent)
    other = eqx.tree_at(lambda r: r.memory, rollout, 3.0 + rollout.memory)
    same = np.isclose(logits_of(agent, rollout), logits_of(agent, other), atol=1e-6)
    begun = jnp.cumsum(rollout.starts, axis=0) > 0
    np.testing.assert_array_equal(same.all(axis=-1), begun)


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
    logits = logits_of(agent, both)
    np.testing.assert_allclose(logits, both.behaviour_logits, atol=1e-5)


@pytest.mark.parametrize("rule", [ActorCritic(), PPO()], ids=["actor_critic", "ppo"])
def test_gradients_reach_the_memory(rule):
    task, agent = recurrent("gru", rule)
    rollout = played(task, agent)

    @jax.jit
    def gradient(agent):
        targets, _ = rule.targets(agent, rule.init(agent), rollout)
        return jax.grad(lambda a: mean_loss(a, rule, targets, rollout)[0])(agent)

    for x in jax.tree.leaves(gradient(agent).memory):
        assert jnp.isfinite(x).all() and (x != 0).any()


@pytest.mark.parametrize("minibatches, epochs", [(1, 2), (3, 1), (3, 2)])
def test_minibatches_of_recurrent_agents_descend_on_whole_trajectories(minibatches, epochs):
    task, agent = recurrent("gru")
    rollout = played(task, agent)
    rule, optimiser = ActorCritic(), adam(1e-3)
    learner = Learner.create(agent, rule, optimiser)
    several = jax.jit(functools.partial(Passes(epochs, minibatches).update, rule, optimiser))
    after, metrics = several(learner, rollout, jax.random.key(0))
    assert after.optimiser_state[0].steps == epochs * minibatches
    assert jnp.isfinite(metrics["loss"])


def test_one_pass_over_the_whole_batch_is_the_plain_update():
    task, agent = recurrent("gru")
    rollout = played(task, agent)
    rule, optimiser = ActorCritic(), adam(1e-3)
    learner = Learner.create(agent, rule, optimiser)
    plain, _ = jax.jit(functools.partial(update, rule, optimiser))(learner, rollout)
    once = jax.jit(functools.partial(Passes().update, rule, optimiser))
    passed, _ = once(learner, rollout, jax.random.key(0))
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


# --- Stacks of frames ----------------------------------------------------------------------------


def stacking(number: int, form: PyTree, cell: Literal["none", "gru", "lstm"] = "none") -> Agent:
    config = NetworkConfig((8, 6), memory=cell, memory_size=7, frame_stack=number)
    return Agent(form, 2, ActorCritic().heads(2), config, key=jax.random.key(1))


def seen_at_random(agent, form, length=9, num_envs=3):
    """A rollout of random observations, which starts in the middle of episodes."""
    rng = np.random.default_rng(0)
    draw = lambda shape, dtype: jnp.asarray(rng.integers(0, 256, shape), dtype)  # noqa: E731
    observation = jax.tree.map(lambda x: draw((length + 1, num_envs, *x.shape), x.dtype), form)
    memory = jax.tree.map(lambda x: draw(x.shape, x.dtype)[None], agent.start(num_envs))
    nothing = jnp.zeros((length, num_envs))
    terminal, seam = (jnp.asarray(rng.random((length, num_envs)) < 0.2) for _ in range(2))
    logits, actions = jnp.zeros((length + 1, num_envs, 2)), nothing.astype(int)
    return Rollout(observation, actions, nothing, terminal, seam, logits, ~seam, memory)


@pytest.mark.parametrize("cell", ["none", "gru", "lstm"])
@pytest.mark.parametrize("number", [1, 4])
def test_unrolling_stacks_equals_acting_step_by_step(number, cell, x64):
    form = {"image": jax.ShapeDtypeStruct((3, 4), jnp.uint8), "life": jax.ShapeDtypeStruct((), int)}
    agent = stacking(number, form, cell)
    rollout = seen_at_random(agent, form)
    assert rollout.starts[1:].any()
    memory, act = jax.tree.map(lambda x: x[0], rollout.memory), jax.jit(Agent.act)
    for t, expected in enumerate(logits_of(agent, rollout)):
        observation = jax.tree.map(lambda x, t=t: x[t], rollout.observation)
        memory, logits = act(agent, memory, observation, rollout.starts[t])
        np.testing.assert_allclose(logits, expected, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("cell", ["none", "gru"])
def test_a_source_plays_what_stacks_unroll(cell, x64):
    """Vectors of CartPole, cut by a time limit, with whatever cell there is."""
    task = make(CUT)
    config = NetworkConfig((8, 6), memory=cell, memory_size=7, frame_stack=4)
    heads = ActorCritic().heads(task.num_actions)
    agent = Agent(task.observation, task.num_actions, heads, config, key=jax.random.key(1))
    rollout = played(task, agent)
    assert agent.torso.mlp.layers[0].w.shape == (16, 8) and rollout.seam.any()
    logits = logits_of(agent, rollout)
    np.testing.assert_allclose(logits, rollout.behaviour_logits, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("shape", [(3, 4), (3, 4, 2), (5,), ()])
def test_stacks_against_a_plain_loop(shape):
    """The network sees the last four observations of the episode, the latest last, after zeros."""
    agent = stacking(4, jax.ShapeDtypeStruct(shape, jnp.uint8))
    rollout = seen_at_random(agent, jax.ShapeDtypeStruct(shape, jnp.uint8))
    before, stacks = np.asarray(rollout.memory[0]), []
    past = [list(before[b]) for b in range(3)]
    for t in range(10):
        for b in range(3):
            if rollout.starts[t, b]:
                past[b] = [np.zeros(shape, np.uint8)] * 3
            past[b].append(np.asarray(rollout.observation[t, b]))
            last = past[b][-4:]
            joined = np.concatenate(last, -1) if len(shape) % 2 else np.stack(last, -1)
            stacks.append(joined)
    stacks = np.stack(stacks).reshape(10, 3, *stacks[0].shape)
    given = stacking(1, jax.ShapeDtypeStruct(stacks.shape[2:], jnp.uint8))
    expected = logits_of(
        given, eqx.tree_at(lambda r: (r.observation, r.memory), rollout, (stacks, None))
    )
    np.testing.assert_array_equal(logits_of(agent, rollout), expected)


def test_replay_holds_each_frame_once():
    """1,024 trajectories of 29 Atari observations, seen in stacks of four, in at most 250 MB."""
    form = jax.ShapeDtypeStruct((84, 84), jnp.uint8)

    def replay():
        agent = stacking(4, form)
        rollout = seen_at_random(agent, form, length=28, num_envs=1)
        return Replay.empty(rollout, 1024)

    size = sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(jax.eval_shape(replay)))
    assert (29 + 3) * 1024 * 84 * 84 < size <= 250e6


RECALL = "tests.probes:RecallFirst"
"""A sign is shown at first, and asked for after three blank steps: +1 if it is right, −1 if not."""
SETTINGS = dict(batch=32, rollout=8, torso=(32,), seeds=1, log_every=50)


@pytest.mark.slow
@pytest.mark.parametrize(
    "rule, settings",
    [
        ("ppo", dict(steps=60_000, learning_rate=3e-3, epochs=4, minibatches=2)),
        ("actor_critic:bins=0,scale_values=false", dict(steps=120_000, learning_rate=3e-3)),
        ("disco103", dict(steps=6_000, batch=16, learning_rate=1e-2, model=32, head=32)),
    ],
)
def test_memory_is_what_solves_a_task_that_needs_it(rule, settings):
    if rule == "disco103":
        parity.published_rule()
    shorter = min(settings["steps"], 20_000)
    solved = train(RECALL, rule, memory="gru", memory_size=16, **SETTINGS | settings)
    assert solved.summary["final_return"]["mean"] > 0.9
    if rule != "disco103":  # the others show that nothing is learned blind, and much sooner
        blind = train(RECALL, rule, memory="none", **SETTINGS | settings | dict(steps=shorter))
        assert abs(blind.summary["final_return"]["mean"]) < 0.4
