"""Running moments against NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from etude.core.moments import Moments

pytestmark = pytest.mark.usefixtures("x64")

DECAY = 0.9
update = jax.jit(Moments.update, static_argnums=3)
normalise = jax.jit(Moments.normalise, static_argnames="subtract_mean")


def batches() -> np.ndarray:
    """Four batches of numbers whose mean is far from zero and drifts."""
    return np.random.default_rng(0).normal(3.0, 2.0, (4, 16)) + np.arange(4)[:, None]


def moments_after(batches) -> Moments:
    moments = Moments.zero()
    for x in batches:
        moments = update(moments, np.mean(x), np.mean(x**2), DECAY)
    return moments


def weighted_moments(batches) -> tuple[float, float]:
    """Mean and variance with weights that fall by the decay from the newest batch to the oldest."""
    weight = DECAY ** np.arange(len(batches))[::-1]
    weight = weight / weight.sum()
    mean = weight @ batches.mean(axis=1)
    return mean, weight @ (batches**2).mean(axis=1) - mean**2


@pytest.mark.parametrize("count", [1, 2, 4])
def test_normalise_is_a_weighted_average_over_the_lifetime(count):
    data = batches()[:count]
    mean, variance = weighted_moments(data)
    x = np.array([[-1.0, 0.0, 7.0]])
    expected = (x - mean) / (np.sqrt(variance + 1e-12) + 1e-6)
    np.testing.assert_allclose(normalise(moments_after(data), x), expected, rtol=1e-9)


def test_first_update_normalises_its_own_batch():
    """Debiased, the first batch comes out with mean 0 and standard deviation 1."""
    x = batches()[0]
    normalised = np.asarray(normalise(moments_after([x]), x))
    np.testing.assert_allclose(normalised.mean(), 0.0, atol=1e-9)
    np.testing.assert_allclose(normalised.std(), 1.0, rtol=1e-5)


def test_the_default_decay_is_099():
    moments = Moments.zero().update(jnp.asarray(2.0), jnp.asarray(5.0))
    np.testing.assert_allclose([moments.m1, moments.m2, moments.decay], [0.02, 0.05, 0.99])


def test_without_subtracting_the_mean():
    """The value keeps its mean; the scale is still the standard deviation about the mean."""
    data = batches()
    _, variance = weighted_moments(data)
    x = np.array([-1.0, 0.0, 7.0])
    actual = normalise(moments_after(data), x, subtract_mean=False)
    np.testing.assert_allclose(actual, x / (np.sqrt(variance + 1e-12) + 1e-6), rtol=1e-9)


def test_a_constant_signal_stays_finite():
    """Rounding may make the variance negative; it is floored at 0, so the scale is 2e-6."""
    below_zero = Moments(jnp.asarray(1.0), jnp.asarray(0.9), jnp.asarray(0.0))
    np.testing.assert_allclose(normalise(below_zero, np.array([2.0])), 1.0 / 2e-6, rtol=1e-9)


def test_updates_carry_no_gradient():
    """The moments are constants; only the normalised value itself is differentiated."""

    @jax.jit
    @jax.grad
    def gradient_of_first(x):
        moments = Moments.zero().update(jnp.mean(x), jnp.mean(x**2))
        return moments.normalise(x)[0]

    x = np.array([1.0, 2.0, 6.0])
    gradient, scale = gradient_of_first(x), np.std(x) + 1e-6
    np.testing.assert_allclose(gradient, [1.0 / scale, 0.0, 0.0], rtol=1e-9)


def test_the_unit_of_an_all_but_constant_signal_is_a_part_of_its_mean():
    """What is left of its deviation is rounding: 32 bits tell squares of 100 no nearer apart than
    0.001."""
    moments = Moments.zero()
    for _ in range(1000):
        moments = moments.update(jnp.float32(-100.0), jnp.float32(100.0**2 + 1e-3))
    offset, unit = moments.units()
    assert (float(offset), float(unit)) == (pytest.approx(-100.0), pytest.approx(1.0))
    wide = Moments.zero().update(jnp.float32(-100.0), jnp.float32(100.0**2 + 25.0))
    assert float(wide.units()[1]) == pytest.approx(5.0, rel=1e-3)
