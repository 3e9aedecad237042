"""Comparisons: what is planned, what is refused, what the results say, and a small real one."""

import dataclasses
import json
import sys
from pathlib import Path

import numpy as np
import pytest

import etude
from etude.cli import commands as cli
from etude.comparing import figure, suites
from etude.comparing.cells import Cell, folder_name, plan_cells
from etude.comparing.config import CompareConfig
from etude.comparing.results import Result, against_best, aggregate, efficiency, summarise
from etude.comparing.run import Comparison
from etude.comparing.statistics import Estimate
from etude.comparing.suites import Entry, find_entries
from etude.envs.catalogue import require_known
from etude.errors import UserError
from etude.text import interval
from etude.training.config import TrainRequest
from etude.training.planning import plan_named

SOURCE = Path(__file__).resolve().parent.parent / "src"

# --- Environments and references ------------------------------------------------------------------


def test_every_environment_of_a_suite_has_references_with_a_source():
    table = json.loads(suites.REFERENCES.read_text())
    assert set(table) >= {env for names in suites.SUITES.values() for env in names}
    for name in ("small", "minatar"):
        for env in suites.SUITES[name]:
            assert table[env]["episodes"] == 10_000 and table[env]["standard_error"] >= 0
    for env, about in table.items():
        require_known(env)
        assert about["source"] and about["random"] is not None
        assert about["strong"] is None or about["strong"] > about["random"]
    assert 10 <= len(suites.SUITES["small"]) <= 12


def test_the_random_score_of_a_bandit_is_known():
    # 10 pulls of arms that pay 1/6 to 5/6: 5 in the mean.
    bandit = suites.known("bandit")
    table = json.loads(suites.REFERENCES.read_text())["bandit"]
    assert abs(bandit.random - 5.0) < 4 * table["standard_error"]
    assert bandit.strong == pytest.approx(10 * 5 / 6, abs=1e-4)


def test_a_file_lists_environments_with_scores_or_without(tmp_path):
    listed = tmp_path / "mine.txt"
    listed.write_text("# ours\ncatch\n\ncatch:rows=5,columns=5 -0.6 1  # small\nbandit\n")
    first, second, third = find_entries(str(listed))
    assert (first.env, first.strong, third.env) == ("catch", 1.0, "bandit")
    assert second == Entry("catch:rows=5,columns=5", -0.6, 1.0, "line 4 of mine.txt")
    for wrong in ("catch 1", "catch 1 2 3", "catch one 2", "catch 2 2", "catch nan 2"):
        listed.write_text(f"bandit\n{wrong}\n")
        with pytest.raises(UserError, match=r"Line 2 of .* should be an environment"):
            find_entries(str(listed))
    listed.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UserError, match="not a text file"):
        find_entries(str(listed))


def test_a_list_may_hold_suites_and_be_longer_than_a_file_name():
    listed = [f"catch:rows={rows},columns=3" for rows in range(4, 20)]
    found = find_entries(",".join([*listed, "minatar"]))
    assert [x.env for x in found] == [*listed, *suites.SUITES["minatar"]]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (dict(envs="catch,katch"), "did you mean 'catch'"),
        (dict(envs="smal"), "no suite 'smal': did you mean 'small'"),
        (dict(envs="mine.txt"), "no file 'mine.txt'"),
        (dict(envs="catch,catch"), "names catch twice"),
        (dict(envs="small,catch"), "names catch twice"),
        (dict(envs=","), "names no environment"),
        (dict(rules="ppo,dsco103"), "did you mean 'disco103'"),
        (dict(rules="ppo,ppo"), "names ppo twice"),
        (dict(rules=""), "names no rule"),
        (dict(seeds=0), "seeds must be at least 1"),
        (dict(equal="seconds"), "go together"),
        (dict(seconds=3.0), "go together"),
    ],
)
def test_mistakes_are_refused_before_anything_is_made(settings, words):
    with pytest.raises(UserError, match=words):
        Comparison.planned(CompareConfig(**dict(envs="catch") | settings))


