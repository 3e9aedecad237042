"""Reproductions: their short versions run, and their verdicts say what the numbers say."""

import json

import numpy as np
import pytest

from etude.experiments import EXPERIMENTS, Options, Verdict, write
from etude.experiments.frodo import after_a_switch, at_the_end, compared
from etude.runs import RunFolder

QUICK = Options(quick=True, seeds=2, seed=0)


@pytest.mark.slow
@pytest.mark.parametrize("name", EXPERIMENTS)
def test_the_short_version_runs(name, tmp_path):
    lines: list[str] = []
    result = EXPERIMENTS[name].run(QUICK, lines.append)
    assert lines and result.verdicts
    for panel in result.panels:
        for x, values in panel.lines.values():
            assert len(x) == len(values) and np.isfinite(values).any()
    write(result, name, QUICK, RunFolder(tmp_path))
    assert (tmp_path / "figure.png").read_bytes()[:4] == b"\x89PNG"
    document = json.loads((tmp_path / "summary.json").read_text())
    assert document["quick"] and len(document["verdicts"]) == len(result.verdicts)


def test_a_verdict_looks_at_the_interval():
    clear = Verdict.about("above 0", np.array([1.0, 1.2, 0.9]), lambda mean, low, high: low > 0)
    unclear = Verdict.about("above 0", np.array([3.0, -2.0, 0.1]), lambda mean, low, high: low > 0)
    assert clear.holds and not unclear.holds
    assert clear.low <= clear.figure <= clear.high
    assert unclear.figure == pytest.approx(1.1 / 3)


def test_the_extension_is_judged_early_and_late():
    gain = np.concatenate([np.full((20, 3), 0.5), np.full((80, 3), -0.1)])
    early, late = compared("return", gain, margin=0.05)
    assert early.holds and early.figure == pytest.approx(0.5)
    assert not late.holds and late.figure == pytest.approx(-0.1)
    assert compared("return", gain, margin=0.2)[1].holds
    noisy = np.broadcast_to([-3.0, 0.0, 3.0], (100, 3))
    assert not compared("return", noisy, margin=0.2)[1].holds  # noise proves nothing


def test_the_end_of_a_curve_leaves_out_what_was_not_seen():
    returns = np.array([[0.0, 0.0]] * 18 + [[1.0, np.nan], [3.0, 5.0]])
    np.testing.assert_allclose(at_the_end(returns), [2.0, 5.0])


def test_the_course_after_a_switch_is_a_mean_over_switches():
    errors = np.tile(np.arange(10.0), 4)[:, None] * [1.0, 2.0]
    ((x, course),) = after_a_switch({"a": errors}).lines.values()
    np.testing.assert_allclose(course, np.arange(10.0)[:, None] * [1.0, 2.0])
    assert x[0] == 1
