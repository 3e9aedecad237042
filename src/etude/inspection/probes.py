"""Probes: how much of something a linear map can read off an agent's predictions, in episodes that
had no part in finding the map."""

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

PENALTIES = np.logspace(-8, 3, 12)
"""Of ridge regression, per sample; the best on episodes apart is taken."""
LARGE = 0.5
"""A reward is large from this share of the largest on."""
AHEAD = (1, 2, 4, 8)
"""Steps ahead at which entropies are probed, and within which large rewards may come."""


@dataclasses.dataclass(frozen=True)
class Steps:
    """The transitions of whole episodes, one after another."""

    episode: np.ndarray
    """A number for the episode that each belongs to."""
    reward: np.ndarray
    entropy: np.ndarray
    """Of the policy before each."""
    value: np.ndarray | None
    """Of the state before each, if the agent has values."""
    features: dict[str, np.ndarray]
    """What is read from, by name: steps × numbers."""


class Split(NamedTuple):
    """Which steps a map is fitted on, which its penalty is chosen by, and which judge it."""

    fit: np.ndarray
    choose: np.ndarray
    test: np.ndarray


def split_by_episode(episode: np.ndarray, seed: int = 0) -> Split:
    """Half, a quarter and a quarter of the episodes, at random."""
    names = np.random.default_rng(seed).permutation(np.unique(episode))
    half, three = len(names) // 2, (3 * len(names)) // 4
    parts = names[:half], names[half:three], names[three:]
    return Split(*(np.isin(episode, part) for part in parts))


def explained(features: np.ndarray, wanted: np.ndarray, split: Split) -> float:
    """R² of ridge regression on the test episodes: 1 is all of the variance there, 0 no more than
    its mean over the fitted ones tells. NaN if nothing varies there. Steps at which `wanted` is NaN
    do not count."""
    known = np.isfinite(wanted)
    fit, choose, test = (part & known for part in split)
    if min(fit.sum(), choose.sum(), test.sum()) < 2 or np.ptp(wanted[test]) < 1e-12:
        return float("nan")
    mean, deviation = features[fit].mean(axis=0), features[fit].std(axis=0)
    scaled = (features - mean) / np.where(deviation > 1e-12, deviation, np.inf)
    level = wanted[fit].mean()
    # By the eigenvectors of the Gram matrix: one decomposition serves all penalties.
    weights, vectors = np.linalg.eigh(scaled[fit].T @ scaled[fit] / fit.sum())
    projected = vectors.T @ (scaled[fit].T @ (wanted[fit] - level)) / fit.sum()
    maps = [vectors @ (projected / (np.maximum(weights, 0.0) + x)) for x in PENALTIES]
    best = min(maps, key=lambda m: np.mean(np.square(wanted[choose] - level - scaled[choose] @ m)))
    left = np.square(wanted[test] - level - scaled[test] @ best).sum()
    return float(1.0 - left / np.square(wanted[test] - level).sum())


def wanted(steps: Steps, discount: float, ahead: Sequence[int] = AHEAD) -> dict[str, np.ndarray]:
    """What the probes look for, at each step; NaN beyond an episode's end."""
    size = np.abs(steps.reward)
    large = (size >= LARGE * size.max()) & (size > 0) if len(size) else size > 0
    found = {"return": _returns(steps, discount), "next reward": steps.reward}
    if steps.value is not None:
        found["value of the next state"] = _later(steps.value, 1, steps.episode)
    found["entropy now"] = steps.entropy
    for k in ahead:
        found[f"entropy in {k}"] = _later(steps.entropy, k, steps.episode)
    for k in ahead:
        soon = [_later(large.astype(float), i, steps.episode) for i in range(k)]
        found[f"large reward within {k}"] = np.nanmax(soon, axis=0)
    return found


def probe(
    steps: Steps, discount: float, ahead: Sequence[int] = AHEAD, seed: int = 0
) -> dict[str, dict[str, float]]:
    """R² by what is looked for and what it is read from."""
    split = split_by_episode(steps.episode, seed)
    return {
        name: {source: explained(x, target, split) for source, x in steps.features.items()}
        for name, target in wanted(steps, discount, ahead).items()
    }


def _later(x: np.ndarray, k: int, episode: np.ndarray) -> np.ndarray:
    """As it is k steps later in the same episode."""
    found = np.full(len(x), np.nan)
    if k < len(x):
        same = episode[k:] == episode[: len(x) - k]
        found[: len(x) - k] = np.where(same, x[k:], np.nan)
    return found


def _returns(steps: Steps, discount: float) -> np.ndarray:
    found, total = np.zeros(len(steps.reward)), 0.0
    for i in reversed(range(len(found))):
        goes_on = i + 1 < len(found) and steps.episode[i + 1] == steps.episode[i]
        total = steps.reward[i] + (discount * total if goes_on else 0.0)
        found[i] = total
    return found
