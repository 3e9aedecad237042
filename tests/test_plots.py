"""Pictures: curves with means and bands over seeds, environments' own renderings."""

import dataclasses
import json

import numpy as np
import pytest

from etude.cli.film import own_picture
from etude.cli.plots import lines_of, plot_folders
from etude.envs import Task, make
from etude.envs.catch import Catch
from etude.errors import UserError
from etude.meta.discovery.report import check_curve
from etude.runs.figures import band, plot_curves, smooth
from etude.runs.folder import RunFolder


def test_a_band_is_the_mean_and_students_interval():
    returns = np.array([[0.0, 1.0, 5.0], [2.0, 2.0, 2.0]])
    mean, low, high = band(returns)
    np.testing.assert_allclose(mean, [2.0, 2.0])
    np.testing.assert_allclose((low[1], high[1]), 2.0)
    reach = 4.302653 * np.sqrt(7.0 / 3.0)  # t of two degrees of freedom, error of the mean
    np.testing.assert_allclose((low[0], high[0]), (2.0 - reach, 2.0 + reach), rtol=1e-6)


def test_a_seed_without_episodes_does_not_count():
    mean, low, high = band(np.array([[1.0, np.nan, 3.0], [np.nan, np.nan, 4.0]]))
    np.testing.assert_allclose(mean, [2.0, 4.0])
    np.testing.assert_allclose((low[1], high[1]), 4.0)


def test_smoothing_keeps_a_constant_and_averages_neighbours():
    np.testing.assert_allclose(smooth(np.full(7, 3.0), 3), 3.0)
    np.testing.assert_allclose(smooth(np.array([0.0, 3.0, 0.0, 0.0]), 3), [1.5, 1.0, 1.0, 0.0])


def test_a_figure_that_cannot_be_written_gets_a_sentence(tmp_path):
    records = [{"updates": 1, "steps": 1, "return": 1.0, "returns": [1.0]}]
    mistakes = {"figure.foo": "Format 'foo'", "none/a.png": "No such file", "": "Is a directory"}
    for name, words in mistakes.items():
        with pytest.raises(UserError, match=f"cannot be written to .*: {words}"):
            plot_curves([("run", records)], tmp_path / name)
    plot_curves([("run", records)], tmp_path / "figure")
    assert (tmp_path / "figure").read_bytes()[:4] == b"\x89PNG"


@pytest.mark.parametrize(
    ("config", "metrics", "words"),
    [
        ("{}", "", "holds no run with a curve"),
        ('{"envs": "b"}', "", "no rule was checked yet"),
        ('{"rule": "a", "env": "b"}', "5\n", "is damaged"),
        ('{"rule": "a", "env": "b"}', '{"return": 1}\n', "is damaged: it lacks"),
    ],
)
def test_a_folder_that_someone_mangled_gets_a_sentence(tmp_path, config, metrics, words):
    (tmp_path / "config.json").write_text(config)
    (tmp_path / "metrics.jsonl").write_text(metrics)
    with pytest.raises(UserError, match=words):
        plot_folders([str(tmp_path)], tmp_path / "figure.png")


def test_what_can_be_drawn_is_drawn_and_what_cannot_is_named(tmp_path):
    for name, config in (("a", '{"rule": "a", "env": "b"}'), ("b", '{"envs": "b"}')):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text(config)
    record = '{"updates": 1, "steps": 1, "return": 1.0, "returns": [1.0]}\n'
    (tmp_path / "a" / "metrics.jsonl").write_text(record)
    (tmp_path / "reproduced").mkdir()
    paths = [str(tmp_path / name) for name in ("reproduced", "b", "a")]
    undrawn = plot_folders(paths, tmp_path / "figure.png")
    assert (tmp_path / "figure.png").read_bytes()[:4] == b"\x89PNG"
    assert "reproduced is not a run folder" in undrawn[0] and "no rule was checked" in undrawn[1]
    with pytest.raises(UserError, match="not a run folder"):
        plot_folders(paths[:1], tmp_path / "figure.png")


def test_each_environment_has_a_panel_and_kinds_may_be_mixed(tmp_path):
    record = '{"updates": 1, "steps": 1, "return": 1.0, "returns": [1.0], "returns_before": [0.5]}'
    configs = [{"env": "catch", "rule": "ppo"}] * 2 + [{"env": "maze", "rule": "ppo"}]
    configs += [{"tasks": "maze", "algo": "rl2", "kind": "adapt"}]
    lines = []
    for name, config in enumerate(configs):
        (tmp_path / str(name)).mkdir()
        (tmp_path / str(name) / "config.json").write_text(json.dumps(config))
        (tmp_path / str(name) / "metrics.jsonl").write_text(f"{record}\n")
        lines += lines_of(RunFolder.open(str(tmp_path / str(name))))
    assert [line.panel[0] for line in lines] == ["catch", "catch", "maze", "maze"]
    assert [line.label for line in lines] == ["ppo", "ppo", "ppo", "rl2"]
    assert plot_folders([str(tmp_path / str(i)) for i in range(4)], tmp_path / "f.png") == []


def test_the_checks_of_several_discoveries_are_drawn_together(tmp_path):
    def result(mean):
        return {"catch": {"mean": mean, "low": mean - 0.1, "high": mean + 0.1}}

    for seed in (0, 1):
        folder = tmp_path / str(seed)
        folder.mkdir()
        (folder / "config.json").write_text('{"envs": "catch"}')
        check = {"returns": result(0.5 + seed), "start": result(-0.5), "baseline": result(1.0)}
        check |= {"untrained": result(-0.8), "score": 0.7, "best": 0.7}
        plain = {"updates": 1, "steps": 1}
        records = [plain, {"updates": 2, "steps": 2, "check": check}]
        (folder / "metrics.jsonl").write_text("".join(json.dumps(r) + "\n" for r in records))
    paths = [str(tmp_path / "0"), str(tmp_path / "1")]
    steps, mean, low, high = check_curve([records[1]], "catch")
    np.testing.assert_allclose([steps, mean], [[0, 2], [-0.5, 1.5]])
    np.testing.assert_allclose(high - low, 0.2)
    plot_folders(paths, tmp_path / "figure.png")
    assert (tmp_path / "figure.png").read_bytes()[:4] == b"\x89PNG"


def rendering(picture) -> Task:
    """An environment that renders itself like this."""
    mine = type("Mine", (Catch,), {"render": staticmethod(picture)})
    return dataclasses.replace(make("catch"), env=mine())


def test_an_environment_may_render_bytes_or_shares_of_full_brightness():
    pixels = np.full((2, 2, 3), 255, np.uint8)
    np.testing.assert_array_equal(own_picture(rendering(lambda *_: pixels), None), pixels)
    np.testing.assert_array_equal(own_picture(rendering(lambda *_: pixels / 255.0), None), pixels)
    assert own_picture(rendering(lambda *_: "a figure"), None) is None


@pytest.mark.parametrize(
    ("render", "words"),
    [
        (lambda state: None, "cannot be rendered"),
        (lambda state, params: np.zeros((2, 2, 1)), "not height × width × 3"),
    ],
)
def test_a_rendering_that_fails_gets_a_sentence(render, words):
    with pytest.raises(UserError, match=words):
        own_picture(rendering(render), None)
