"""Reproductions: their short versions run, and their verdicts say what the numbers say."""

import dataclasses
import functools
import itertools
import json
from pathlib import Path
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from etude import envs
from etude.adaptation.config import AdaptConfig
from etude.adaptation.method import draw_tasks
from etude.adaptation.run import AdaptRun, make_method
from etude.errors import UserError
from etude.experiments import (
    EXPERIMENTS,
    Options,
    Reproduction,
    Verdict,
    adaptation,
    classic,
    exploring,
    frodo,
    metagrad,
    tables,
    trainings,
)
from etude.experiments.base import at_the_end
from etude.experiments.fingerprint import Fingerprint
from etude.experiments.frodo import after_a_switch, compared
from etude.experiments.results import Begun
from etude.experiments.trainings import Trained, Training, train_all
from etude.experiments.walk import NONE
from etude.experiments.written import write
from etude.runs.folder import RunFolder
from etude.training.config import TrainRequest
from etude.training.planning import plan_named

BEGUN = Begun(Fingerprint("1" * 12, "2" * 12), None, 0.0, 0.0)
QUICK = Options(quick=True, seeds=2, seed=0)


EXPLORING = [name for name, x in EXPERIMENTS.items() if x.home.startswith("exploring")]
"""Tested below."""
SAME = ("mazes-20", *EXPLORING)
"""As another one is, but for a number."""
OF_TRAININGS = [
    name
    for name, x in EXPERIMENTS.items()
    if x.home.startswith(("adaptation", "tables")) and name not in SAME
]


OF_DISCO = [x for x, y in EXPERIMENTS.items() if y.home.startswith("disco")]
"""These are in test_disco_experiments.py."""

# Runs that several experiments compare others with: once with a revision, once without.
once_on_catch = functools.cache(lambda revision: real_on_catch(QUICK, revision))
once_on_walk = functools.cache(lambda revision: real_on_walk(QUICK, revision))
real_on_catch, real_on_walk = frodo.frodo_on_catch, frodo.frodo_errors
real_returns = frodo.returns_on_catch


def planned(rule, options, settings=None, share=1.0):
    """A plan for all; only FRODO is also run."""
    settings = settings or {}
    plan_named(TrainRequest(env=frodo.CATCH, rule=rule, **frodo.SHORT | settings))
    if settings.items() >= frodo.FRODO.items() and rule.startswith("frodo:"):
        return real_returns(rule, options, settings, share)
    return np.array([1.0, 2.0]), np.ones((2, options.seeds))


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(EXPERIMENTS.keys() - {*OF_TRAININGS, *OF_DISCO, *SAME}))
def test_the_short_version_runs(name, tmp_path, monkeypatch):
    monkeypatch.setattr(frodo, "returns_on_catch", planned)
    on_catch = lambda options, revision=NONE, share=1.0: once_on_catch(revision)  # noqa: E731
    on_walk = lambda options, revision=NONE, share=1.0: once_on_walk(revision)  # noqa: E731
    monkeypatch.setattr(frodo, "frodo_on_catch", on_catch)
    monkeypatch.setattr(frodo, "frodo_errors", on_walk)
    monkeypatch.setattr(metagrad, "GRID", (0.9, 0.99))
    monkeypatch.chdir(tmp_path)
    lines: list[str] = []
    result = EXPERIMENTS[name].run(QUICK, lines.append)
    assert lines
    check(result, name, tmp_path / "result")


class Untrained(Training):
    """A training that was never begun, and what it would have shown."""

    @property
    def policies(self) -> Any:
        return self.run.init().policy


class Unused(AdaptRun):
    """A run whose only policies are those at its start, so that they are judged once for all."""

    @functools.cache  # noqa: B019
    def init(self) -> Any:
        return super().init()

    @functools.cache  # noqa: B019
    def judge_start(self, number: int) -> Any:
        return super().judge(self.init().policy, number)

    def judge(self, policies: Any, number: int, again: int = 0) -> Any:
        return self.judge_start(number)


