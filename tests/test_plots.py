"""Curves: means and bands over seeds."""

import numpy as np

from etude.plots import band, smooth


def test_a_band_holds_the_mean_and_stays_within_the_seeds():
    returns = np.array([[0.0, 1.0, 5.0], [2.0, 2.0, 2.0]])
    mean, low, high = band(returns)
    np.testing.assert_allclose(mean, [2.0, 2.0])
    np.testing.assert_allclose((low[1], high[1]), 2.0)
    assert 0.0 <= low[0] < 1.0 and 3.5 < high[0] <= 5.0


def test_a_seed_without_episodes_does_not_count():
    mean, low, high = band(np.array([[1.0, np.nan, 3.0], [np.nan, np.nan, 4.0]]))
    np.testing.assert_allclose(mean, [2.0, 4.0])
    np.testing.assert_allclose((low[1], high[1]), 4.0)


def test_smoothing_keeps_a_constant_and_averages_neighbours():
    np.testing.assert_allclose(smooth(np.full(7, 3.0), 3), 3.0)
    np.testing.assert_allclose(smooth(np.array([0.0, 3.0, 0.0, 0.0]), 3), [1.5, 1.0, 1.0, 0.0])
