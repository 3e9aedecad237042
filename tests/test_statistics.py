"""Statistics of comparisons: by hand, against plain loops, and whether intervals hold what they
should."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import trim_mean

from etude.comparing import statistics
from etude.comparing.statistics import Estimate

SCORES = st.integers(1, 5).flatmap(
    lambda envs: st.integers(2, 7).flatmap(
        lambda seeds: st.lists(
            st.lists(st.floats(-10, 10, width=32), min_size=seeds, max_size=seeds),
            min_size=envs,
            max_size=envs,
        )
    )
)


def test_interquartile_mean_by_hand():
    # Of 8, the 2 lowest and the 2 highest are left out, whatever they are.
    assert statistics.iqm(np.array([100.0, 1, 2, 3, 4, -50, 0, 7])) == (1 + 2 + 3 + 4) / 4
    assert statistics.iqm(np.array([5.0, 1, 3, 100])) == 4.0
    # Of 5, 6 and 7, one at each end; of fewer than 4, none.
    assert statistics.iqm(np.array([9.0, 1, 2, 3, -9])) == 2.0
    assert statistics.iqm(np.array([9.0, 1, 2, 3, 4, -9])) == 2.5
    assert statistics.iqm(np.array([9.0, 1, 2, 3, 4, 5, -9])) == 3.0
    assert statistics.iqm(np.array([9.0, 0, 3])) == 4.0
    assert statistics.iqm(np.array([2.5])) == 2.5


def loop_iqm(values: list[float]) -> float:
    """As plainly as can be."""
    ordered, kept = sorted(values), []
    for rank, value in enumerate(ordered):
        if len(ordered) // 4 <= rank < len(ordered) - len(ordered) // 4:
            kept.append(value)
    return sum(kept) / len(kept)


@given(SCORES)
def test_interquartile_mean_is_that_of_a_plain_loop_and_of_scipy(rows):
    scores = np.array(rows, float)
    ours = statistics.aggregate(scores, resamples=10).value
    assert ours == pytest.approx(loop_iqm([x for row in rows for x in row]), rel=1e-12, abs=1e-12)
    assert ours == pytest.approx(trim_mean(scores.ravel(), 0.25), rel=1e-12, abs=1e-12)


@given(SCORES, st.integers(0, 5))
def test_probability_of_improvement_is_that_of_a_plain_loop(rows, shift):
    x = np.array(rows, float).round()
    y = np.roll(x, 1, axis=1) - shift
    shares = []
    for mine, theirs in zip(x.tolist(), y.tolist(), strict=True):
        wins = 0.0
        for a in mine:
            for b in theirs:
                wins += 1.0 if a > b else 0.5 if a == b else 0.0
        shares.append(wins / (len(mine) * len(theirs)))
    found = statistics.probability_of_improvement(x, y, resamples=20)
    assert found.value == pytest.approx(sum(shares) / len(shares), rel=1e-12, abs=1e-12)
    assert 0.0 <= found.low <= found.value <= found.high <= 1.0
    back = statistics.probability_of_improvement(y, x, resamples=20)
    assert back.value == pytest.approx(1.0 - found.value, abs=1e-12)


def test_a_difference_of_interquartile_means_by_hand():
    x, y = np.array([[1.0, 2, 3, 9], [5, 6, 7, 0]]), np.array([[1.0, 1, 1, 1], [2, 2, 2, 2]])
    # The middle four of 0 1 2 3 5 6 7 9 are 2 3 5 6; those of 1 1 1 1 2 2 2 2 are 1 1 2 2.
    found = statistics.difference(x, y)
    assert found.value == 4.0 - 1.5 and found.low < found.value < found.high
    assert statistics.difference(x, x).value == 0.0
    back = statistics.difference(y, x)
    assert back.value == -2.5
    assert statistics.better(statistics.difference(y, x + 20), alike=0.0) == "worse"
    assert statistics.better(statistics.difference(x, x), alike=0.0) == "cannot be told"
    assert np.isnan(statistics.difference(x[:, :1], y[:, :1]).low)


def test_the_interval_of_a_difference_holds_it_as_often_as_it_says():
    rng, hits, rounds = np.random.default_rng(0), 0, 400
    for i in range(rounds):
        x, y = rng.normal(0.4, 1.0, (4, 5)), rng.normal(0.0, 0.5, (4, 5))
        found = statistics.difference(x, y, seed=i, resamples=300)
        hits += found.low <= 0.4 <= found.high
    assert 0.93 <= hits / rounds <= 0.985


def test_the_mean_height_of_a_curve_by_hand():
    x = np.array([1.0, 2.0, 4.0])
    curves = np.array([[2.0, np.nan, np.nan], [4.0, 3.0, np.nan], [np.nan, 1.0, np.nan]])
    # 2 up to 1, on to 4 at 2, and so to the end; 3 up to 2, on to 1 at 4; nothing.
    expected = [(2 + 3 + 8) / 4, (6 + 4) / 4, np.nan]
    np.testing.assert_allclose(statistics.mean_height(x, curves), expected)


def test_probability_of_improvement_by_hand():
    x, y = np.array([[1.0, 3, 3], [5, 5, 5]]), np.array([[2.0, 3, 0], [5, 6, 4]])
    # First: 1 beats 0; each 3 beats 2 and 0 and ties with 3. Second: one tie, loss and win each.
    assert statistics.improvement(x, y).tolist() == [(1 + 2.5 + 2.5) / 9, 0.5]
    assert statistics.probability_of_improvement(x, y).value == pytest.approx((6 / 9 + 0.5) / 2)


def test_a_few_runs_do_not_prove_an_improvement_and_many_do():
    few, many = np.array([[1.0, 2, 3]]), np.arange(10.0)[None]
    clear = statistics.probability_of_improvement(few + 10, few)
    assert clear.value == 1.0 and clear.low < 0.5  # 3 runs against 3, by chance 1 time in 20
    assert statistics.better(clear) == "cannot be told"
    sure = statistics.probability_of_improvement(many + 100, many)
    assert sure.low > 0.7 and statistics.better(sure) == "better"
    assert statistics.better(statistics.probability_of_improvement(many, many + 100)) == "worse"
    even = statistics.probability_of_improvement(np.tile(few, (6, 1)), np.tile(few, (6, 1)))
    assert even.value == 0.5 and statistics.better(even) == "cannot be told"


def test_one_run_has_no_interval():
    alone = statistics.aggregate(np.array([[0.3], [0.5]]))
    assert alone.value == 0.4 and np.isnan([alone.low, alone.high]).all()
    assert alone.overlaps(Estimate(9.0, 8.0, 10.0))
    found = statistics.probability_of_improvement(np.ones((2, 1)), np.zeros((2, 1)))
    assert found.value == 1.0 and statistics.better(found) == "cannot be told"
    assert Estimate(1.0, 0.0, 2.0).overlaps(Estimate(2.0, 1.0, 3.0))
    assert not Estimate(1.0, 0.0, 2.0).overlaps(Estimate(4.0, 3.0, 5.0))


def draw_runs(kind: str, rng: np.random.Generator, envs: int, number: int) -> np.ndarray:
    """Scores whose spread differs between environments: normal, bounded and skewed, or of runs some
    of which collapse."""
    place = np.linspace(0.0, 1.0, envs)[:, None]
    shape = (envs, number)
    if kind == "normal":
        return rng.normal(place, 0.05 + 0.25 * place, shape)
    if kind == "bounded":
        return rng.beta(1.0 + 7.0 * place, 6.0 - 5.0 * place, shape)
    good = rng.random(shape) < 0.2 + 0.7 * place
    return np.where(good, rng.normal(0.9, 0.05, shape), rng.normal(0.1, 0.05, shape))


@pytest.mark.parametrize(("kind", "seeds"), [("normal", 5), ("bounded", 10), ("collapsing", 5)])
def test_intervals_hold_the_truth_95_times_in_100(kind, seeds):
    rng, envs, trials = np.random.default_rng(seeds), 12, 1000
    truth = statistics.iqm(draw_runs(kind, rng, envs, 40_000).ravel())
    runs = np.stack([draw_runs(kind, rng, envs, seeds) for _ in range(trials)])
    _, low, high = statistics.aggregate_along(runs, resamples=400)
    share = np.mean((low <= truth) & (truth <= high))
    assert 0.93 <= share <= 0.97


def test_intervals_of_improvement_hold_the_truth_at_least_93_times_in_100():
    rng, envs, seeds, trials = np.random.default_rng(1), 6, 5, 400

    def x(number: int) -> np.ndarray:
        return draw_runs("normal", rng, envs, number)

    truth = statistics.improvement(x(3000), x(3000) - 0.1).mean()
    found = [
        statistics.probability_of_improvement(x(seeds), x(seeds) - 0.1, resamples=300)
        for _ in range(trials)
    ]
    assert np.mean([e.low <= truth <= e.high for e in found]) >= 0.93


def test_a_profile_is_the_share_of_runs_above():
    found = statistics.performance_profile(
        np.array([[0.0, 0.5], [0.5, 1.0]]), np.array([-1.0, 0.0, 0.5, 1.0])
    )
    assert found.tolist() == [1.0, 0.75, 0.25, 0.0]


def test_windows_without_an_episode_carry_the_last_return():
    nan = np.nan
    curve = statistics.carried(np.array([[nan, 1.0], [2.0, nan], [nan, nan], [3.0, 4.0]]))
    np.testing.assert_array_equal(curve, [[nan, 1.0], [2.0, 1.0], [2.0, 1.0], [3.0, 4.0]])
    x = np.array([10.0, 20.0, 30.0, 40.0])
    grid = statistics.on_grid(x, curve, np.array([5.0, 10.0, 39.0, 40.0, 50.0]))
    np.testing.assert_array_equal(
        grid, [[nan, nan], [nan, 1.0], [2.0, 1.0], [3.0, 4.0], [3.0, 4.0]]
    )
    np.testing.assert_array_equal(statistics.first_reached(x, curve, 2.0), [20.0, 40.0])
    np.testing.assert_array_equal(statistics.first_reached(x, curve, 3.5), [nan, 40.0])
