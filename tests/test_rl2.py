"""RL² and E-RL² as training on trials: what counts in them, and that what is found out is used."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from etude.adaptation.config import AdaptConfig
from etude.adaptation.method import draw_tasks
from etude.adaptation.rl2 import Recurrent, Trial
from etude.adaptation.run import AdaptRun
from etude.core.config import NetworkConfig
from etude.core.memory import Memory
from etude.core.nn import GRU
from etude.envs import make
from etude.runs.lifecycle import execute

SMALL = dict(batch=8, minibatches=2, hidden=8, epochs=1)


def method_for(tasks, algo="rl2", **settings):
    config = AdaptConfig(algo=algo, tasks=tasks, **SMALL | settings)
    return Recurrent(make(tasks), config)


def agent_of(method):
    agent = jax.jit(method.init)(jax.random.key(0)).policy
    # Heads that start near 0 would hide what the memory holds.
    return eqx.tree_at(lambda a: a.head["pi"].w, agent, replace_fn=lambda w: 100.0 * w)


def played(method, number, see=lambda state: None):
    tasks = draw_tasks(method.env, jax.random.key(1), number)
    agent = agent_of(method)
    return tasks, jax.jit(lambda key: method.play(agent, tasks, key, see))(jax.random.key(2))


def test_returns_by_hand():
    reward = jnp.array([[1.0, 2.0, 4.0, 8.0, 16.0, 32.0]])
    episode = jnp.array([[0, 0, 1, 2, 2, 3]])
    trial = Trial(reward, episode, None, None)
    np.testing.assert_allclose(trial.returns(0, 1), [3.0])
    np.testing.assert_allclose(trial.returns(1, 3), [(4.0 + 24.0) / 2])
    np.testing.assert_array_equal(trial.at_end_of(1), [3])


def test_a_trial_is_played_on_the_task_that_is_given():
    method = method_for("bandit:arms=3,pulls=4", episodes=2)
    tasks, trial = played(method, 5, lambda state: state.task.probabilities)
    np.testing.assert_array_equal(trial.state[:, 0], tasks.probabilities)
    np.testing.assert_array_equal(trial.state[:, 7], tasks.probabilities)
    np.testing.assert_array_equal(trial.episode[0], [0, 0, 0, 0, 1, 1, 1, 1, 2])


def test_each_episode_leaves_its_last_state():
    method = method_for("krazy_world", episodes=2, explore=1)
    tasks = draw_tasks(method.env, jax.random.key(1), 30)
    agent, key = agent_of(method), jax.random.key(2)
    before, after = jax.jit(lambda key: method.last_states(agent, tasks, key))(key)
    trial = jax.jit(lambda key: method.play(agent, tasks, key, lambda state: None))(key)
    scores = jax.jit(lambda key: method.score(agent, tasks, key))(key)
    for number, (last, score) in enumerate(((before, scores.before), (after, scores.after))):
        lengths = np.asarray(trial.episode == number).sum(axis=1)
        np.testing.assert_array_equal(last.time[:, 0], lengths)
        np.testing.assert_allclose(last.goals[:, 0], score)
        dead = np.asarray(last.dead)[:, 0]
        assert dead[lengths < method.env.horizon].all() and not dead.all()


def test_explore_episodes_are_unpaid_only_in_erl2():
    for algo, explore in (("rl2", 0), ("erl2", 2)):
        method = method_for("bandit:arms=2,pulls=5", algo, episodes=3, explore=2)
        assert method.training.task.env.explore == explore
        assert method.judged.env.explore == 0
        assert method.config.explore == 2  # those are not scored in either


def test_rewards_are_those_paid_unless_one_asks_for_their_means():
    assert not method_for("bandit").training.task.env.expected
    assert method_for("bandit", expected=True).training.task.env.expected
    assert not method_for("bandit", expected=True).judged.env.expected


def test_what_was_paid_in_exploring_reaches_the_policy():
    """Two tasks that differ in what arms pay look the same until something is paid."""
    method = method_for("bandit:arms=2,pulls=4", "erl2", episodes=2, explore=1)
    agent, key = agent_of(method), jax.random.key(3)
    tasks = draw_tasks(method.env, key, 1)
    pays = jax.tree.map(jnp.ones_like, tasks)
    never = jax.tree.map(jnp.zeros_like, tasks)
    seen = [method.play(agent, x, key, lambda state: state.seen.reward) for x in (pays, never)]
    np.testing.assert_array_equal(seen[0].state[0, 1:4], 1.0)
    np.testing.assert_array_equal(seen[1].state[0, 1:4], 0.0)


def test_a_gated_memory_multiplies_what_is_read_by_what_is_seen():
    config = NetworkConfig((2,), memory="gru", memory_size=1, gated=True)
    memory = Memory(config, key=jax.random.key(0))
    seen = jnp.array([[2.0, -3.0]])
    state, read = memory.step(memory.start(1), seen)
    state = np.asarray(state)
    inputs = np.concatenate([state, seen], axis=-1)
    expected = (inputs @ memory.read.w) * (np.asarray(seen) @ memory.gate.w)
    np.testing.assert_allclose(read, expected, rtol=1e-5)


def test_a_gru_by_hand():
    gru = GRU(1, 1, key=jax.random.key(0))
    w, b, u = np.array([0.3, -0.5, 0.7]), np.array([0.1, -0.2, 0.05]), np.array([0.8, 0.2, 1.5])
    parts = (jnp.asarray(w)[None], jnp.asarray(b), jnp.asarray(u)[None])
    gru = eqx.tree_at(lambda g: (g.inputs.w, g.inputs.b, g.recurrent), gru, parts)
    x, h = 0.6, -0.4
    update, reset = 1 / (1 + np.exp(-(x * w + b + h * u)[:2]))
    new = np.tanh(x * 0.7 + 0.05 + reset * (h * 1.5))
    ours, _ = gru.advance(gru.input_gates(jnp.array([x])), jnp.array([h]))
    np.testing.assert_allclose(ours[0], (1 - update) * h + update * new, rtol=1e-6)


@pytest.mark.slow
def test_a_policy_learns_to_find_the_door_that_pays():
    """Two doors, one of which always pays: the first try tells which, so 2.5 of 3 can be had in the
    first episode and 3 in every other, and without memory 1.5."""
    settings = dict(batch=64, hidden=16, episodes=2, explore=1, learning_rate=1e-2)
    config = AdaptConfig(algo="rl2", tasks="tests.probes:Doors", steps=40_000, **settings)
    summary = execute(AdaptRun.create(config)).summary
    assert summary["after"]["mean"] > 2.8
    assert 2.2 < summary["before"]["mean"] < 2.7