# --- Cells ----------------------------------------------------------------------------------------


def planned(**settings) -> dict[str, Cell]:
    config = CompareConfig(**settings)
    return {cell.rule: cell for cell in plan_cells(config, find_entries(config.envs))}


def test_budgets_are_equal_in_what_is_said():
    rules = "ppo,actor_critic:discount=0.9,metagrad,disco103"
    steps = planned(envs="catch", rules=rules, steps=100_000)
    for cell in steps.values():
        plan = cell.plan
        assert abs(plan.steps_after(plan.updates) - 100_000) <= plan.steps_per_update
        assert (plan.seeds, plan.eval_episodes, plan.max_seconds) == (5, 256, 0.0)
    first, *others = planned(envs="catch", rules=rules, steps=100_000, equal="updates").values()
    assert first.plan == steps["ppo"].plan
    for cell in others:
        extra = cell.plan.agent_updates - first.plan.agent_updates
        assert 0 <= extra < cell.plan.updates_per_update
    timed = planned(envs="catch", rules=rules, equal="seconds", seconds=7.0)
    assert all(cell.plan.max_seconds == 7.0 for cell in timed.values())


def test_agents_have_memory_where_there_is_something_to_remember():
    cells = plan_cells(CompareConfig(rules="ppo"), find_entries("small"))
    assert {x.env for x in cells if x.plan.memory == "gru"} == suites.SETTINGS.keys()


def test_no_two_cells_share_a_folder():
    pairs = [
        ("catch:rows=5,columns=5", "ppo"),
        ("catch:rows=5-columns=5", "ppo"),
        ("gymnax/CartPole-v1", "actor_critic:discount=0.9"),
        ("gymnax/CartPole-v1", "actor_critic-discount=0.9"),
        ("catch", "found/rule.npz"),
        ("catch", "found-rule.npz"),
        ("x" * 300, "ppo"),
        ("x" * 300, "ppo2"),
    ]
    names = [folder_name(*pair) for pair in pairs]
    assert len(set(names)) == len(names) and all(len(x) < 150 and "/" not in x for x in names)
    assert folder_name("bandit", "ppo") == "bandit--ppo"


def test_each_rule_gets_the_file_of_settings_that_is_for_it(tmp_path):
    def settings(rule: str, rate: float) -> str:
        path = tmp_path / f"{rule}.json"
        layer = {"envs": ["*"], "training": {"learning_rate": rate}}
        path.write_text(json.dumps({"format": 1, "rule": rule, "layers": [layer]}))
        return str(path)

    both = ",".join([settings("ppo", 0.5), settings("actor_critic", 0.25)])
    config = CompareConfig(rules="ppo,actor_critic:discount=0.9,policy_gradient", preset=both)
    rates = [x.plan.learning_rate for x in plan_cells(config, find_entries("catch"))]
    usual = TrainRequest(rule="policy_gradient", env="catch")
    assert rates == [0.5, 0.25, plan_named(usual).plan.learning_rate]
    with pytest.raises(UserError, match="for none of the rules: ppo"):
        plan_cells(dataclasses.replace(config, rules="ppo"), find_entries("catch"))


def test_cells_that_have_begun_need_no_preset_any_more(tmp_path):
    entries = find_entries("catch")
    plan = plan_cells(CompareConfig(rules="ppo"), entries)[0].plan
    config = CompareConfig(rules="ppo", preset=str(tmp_path / "gone.json"))
    with pytest.raises(UserError, match="no preset"):
        plan_cells(config, entries)
    begun = {folder_name("catch", "ppo"): plan}
    assert plan_cells(config, entries, begun.get)[0].plan == plan


# --- What results say -----------------------------------------------------------------------------