def untrained(configs: dict[str, AdaptConfig], say: Any) -> dict[str, Trained]:
    """Twice the same, since each would be compiled anew, and not traced, since nothing trains."""
    found = {}
    for label, config in configs.items():
        task, config = envs.make(config.tasks), dataclasses.replace(config.filled(), seeds=1)
        run = Unused(config, make_method(task, config))
        found[label] = Trained([Untrained(run, RunFolder(Path("nowhere")))] * 2)
    return found


def flat_curve(self: Trained) -> tuple[np.ndarray, np.ndarray]:
    return np.array([1.0, 2.0]), np.ones((2, len(self.parts)))


@pytest.mark.slow
@pytest.mark.parametrize("name", OF_TRAININGS)
def test_trainings_are_judged(name, tmp_path, monkeypatch):
    """As if they had been done. How they are done is tested below."""
    for module in (adaptation, tables):
        monkeypatch.setattr(module, "train_all", untrained)
    monkeypatch.setattr(adaptation, "FRESH_TASKS", 8)
    monkeypatch.setattr(adaptation, "measured", functools.cache(adaptation.measured))
    for rows in ("BANDITS", "MDPS", "MAML"):
        monkeypatch.setattr(tables, rows, dict(list(getattr(tables, rows).items())[:1]))
    monkeypatch.setattr(Trained, "curve", flat_curve)
    check(EXPERIMENTS[name].run(QUICK, print), name, tmp_path)


def check(result: Reproduction, name: str, path: Path) -> None:
    assert result.verdicts
    for panel in result.panels:
        assert panel.lines or panel.bars
        for x, values in panel.lines.values():
            assert len(x) == len(values) and np.isfinite(values).any()
        assert all(np.isfinite(values).all() for values in panel.bars.values())
    path.mkdir(exist_ok=True)
    write(result, name, QUICK, RunFolder(path), BEGUN)
    assert (path / "figure.png").read_bytes()[:4] == b"\x89PNG"
    document = json.loads((path / "summary.json").read_text())
    assert document["quick"] and document["verdicts"] == []  # a short version proves nothing


def rewards(steps, returns):
    return [
        {"updates": i, "steps": x, "return": y}
        for i, (x, y) in enumerate(zip(steps, returns, strict=True))
    ]


def test_seeds_that_were_logged_at_other_steps_share_a_curve(tmp_path):
    lines = [([10, 20, 30], [1.0, 2.0, 3.0]), ([20, 25, 30], [0.0, 0.0, 1.0])]
    parts = []
    for i, line in enumerate(lines):
        folder = RunFolder(tmp_path / str(i))
        folder.path.mkdir()
        for record in rewards(*line):
            folder.log(record)
        parts.append(Training(cast(Any, None), folder))
    steps, returns = Trained(parts).curve()
    np.testing.assert_allclose(steps, [20, 25, 30])
    np.testing.assert_allclose(returns, [[2.0, 0.0], [2.5, 0.0], [3.0, 1.0]])


@dataclasses.dataclass(frozen=True)
class Line(Trained):
    """What was trained, of which only the curve is known."""

    returns: list[float] = dataclasses.field(default_factory=list)

    def curve(self) -> tuple[np.ndarray, np.ndarray]:
        return np.arange(1.0, 5.0), np.array(self.returns)[:, None] + [-0.1, 0.1]


def test_one_curve_passes_another_for_good():
    flat = Line([], [1.0, 1.0, 1.0, 1.0])
    for returns, when in (
        ([2.0, 0.0, 2.0, 3.0], "at 3 steps"),
        ([2.0, 3.0, 2.0, 2.0], "at the start"),
        ([2.0, 3.0, 2.0, 1.0], "never"),
    ):
        assert adaptation.passing(Line([], returns), flat) == when


