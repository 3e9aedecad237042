"""Statistics of a few runs on several environments, after Agarwal et al. 2021, "Deep reinforcement
learning at the edge of the statistical precipice" (https://arxiv.org/abs/2108.13264).

Scores have the shape environments × seeds. How often the intervals hold what they should was
checked by simulation; see docs/reference/comparing.md.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np
from scipy.special import ndtri, stdtrit

LEVEL = 0.95
RESAMPLES = 2000
CANNOT_BE_TOLD = "cannot be told"


@dataclasses.dataclass(frozen=True)
class Estimate:
    """A figure and the ends of its interval, which are NaN if one run per environment is all there
    is."""

    value: float
    low: float
    high: float

    def overlaps(self, other: "Estimate") -> bool:
        """Whether the two cannot be told apart."""
        return not (self.low > other.high or other.low > self.high)


# --- Interquartile mean ---------------------------------------------------------------------------


def iqm(scores: np.ndarray) -> np.ndarray:
    """The mean of the middle half along the last axis. Of n values, ⌊n/4⌋ are cut off at each end,
    as by `scipy.stats.trim_mean(x, 0.25)`, whether or not n is a multiple of 4."""
    number = scores.shape[-1]
    cut = number // 4
    parted = np.partition(scores, [cut, number - cut - 1], axis=-1)
    return np.asarray(parted[..., cut : number - cut].mean(axis=-1))


def aggregate(scores: np.ndarray, seed: int = 0, resamples: int = RESAMPLES) -> Estimate:
    """The interquartile mean over all runs, with its interval."""
    low, high = aggregate_along(scores[None], seed, resamples)[1:]
    return Estimate(float(iqm(scores.ravel())), float(low[0]), float(high[0]))


def aggregate_along(
    scores: np.ndarray, seed: int = 0, resamples: int = RESAMPLES
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Interquartile means and both ends of their intervals at each of several points, along the
    first axis: points × environments × seeds. All points share their resamples."""
    points, envs, seeds = scores.shape
    value = iqm(scores.reshape(points, -1))
    if seeds == 1:
        return value, np.full(points, np.nan), np.full(points, np.nan)
    chosen = _resample(np.random.default_rng(seed), resamples, envs, seeds)
    low, high = np.empty(points), np.empty(points)
    for i, at_point in enumerate(scores):
        drawn = np.take_along_axis(at_point[None], chosen, axis=2).reshape(resamples, -1)
        low[i], high[i] = _widened(iqm(drawn), value[i], _freedom(at_point))
    return value, low, high


def difference(x: np.ndarray, y: np.ndarray, seed: int = 0, resamples: int = RESAMPLES) -> Estimate:
    """The interquartile mean over all runs of one minus that of the other, in the same
    environments."""
    value = float(iqm(x.ravel()) - iqm(y.ravel()))
    if x.shape[1] == 1:
        return Estimate(value, float("nan"), float("nan"))
    x_drawn, y_drawn = _drawn(np.random.default_rng(seed), resamples, x, y)
    drawn = iqm(x_drawn.reshape(resamples, -1)) - iqm(y_drawn.reshape(resamples, -1))
    return Estimate(value, *_widened(drawn, value, _freedom(np.concatenate([x, y]))))


def _resample(rng: np.random.Generator, resamples: int, envs: int, seeds: int) -> np.ndarray:
    """Indices of seeds, drawn with repetition within each environment: resamples × environments ×
    (seeds − 1).

    One fewer than there are: with as many, the variance of a mean would come out too small by the
    factor (seeds − 1)/seeds, which for few seeds makes intervals far too narrow (Rao and Wu 1988).
    """
    return rng.integers(seeds, size=(resamples, envs, seeds - 1))


def _drawn(rng: np.random.Generator, resamples: int, *several: np.ndarray) -> list[np.ndarray]:
    """Resampled scores of several rules: resamples × environments × (seeds − 1)."""
    return [
        np.take_along_axis(scores[None], _resample(rng, resamples, *scores.shape), axis=2)
        for scores in several
    ]


def _freedom(scores: np.ndarray) -> float:
    """Degrees of freedom, after Welch and Satterthwaite, of a mean over environments whose
    variances are estimated from a few seeds each."""
    variances, least = scores.var(axis=1, ddof=1), scores.shape[1] - 1
    if not variances.any():
        return float(least)
    return float(least * variances.sum() ** 2 / np.square(variances).sum())


def _widened(values: np.ndarray, estimate: float, freedom: float) -> tuple[float, float]:
    """The percentiles of resampled values, their distance from the estimate stretched as Student's
    t is wider than the normal distribution."""
    tail = 0.5 + LEVEL / 2
    low, high = np.quantile(values, [1.0 - tail, tail])
    stretch = float(stdtrit(freedom, tail) / ndtri(tail))
    return estimate - stretch * (estimate - low), estimate + stretch * (high - estimate)


# --- Probability of improvement -------------------------------------------------------------------