def result(
    env: str, rule: str, scores: list[float | None], why: str | None = None, unknown: bool = False
) -> Result:
    """One that rises to its scores in two records, with a window without an episode between."""
    entry = Entry(env, None, None, "none") if unknown else Entry(env, 0.0, 10.0, "stated")
    config = CompareConfig(envs="catch", rules="ppo", seeds=len(scores), steps=1000)
    plan = plan_cells(config, find_entries("catch"))[0].plan
    if why is not None:
        return Result(Cell(entry, rule, plan), why, None, [])
    half = [None if x is None else x / 2 for x in scores]
    returns = [half, [None] * len(scores), scores]
    records = [
        dict(updates=i, steps=500 * i, seconds=2.0 * i, last_returns=x)
        for i, x in enumerate(returns, 1)
    ]
    evaluation = dict(sampled=[0.0] * len(scores), greedy=[1.0] * len(scores), unfinished=0)
    summary = dict(
        final_return=dict(per_seed=scores), evaluation=evaluation,
        environment_steps=1500, updates=3, seconds=6.0,
    )  # fmt: skip
    return Result(Cell(entry, rule, plan), None, summary, records)


CONFIG = CompareConfig(envs="catch", rules="ppo,actor_critic", seeds=4)


def test_failed_cells_leave_their_environment_out_for_all_rules():
    results = [
        result("a", "ppo", [8.0, 9.0, 9.0, 10.0]),
        result("a", "actor_critic", [1.0, 2.0, 2.0, 3.0]),
        result("b", "ppo", [10.0] * 4),
        result("b", "actor_critic", [10.0] * 4, why="it was killed."),
        result("c", "ppo", [9.0, 8.0, 7.0, 6.0], unknown=True),
        result("c", "actor_critic", [1.0, 1.0, 1.0, 1.0], unknown=True),
        result("d", "ppo", [9.0, 8.0, 7.0, None]),
        result("d", "actor_critic", [1.0, 1.0, 1.0, 1.0]),
    ]
    found = aggregate(CONFIG, results, "training")
    assert found["over"] == ["a"] and found["improvement_over"] == ["a", "c"]
    assert found["left_out"] == {
        "b": "a cell has no score",
        "c": "there is no reference",
        "d": "a cell has no score",
    }
    assert found["iqm"]["ppo"]["value"] == pytest.approx(0.9)
    assert found["iqm"]["actor_critic"]["value"] == pytest.approx(0.2)
    assert found["against_best"] == {"ppo": "best", "actor_critic": "worse"}
    (pair,) = found["improvement"]
    assert (pair["rule"], pair["over"], pair["value"]) == ("ppo", "actor_critic", 1.0)
    assert pair["verdict"] == "better"
    assert found["profile"]["share_above"]["ppo"][-1] == 0.0  # none is above 1
    summary = summarise(CONFIG, results, 1.0)
    assert summary["failed"] == {"actor_critic on b": "it was killed."}
    statuses = [cell["status"] for cell in summary["cells"]]
    assert statuses.count("failed") == 1 and statuses.count("done") == 7
    greedy = summary["aggregate"]["greedy"]["iqm"]["ppo"]["value"]
    assert greedy == pytest.approx(0.1) and summary["shown"] == "training"


def test_an_interval_that_one_seed_cannot_give_is_no_number():
    assert interval(vars(Estimate(1.0, float("nan"), float("nan")))) == "–"
    assert interval({"low": 0.5, "high": 2.0}) == "0.5 to 2"


def test_what_overlaps_cannot_be_told():
    words = against_best(
        {"x": Estimate(0.9, 0.8, 1.0), "y": Estimate(0.8, 0.7, 0.85), "z": Estimate(0.1, 0.0, 0.2)}
    )
    assert words["z"] == "worse" and words["y"] == "cannot be told"
    assert words["x"].startswith("best, but")