RISING = {"MAML": 1.0, "E-MAML": 2.0, "RL²": 3.0, "E-RL²": 4.0}


def verdicts(run, monkeypatch, early, late) -> list[bool]:
    """What an experiment says of curves that are at one level over the first 10M steps and at
    another at the end, but for a little noise; who ends higher solves fewer mazes."""
    lines = {x: Line([], [early[x]] * 2 + [9.0] * 2 + [late[x]] * 2) for x in early}
    monkeypatch.setattr(adaptation, "train_all", lambda configs, say: lines)
    monkeypatch.setattr(adaptation, "random_return", lambda training: 0.0)
    monkeypatch.setattr(adaptation, "solved", lambda x: -x.curve()[1][-1])
    monkeypatch.setattr(Line, "curve", noisy)
    return [v.holds for v in run(QUICK, print).verdicts]


def noisy(self: Line) -> tuple[np.ndarray, np.ndarray]:
    steps = np.linspace(0.0, 25e6, len(self.returns))
    return steps, np.array(self.returns)[:, None] + [-0.001, 0.001]


def test_orderings_in_krazy_world_are_told_from_the_curves(monkeypatch):
    """Early: E-MAML above MAML, RL² and E-RL². Late: E-RL² above E-MAML, E-RL² above RL², MAML
    above RL², MAML near E-MAML."""
    falling = {label: 5.0 - level for label, level in RISING.items()}
    close = {"MAML": 1.0, "E-MAML": 1.05, "RL²": 0.5, "E-RL²": 2.0}
    early = [(RISING, [True, False, False]), (falling, [False, True, True])]
    late = [
        (RISING, [True, True, False, False]),
        (falling, [False, False, True, False]),
        (close, [True, True, True, True]),
    ]
    for (first, then_first), (last, then_last) in itertools.product(early, late):
        found = verdicts(adaptation.run_krazy, monkeypatch, first, last)
        assert found == then_first + then_last


def test_orderings_in_mazes_are_told_from_the_curves(monkeypatch):
    """RL² and E-RL² above MAML and E-MAML, E-RL² above RL², E-MAML above MAML: at the end, and by
    how many mazes are solved."""
    swapped = {"MAML": 2.0, "E-MAML": 1.0, "RL²": 4.0, "E-RL²": 1.5}
    for late, expected in (
        (RISING, [True] * 6),
        (swapped, [True, True, False, True, False, False]),
    ):
        found = verdicts(adaptation.run_mazes, monkeypatch, RISING, late)
        assert found == expected + [not x for x in expected]


@pytest.mark.parametrize("algo", ["emaml", "erl2"])
def test_what_is_measured_is_what_was_played_before_and_after(algo):
    """In Krazy World's easy level what a goal pays is all there is, so that goals are returns."""
    config = AdaptConfig(algo=algo, steps=1, batch=4, episodes=5)
    part = Untrained(AdaptRun.untraced(config), RunFolder(Path("nowhere")))
    found = adaptation.measured(part, adaptation.explored)
    method, policies = part.run.method, part.policies
    task_key, key = jax.random.split(jax.random.fold_in(jax.random.key(0), adaptation.MEASURED))
    tasks = draw_tasks(method.env, task_key, adaptation.FRESH_TASKS)
    policy = jax.tree.map(lambda x: x[0], policies)
    scores = jax.jit(method.score)(policy, tasks, key)
    if algo == "emaml":
        played, _ = jax.jit(method.collect)(policy, tasks, key)
        before, after = played.inner.returns[:, 0], played.outer.returns
        first = before
    else:
        trial = jax.jit(lambda key: method.play(policy, tasks, key, lambda state: None))(key)
        totals = [jnp.where(trial.episode == e, trial.reward, 0.0).sum(axis=1) for e in range(5)]
        first, before, after = totals[:1], totals[:3], totals[3:]
    pairs = [
        (found[adaptation.FOUND], before),
        (found[adaptation.REACHED], after),
        (np.mean(scores.before), first),
        (np.mean(scores.after), after),
    ]
    for ours, returns in pairs:
        assert float(ours) == pytest.approx(float(np.mean(returns)), rel=1e-5)
    assert found[adaptation.FOUND] != found[adaptation.REACHED]
    assert 0.5 < found[adaptation.DEATHS] < 1.0 and 1.0 < found[adaptation.KINDS] < 4.0