def improvement(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """P(X > Y) in each environment (the last axis is that of the seeds), from all pairs of runs;
    ties count half."""
    above = x[..., :, None] > y[..., None, :]
    equal = x[..., :, None] == y[..., None, :]
    return np.asarray((above + 0.5 * equal).mean(axis=(-2, -1)))


def probability_of_improvement(
    x: np.ndarray, y: np.ndarray, seed: int = 0, resamples: int = RESAMPLES
) -> Estimate:
    """P(X > Y), averaged over environments, with an interval: the wider end of two each.

    The bootstrap says nothing where every run of one beats every run of the other, however few they
    are; the interval from ranks does, but takes environments to be alike.
    """
    each = improvement(x, y)
    value, (envs, seeds) = float(each.mean()), x.shape
    if seeds == 1:
        return Estimate(value, float("nan"), float("nan"))
    x_drawn, y_drawn = _drawn(np.random.default_rng(seed), resamples, x, y)
    drawn = improvement(x_drawn, y_drawn).mean(axis=1)
    low, high = _widened(drawn, value, float(envs * (seeds - 1)))
    rank_low, rank_high = _rank_interval(each, seeds)
    return Estimate(value, max(0.0, min(low, rank_low)), min(1.0, max(high, rank_high)))


def _rank_interval(each: np.ndarray, seeds: int) -> tuple[float, float]:
    """Of the mean over environments, by the distance of each one's own interval (MOVER; Zou and
    Donner 2008)."""
    low, high = _newcombe(each, seeds)
    number = len(each)
    below = np.sqrt(np.square(each - low).sum()) / number
    above = np.sqrt(np.square(high - each).sum()) / number
    return float(each.mean() - below), float(each.mean() + above)


def _newcombe(each: np.ndarray, seeds: int) -> tuple[np.ndarray, np.ndarray]:
    """Those probabilities from which the one that was seen is not too far (method 5 of Newcombe
    2006, "Confidence intervals for an effect size measure based on the Mann–Whitney statistic"),
    with Student's t in place of the normal distribution, so that three runs prove nothing."""
    t = float(stdtrit(2 * len(each) * (seeds - 1), 0.5 + LEVEL / 2))

    def reach(p: np.ndarray) -> np.ndarray:
        spread = 1.0 + (seeds - 1) * ((1.0 - p) / (2.0 - p) + p / (1.0 + p))
        return t * np.sqrt(p * (1.0 - p) * spread) / seeds

    def furthest(end: np.ndarray) -> np.ndarray:
        near, far = each.copy(), end
        for _ in range(60):
            middle = (near + far) / 2.0
            within = np.abs(middle - each) <= reach(middle)
            near, far = np.where(within, middle, near), np.where(within, far, middle)
        return near

    return furthest(np.zeros_like(each)), furthest(np.ones_like(each))


def better(estimate: Estimate, alike: float = 0.5) -> str:
    """In words, what an interval says; of two that are alike, the value is `alike`."""
    if estimate.low > alike:
        return "better"
    return "worse" if estimate.high < alike else CANNOT_BE_TOLD


# --- Profiles and curves --------------------------------------------------------------------------


def performance_profile(scores: np.ndarray, levels: np.ndarray) -> np.ndarray:
    """The share of all runs whose score is above each level."""
    return (scores.ravel()[:, None] > levels).mean(axis=0)


def carried(values: np.ndarray) -> np.ndarray:
    """Along the first axis, with the last value before in place of each NaN. What comes before the
    first value stays NaN."""
    seen = np.where(np.isfinite(values), np.arange(len(values))[:, None], -1)
    latest = np.maximum.accumulate(seen, axis=0)
    return np.where(latest < 0, np.nan, np.take_along_axis(values, np.maximum(latest, 0), axis=0))


def mean_height(x: np.ndarray, values: np.ndarray) -> np.ndarray:
    """The area under each seed's curve (points × seeds) from 0 to its end, over its length. Windows
    without an episode carry the last value, and before the first one, that counts; NaN if there is
    none."""
    seen = np.isfinite(values)
    first = values[seen.argmax(axis=0), np.arange(values.shape[1])]
    known = np.where(np.maximum.accumulate(seen, axis=0), carried(values), first)
    heights = np.concatenate([first[None], known])
    return np.trapezoid(heights, np.concatenate([[0.0], x]), axis=0) / x[-1]


def on_grid(x: np.ndarray, values: np.ndarray, grid: np.ndarray) -> np.ndarray:
    """A curve (points × seeds) at the places of a grid, each with the latest value up to there; NaN
    before the first."""
    latest = np.searchsorted(x, grid, side="right") - 1
    return np.where(latest[:, None] < 0, np.nan, values[np.maximum(latest, 0)])


def first_reached(x: Sequence[float] | np.ndarray, values: np.ndarray, level: float) -> np.ndarray:
    """Where each seed's curve (points × seeds) first comes up to a level; NaN if it never does."""
    reached = values >= level
    return np.where(reached.any(axis=0), np.asarray(x, float)[reached.argmax(axis=0)], np.nan)
