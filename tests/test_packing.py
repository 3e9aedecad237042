"""Trees as one vector: the same tree, whatever holds it."""

import jax
import jax.numpy as jnp
import numpy as np

from etude.core.agent import Agent, Heads, NetworkConfig
from etude.core.learner import Learner
from etude.core.optim import adam
from etude.core.packing import Packed
from etude.rules.actor_critic import ActorCritic
from tests.conftest import random_like

HEADS = Heads(state={"pi": 3, "y": 5}, action={"z": 5})


def make_agent() -> Agent:
    network = NetworkConfig(torso=(6, 5), model=4, head=4)
    return random_like(lambda: Agent(jnp.zeros(4), 3, HEADS, network, key=jax.random.key(0)))


def assert_equal(actual, expected) -> None:
    assert jax.tree.structure(actual) == jax.tree.structure(expected)
    jax.tree.map(np.testing.assert_array_equal, actual, expected)


def test_a_tree_is_packed_and_unpacked_again():
    learner = Learner.create(make_agent(), ActorCritic(), adam(1e-3))
    packed = Packed.pack(learner)
    assert [x.ndim for x in packed.vectors.values()] == [1]
    assert len(jax.tree.leaves(packed)) == 2, "the vector, and how many steps Adam has made"
    assert_equal(packed.unpack(), learner)


def test_numbers_of_several_types_keep_them():
    tree = {
        "half": jnp.ones((2, 3), jnp.bfloat16),
        "key": jax.random.key(3),
        "none": None,
        "single": [jnp.arange(4.0), jnp.zeros(())],
        "whole": jnp.arange(3),
    }
    packed = Packed.pack(tree)
    assert {kind: x.shape for kind, x in packed.vectors.items()} == {
        "bfloat16": (6,),
        "float32": (5,),
    }
    unpacked = packed.unpack()
    assert jax.random.key_data(unpacked.pop("key")).tolist() == [0, 3]
    del tree["key"]
    assert_equal(unpacked, tree)
    assert_equal(Packed.pack({"whole": jnp.arange(3)}).unpack(), {"whole": jnp.arange(3)})


def test_the_gradient_of_a_packed_agent_is_the_packed_gradient():
    def loss(agent: Agent):
        return jnp.sum(jnp.square(agent.act(None, jnp.ones((2, 4)))[1]))

    agent = make_agent()
    gradient = jax.grad(lambda packed: loss(packed.unpack()))(Packed.pack(agent))
    assert_equal(gradient.unpack(), jax.grad(loss)(agent))