def test_exploration_is_told_from_what_was_measured(monkeypatch):
    """E-MAML with the most kinds, RL² with the fewest goals, E-RL² with more kinds than RL²; and
    then the other way round."""
    order = dict(zip(["RL²", "MAML", "E-RL²", "E-MAML"], np.arange(1.0, 5.0), strict=True))
    for sign, expected in ((1.0, [True] * 7), (-1.0, [False] * 7)):
        measures = {
            label: {
                adaptation.KINDS: sign * level,
                adaptation.DEATHS: -sign * level,
                adaptation.FOUND: -sign * level,
                adaptation.REACHED: sign * level,
            }
            for label, level in order.items()
        }
        part = lambda label: Training(cast(Any, None), RunFolder(Path(label)))  # noqa: E731
        trained = {label: Trained([part(label)] * 2) for label in measures}
        monkeypatch.setattr(adaptation, "train_krazy", lambda options, say, x=trained: x)
        monkeypatch.setattr(
            adaptation, "measured", lambda part, measure, x=measures: x[part.folder.path.name]
        )
        result = adaptation.run_exploration(QUICK, print)
        assert [v.holds for v in result.verdicts] == expected


def test_figures_are_compared_with_those_printed():
    """RL² may be 2% below or anything above; classics as far away as a mean over 1000 tasks may
    be, and the printed digits."""
    spread = np.array([-0.001, 0.0, 0.001])
    for mean, holds in ((97.9, False), (98.1, True), (150.0, True)):
        verdict = tables.learned("here", mean + spread, 100.0)
        assert verdict.holds == holds
    error = 1.96 * 10.0 / np.sqrt(1000)  # of the printed mean
    for off, holds in ((0.0, True), (error + 0.04, True), (error + 0.2, False)):
        for sign in (-1, 1):
            ours = classic.Totals(by_seed=100.0 + sign * off + spread, deviation=10.0)
            assert classic.verdict("here", "UCB1", ours, 100.0).holds == holds


def test_a_trial_of_maml_is_all_of_its_parts():
    inner = jnp.array([[[1.0], [2.0]], [[3.0], [4.0]]])
    assert float(tables.total(inner, jnp.array([[10.0], [20.0]]))) == (13.0 + 27.0) / 2


def test_every_algorithm_has_as_many_settings_to_choose_from():
    assert {len(x) for x in exploring.CANDIDATES.values()} == {5}
    assert exploring.CANDIDATES.keys() == exploring.NAMES.keys()
    for label, candidates in exploring.CANDIDATES.items():
        for settings in candidates.values():
            exploring.config(label, settings, QUICK).filled()


