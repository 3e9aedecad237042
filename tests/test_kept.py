"""Values that are kept: known when a computation is replayed, and differentiated all the same."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from etude.core.kept import keep, recorded, replayed

pytestmark = pytest.mark.usefixtures("x64")


def twice(x):
    first = keep(jnp.sin(x))
    return keep({"a": first**3, "b": jnp.exp(first)})


def test_what_was_kept_is_given_out_in_order():
    result, kept = recorded(twice)(0.3)
    np.testing.assert_allclose(kept[0], np.sin(0.3))
    assert jax.tree.structure(kept[1]) == jax.tree.structure(result)
    assert twice(0.3)["a"] == result["a"]  # without a recorder, nothing happens


def test_a_replay_takes_values_as_known_and_their_derivatives_as_ever():
    """The values given are wrong on purpose, so that one sees where they are used."""
    kept = [jnp.array(2.0), {"a": jnp.array(5.0), "b": jnp.array(7.0)}]
    replay = replayed(twice, kept)
    assert replay(0.3) == kept[1]
    slope = jax.grad(lambda x: replay(x)["a"])(0.3)
    np.testing.assert_allclose(slope, 3 * 2.0**2 * np.cos(0.3))


def test_derivatives_of_any_order():
    _, kept = recorded(twice)(0.3)
    replay = lambda x: replayed(twice, kept)(x)["b"]  # noqa: E731
    plain = lambda x: twice(x)["b"]  # noqa: E731
    for _ in range(3):
        np.testing.assert_allclose(replay(0.3), plain(0.3), rtol=1e-12)
        replay, plain = jax.grad(replay), jax.grad(plain)


@pytest.mark.parametrize(
    "other",
    [
        lambda x: keep(jnp.sin(x)),
        lambda x: keep(keep(keep(jnp.sin(x)))),
        lambda x: keep({"a": x}),
        lambda x: keep(jnp.stack([x, x])),
    ],
)
def test_another_computation_is_refused(other):
    kept = recorded(lambda x: keep(keep(x) + 1.0))(jnp.array(0.3))[1]
    with pytest.raises(ValueError, match="a replayed computation"):
        replayed(other, kept)(jnp.array(0.3))
