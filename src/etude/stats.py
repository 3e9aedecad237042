"""Statistics of a few noisy runs: intervals."""

from collections.abc import Callable, Sequence

import numpy as np
from scipy.special import stdtrit

Interval = tuple[np.ndarray, np.ndarray, np.ndarray]
"""A mean, and the ends of its interval."""


def bootstrap_interval(
    runs: Sequence[np.ndarray],
    statistic: Callable[[np.ndarray], float] = lambda x: float(np.mean(x)),
    level: float = 0.95,
    resamples: int = 2000,
    seed: int = 0,
) -> tuple[float, float]:
    """Percentile interval of a statistic over the means of runs (seeds).

    Each resample draws runs with repetition and, within each, its samples with repetition, so that
    one run has an interval too: that of its own samples.
    """
    rng = np.random.default_rng(seed)
    means = np.empty((resamples, len(runs)))
    for i, run in enumerate(runs):
        run = np.asarray(run, float)
        means[:, i] = run[rng.integers(len(run), size=(resamples, len(run)))].mean(axis=1)
    drawn = np.take_along_axis(means, rng.integers(len(runs), size=means.shape), axis=1)
    values = np.array([statistic(row) for row in drawn])
    low, high = np.quantile(values, [0.5 - level / 2, 0.5 + level / 2])
    return float(low), float(high)


def t_interval(values: np.ndarray, level: float = 0.95) -> Interval:
    """The mean of a few values (along the last axis) and Student's interval: that of a bootstrap
    would be far too narrow. One value is its own interval; of values so large that their squares
    are none, it is infinite."""
    values = np.asarray(values, float)
    with np.errstate(over="ignore", invalid="ignore"):
        number, mean = values.shape[-1], np.asarray(values.mean(axis=-1))
        if number == 1:
            return mean, mean, mean
        error = values.std(axis=-1, ddof=1) / np.sqrt(number)
        reach = float(stdtrit(number - 1, 0.5 + level / 2)) * error
        return mean, np.asarray(mean - reach), np.asarray(mean + reach)
