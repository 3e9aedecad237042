"""Agents as one vector: the same agent, whatever holds it."""

import jax
import jax.numpy as jnp
import numpy as np

from etude.core.agent import Agent, Heads, NetworkConfig
from etude.core.learner import Learner
from etude.core.optim import adam
from etude.core.packing import PackedAgent, pack, unpack
from etude.rules.actor_critic import ActorCritic
from tests.conftest import random_like

HEADS = Heads(state={"pi": 3, "y": 5}, action={"z": 5})


def make_agent() -> Agent:
    network = NetworkConfig(torso=(6, 5), model=4, head=4)
    return random_like(lambda: Agent(jnp.zeros(4), 3, HEADS, network, key=jax.random.key(0)))


def assert_equal(actual, expected) -> None:
    assert jax.tree.structure(actual) == jax.tree.structure(expected)
    jax.tree.map(np.testing.assert_array_equal, actual, expected)


def test_packed_agents_predict_the_same():
    agent, observation = make_agent(), jnp.ones((2, 4))
    packed = pack(agent)
    assert isinstance(packed, Agent) and isinstance(packed, PackedAgent)
    assert packed.num_actions == agent.num_actions
    embedding, action = agent.torso(observation), jnp.array([0, 2])
    start = agent.consider(embedding)
    assert_equal(packed.predict(embedding), agent.predict(embedding))
    assert_equal(packed.act(None, observation), agent.act(None, observation))
    assert_equal(packed.consider(embedding), start)
    assert_equal(packed.predict_action(start, action), agent.predict_action(start, action))
    assert_equal(packed.predict_actions(start), agent.predict_actions(start))


def test_every_agent_in_a_tree_is_packed_and_unpacked_again():
    learner = Learner.create(make_agent(), ActorCritic(), adam(1e-3))
    packed = pack(learner)
    vectors = [x for x in jax.tree.leaves(packed) if x.ndim]
    assert len(vectors) == 3, "the agent and two averages of its gradient"
    assert_equal(unpack(packed), learner)
    assert_equal(unpack(learner), learner)


def test_the_gradient_of_a_packed_agent_is_the_packed_gradient():
    def loss(agent: Agent):
        return jnp.sum(jnp.square(agent.act(None, jnp.ones((2, 4)))[1]))

    agent = make_agent()
    assert_equal(unpack(jax.grad(loss)(pack(agent))), jax.grad(loss)(agent))
