"""Replay keeps the latest trajectories and draws from those that are there."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from etude.acting.replay import Replay, join
from etude.core.types import Rollout


def numbered(numbers, steps=2):
    """Trajectories that carry their number as reward and in the observation."""
    n = jnp.asarray(numbers, float)
    reward = jnp.tile(n, (steps, 1))
    flags = jnp.zeros(reward.shape, bool)
    observation = {"x": jnp.tile(n, (steps + 1, 1))[..., None]}
    logits = jnp.tile(n, (steps + 1, 1))[..., None] * jnp.ones((1, 1, 3))
    return Rollout(observation, reward.astype(int), reward, flags, flags, logits, ~flags)


def test_the_oldest_make_room():
    replay = Replay.empty(numbered([0, 0]), 4)
    for start in (1, 3, 5):
        replay = replay.add(numbered([start, start + 1]))
    np.testing.assert_array_equal(replay.rollouts.reward[0], [5, 6, 3, 4])
    assert replay.added == 6


def test_only_what_is_there_is_drawn_and_all_of_it():
    replay = Replay.empty(numbered([0, 0]), 100).add(numbered([1, 2])).add(numbered([3, 4]))
    drawn = replay.sample(jax.random.key(0), 200)
    assert set(np.unique(drawn.reward)) == {1, 2, 3, 4}
    np.testing.assert_array_equal(drawn.reward[0], drawn.observation["x"][2, :, 0])
    np.testing.assert_array_equal(drawn.reward[0], drawn.behaviour_logits[1, :, 2])
    counts = np.unique(drawn.reward[0], return_counts=True)[1]
    assert counts.min() > 30


def test_join_puts_batches_side_by_side():
    both = join(numbered([1, 2]), numbered([3]))
    np.testing.assert_array_equal(both.reward[1], [1, 2, 3])


def test_nothing_but_what_learning_needs_is_stored():
    names = {"observation", "action", "reward", "terminal", "seam", "behaviour_logits", "mask"}
    names |= {"memory", "context"}
    assert set(Rollout.__dataclass_fields__) == names


def test_a_capacity_that_would_wrap_is_refused():
    with pytest.raises(ValueError, match="multiple"):
        Replay.empty(numbered([0, 0]), 3)