@pytest.mark.parametrize("name", EXPLORING)
def test_each_algorithm_explores_with_its_best_settings(name, monkeypatch, tmp_path):
    """The third of the settings of each is made the best; then E-RL² is, and has seen the most."""
    asked: list[dict[str, AdaptConfig]] = []

    def trains(configs, say):
        asked.append(configs)
        final = configs.keys() == exploring.NAMES.keys()
        ends = RISING if final else {x: -abs(i - 2.0) for i, x in enumerate(configs)}
        return {
            x: Line([Training(cast(Any, None), RunFolder(Path(x)))] * 2, [ends[x]] * 6)
            for x in configs
        }

    monkeypatch.setattr(Line, "curve", noisy)
    monkeypatch.setattr(exploring, "train_all", trains)
    monkeypatch.setattr(exploring, "random_return", lambda training: 0.0)
    monkeypatch.setattr(exploring, "returns", lambda training: training.curve()[1][-1])
    monkeypatch.setattr(
        exploring,
        "measured",
        lambda part, measure: dict.fromkeys(
            (adaptation.KINDS, adaptation.DEATHS, adaptation.FOUND, adaptation.REACHED),
            RISING[part.folder.path.name],
        ),
    )
    options = Options(quick=False, seeds=2, seed=0)
    result = EXPERIMENTS[name].run(options, print)
    *choosing, final = asked
    assert [len(x) for x in choosing] == [5] * 4
    seeds = {x.seed for configs in choosing for x in configs.values()}
    assert seeds == {exploring.AWAY} and {x.seed for x in final.values()} == {0}
    for configs, (label, chosen) in zip(choosing, final.items(), strict=True):
        third = list(configs.values())[2]
        same = dict(steps=chosen.steps, seed=chosen.seed, seeds=chosen.seeds)
        assert dataclasses.replace(third, **same) == chosen, label
    told = {x.claim: x.holds for x in result.verdicts}
    assert told["E-RL² ends above RL²: difference"] and told["E-MAML ends above MAML: difference"]
    assert not told["MAML ends above RL²: difference"]
    assert told["E-MAML is above MAML over the first 40% of training: difference"]


def test_revisions_are_chosen_on_other_seeds():
    seen = []

    def score(options, revision):
        seen.append(options.seed)
        return np.array([revision.revise == 0.3 and not revision.revise_fades, 0.0], float)

    best, found = frodo.chosen(dataclasses.replace(QUICK, quick=False), score)
    assert best == (0.3, False) and len(found) == 9
    assert set(seen) == {frodo.AWAY}


@pytest.mark.slow
def test_trainings_are_found_again_and_their_mistakes_are_told(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    config = AdaptConfig(
        algo="rl2", tasks="bandit:arms=2,pulls=2", steps=1, episodes=1, explore=0,
        hidden=4, batch=2, minibatches=1, test_tasks=2, seeds=2,
    )  # fmt: skip
    said: list[str] = []
    first = train_all({"a": config}, said.append)["a"]
    assert "0 of them done before" in said[0] and all(x.share == 1.0 for x in first.parts)
    before = [x.folder.summary() for x in first.parts]
    again = train_all({"a": config}, said.append)["a"]
    assert "2 of them done before" in said[-2]
    assert [x.folder.summary() for x in again.parts] == before
    assert before[0]["policy_sha256"] != before[1]["policy_sha256"]

    other = dataclasses.replace(config, steps=2, seeds=1)
    (part,) = trainings._find(other)
    (part.folder.path / "checkpoint").write_bytes(b"not one")
    with pytest.raises(UserError, match=r"stopped: .*checkpoint"):
        train_all({"b": other}, said.append)


def test_a_verdict_looks_at_the_interval():
    clear = Verdict.about("above 0", np.array([1.0, 1.2, 0.9]), at_least=0.0)
    all_above = Verdict.about("above 0", np.array([0.1, 0.2, 1.5]), at_least=0.0)
    unclear = Verdict.about("above 0", np.array([3.0, -2.0, 0.1]), at_least=0.0)
    below = Verdict.about("above 0", np.array([-3.0, -3.1, -2.9]), at_least=0.0)
    words = [x.verdict for x in (clear, all_above, unclear, below)]
    assert words == ["holds", "cannot be told", "cannot be told", "does not hold"]
    near = [Verdict.about("near 0", x + np.array([0.0, 0.01]), -1.0, 1.0).verdict for x in (0, 2)]
    assert near == ["holds", "does not hold"]
    same = Verdict.about("above 0", np.zeros(3), at_least=0.0)
    assert not same.holds  # nor is 0 above 0
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