def test_curves_carry_returns_and_bands_stay_within_what_was_scored():
    results = [result("a", "ppo", [0.0, 10.0, 10.0]), result("a", "actor_critic", [1.0, 2.0, 3.0])]
    steps, returns = results[0].curve("steps")
    assert steps.tolist() == [500, 1000, 1500]
    assert returns.tolist() == [[0, 5, 5], [0, 5, 5], [0, 10, 10]]
    told = results[0].told()["seconds_to_score"]
    np.testing.assert_array_equal(told["0.5"], [np.nan, 2.0, 2.0])
    np.testing.assert_array_equal(told["0.9"], [np.nan, 6.0, 6.0])
    found = efficiency(CONFIG, results)
    line = found["by_rule"]["ppo"]
    known = np.isfinite(line["value"])
    assert found["at"][known][0] >= 500 and known[-1]
    assert np.nanmin(line["low"]) >= 0.0 and np.nanmax(line["high"]) <= 1.0


def test_the_figure_has_an_axis_for_each_environment(tmp_path, monkeypatch):
    bands, drawn = [], figure._draw_line
    monkeypatch.setattr(
        figure, "_draw_line", lambda ax, *line: (bands.append(line), drawn(ax, *line))
    )
    results = [
        result("a", "ppo", [0.0, 10.0, 10.0]),
        result("a", "actor_critic", [1.0, 2.0, 3.0], why="killed"),
        result("b", "ppo", [3.0, 1.0, 2.0]),
        result("b", "actor_critic", [1.0, 2.0, 3.0]),
    ]
    path = tmp_path / "figure.png"
    figure.draw(CONFIG, results, efficiency(CONFIG, results), path)
    assert path.read_bytes()[:4] == b"\x89PNG" and len(bands) == 3 + 2
    for _, _, x, middle, low, high in bands[:3]:
        assert len(x) and (low <= middle).all() and (middle <= high).all()
        assert low.min() >= 0.0 and high.max() <= 10.0


# --- A real one -----------------------------------------------------------------------------------

POISONED = """
import jax.numpy as jnp
from etude.envs.bandit import Bandit

class Poisoned(Bandit):
    def step_env(self, key, state, action, params):
        observation, state, reward, ended, info = super().step_env(key, state, action, params)
        return observation, state, reward / 0.0, ended, info
"""


@pytest.mark.slow
def test_a_comparison_goes_on_when_a_cell_fails(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("PYTHONPATH", str(SOURCE))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "poisoned.py").write_text(POISONED)
    quick = dict(steps=2048, seeds=2, eval_episodes=8)
    found = etude.compare(
        "bandit,poisoned:Poisoned", "actor_critic", out="it", processes=1, **quick
    )
    (why,) = found.failed.values()
    assert list(found.failed) == ["actor_critic on poisoned:Poisoned"]
    assert "Training stopped at update 1" in why and "reward is" in why
    assert (tmp_path / "it" / "comparison.png").exists()
    (cell, failed) = json.loads((tmp_path / "it" / "summary.json").read_text())["cells"]
    assert cell["status"] == "done" and failed["status"] == "failed"
    scores = cell["scores"]
    assert all(len(scores[x]) == 2 and min(scores[x]) >= 0 for x in scores)
    assert (tmp_path / "it" / cell["curve"]).exists()
    config = json.loads((tmp_path / "it" / "config.json").read_text())
    assert (config["kind"], config["format"]) == ("compare", 1) and len(config["id"]) == 32

    kept = (tmp_path / "it" / cell["folder"] / "summary.json").stat().st_mtime_ns
    with pytest.raises(UserError, match="names code that is not Etude's"):
        etude.compare(resume="it")
    monkeypatch.setattr(sys, "argv", ["etude", "compare", "--resume", "it", "--trust"])
    monkeypatch.setattr(cli, "_configure_jax", lambda: None)
    with pytest.raises(SystemExit) as end:
        cli.main()
    assert end.value.code == 1
    told = capsys.readouterr().out
    assert "Failed: actor_critic on poisoned:Poisoned: Training stopped at update 1" in told
    assert (tmp_path / "it" / cell["folder"] / "summary.json").stat().st_mtime_ns == kept
    with pytest.raises(UserError, match="is a comparison"):
        etude.load("it")
