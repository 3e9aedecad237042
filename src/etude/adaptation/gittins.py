"""Gittins indices of Bernoulli arms (Gittins 1979): what an arm is worth, by all that is known."""

import functools

import numpy as np

GRID = 401
"""Values that an index is bracketed by, from 0 to 1; between two of them it is interpolated."""
REST = 1e-4
"""The share of a discounted sum of rewards after which an arm's mean is taken to be known."""


@functools.cache
def gittins_indices(discount: float, pulls: int) -> np.ndarray:
    """By how often an arm has won and lost, from 0 to `pulls` each, after a uniform prior; NaN for
    more than `pulls` together.

    The index is the sure pay per pull for which one may just as well take it from now on as pull
    the arm once more, and then decide again: found by backward induction for a grid of pays at
    once.
    """
    last = pulls + int(np.ceil(np.log(REST) / np.log(discount)))
    pay = np.linspace(0.0, 1.0, GRID)
    sure = pay / (1.0 - discount)
    value = np.maximum(sure, _means(last)[:, None] / (1.0 - discount))
    found = np.full((pulls + 1, pulls + 1), np.nan)
    for n in reversed(range(last)):
        mean = _means(n)[:, None]
        pulled = mean * (1.0 + discount * value[1:]) + (1.0 - mean) * discount * value[:-1]
        if n <= pulls:
            wins = np.arange(n + 1)
            found[wins, n - wins] = _crossing(pay, pulled - sure)
        value = np.maximum(sure, pulled)
    return found


def _means(n: int) -> np.ndarray:
    """Of an arm that was pulled n times, by how often it won."""
    return (np.arange(n + 1) + 1.0) / (n + 2.0)


def _crossing(x: np.ndarray, gain: np.ndarray) -> np.ndarray:
    """Where each row, which falls from above 0 to below, is 0."""
    after = np.argmax(gain <= 0.0, axis=1)
    rows = np.arange(len(gain))
    high, low = gain[rows, after - 1], gain[rows, after]
    return x[after - 1] + (x[after] - x[after - 1]) * high / (high - low)
