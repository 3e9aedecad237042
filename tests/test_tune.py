"""The search for settings: on objectives with a known best, killed, failed, and for real."""

import json
import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from etude import api, rules
from etude.errors import UserError
from etude.placing.job import Job
from etude.ranges import Choice, Span
from etude.rules.names import KINDS
from etude.runs.folder import RunFolder
from etude.runs.reading import read_json
from etude.settings import TUNING_SEEDS
from etude.training.config import RANGES, RANGES_OF_RULES, RANGES_ONLINE, TrainRequest
from etude.training.planning import plan_named
from etude.training.presets.files import LayerForm
from etude.tuning import run as searches
from etude.tuning.candidate import SETTINGS
from etude.tuning.config import TuneConfig
from etude.tuning.objective import curve_score
from etude.tuning.space import space_of
from etude.tuning.study import JOURNAL, Study

STEPS = 1000
ROOT = Path(__file__).resolve().parent.parent


# --- Places that pretend to train -----------------------------------------------------------------


def quadratic(env: str, settings: dict) -> float:
    """Best at a learning rate of 1e-3, where it is 1."""
    return 1.0 - (math.log10(settings.get("learning_rate", 3e-3)) + 3.0) ** 2


class Pretended:
    """A training that is over at once: its learning curve is a line to what the objective says."""

    def __init__(self, job: Job, objective):
        self.words, self.code = "", 0
        command = dict(zip(job.command[1::2], job.command[2::2], strict=False))
        layers = read_json(job.folder / SETTINGS)["layers"]
        settings = {k: v for layer in layers for k, v in layer.get("training", {}).items()}
        end = objective(command["--env"], settings)
        if end is None:
            self.words, self.code = "etude: The loss is nan.", 2
            return
        self._write(Path(command["--out"]), end)

    def _write(self, path: Path, end: float) -> None:
        path.mkdir()
        folder = RunFolder(path)
        folder.write_config({"kind": "train", "env": "catch"})
        for part in range(1, 11):
            value = end * part / 10
            line = {"updates": part, "steps": part * STEPS // 10, "seconds": part / 10}
            folder.log(line | {"return": value, "returns": [value], "last_returns": [value, None]})
        score = dict(mean=end, low=end, high=end, per_seed=[end])
        work = dict(seconds=1.0, steps_per_second=1.0, environment_steps=STEPS)
        about = dict(final_return=score, seeds=1, updates=10, params_sha256="")
        folder.write_summary(work | about)

    def exit_code(self) -> int:
        return self.code

    def last_words(self) -> str:
        return self.words

    def ask_to_stop(self) -> None: ...

    def end(self, seconds: float) -> None: ...


class PretendedPlaces:
    """The process that starts jobs there is killed after some of them."""

    def __init__(self, objective=quadratic, number: int = 1, jobs: float = math.inf):
        self.number, self.objective, self.jobs = number, objective, jobs
        self.envs: list[str] = []

    def start(self, job: Job, place: int) -> Pretended:
        if len(self.envs) >= self.jobs:
            raise Killed
        self.envs.append(job.command[2])
        return Pretended(job, self.objective)


class Killed(BaseException): ...


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr("etude.tuning.evaluation.LOOK_EVERY", 0.0)
    monkeypatch.setattr("etude.tuning.run.try_out", lambda config: None)
    monkeypatch.setattr("etude.tuning.study.os.fsync", lambda file: None)


def config_of(**changes) -> TuneConfig:
    settings = dict(env="catch", rule="actor_critic", search="learning_rate", steps=STEPS)
    return TuneConfig(**(settings | dict(seeds=2, trials=20) | changes))


def search(config: TuneConfig, path: Path, places: PretendedPlaces | None = None) -> dict:
    folder = searches.start(config, str(path))
    return searches.execute(config, folder, places or PretendedPlaces())


# --- What is searched -----------------------------------------------------------------------------


def test_a_known_best_is_found_and_used(tmp_path):
    summary = search(config_of(trials=30), tmp_path / "run")
    assert summary["score"] > summary["defaults"] and summary["chosen"] != "defaults"
    assert summary["trials"]["pruned"] > 0 and sum(summary["trials"].values()) == 30
    best = str(tmp_path / "run" / "best.json")
    plan, origins = plan_named(TrainRequest(env="catch", rule="actor_critic", preset=best))
    assert 5e-4 < plan.learning_rate < 2e-3 and origins["learning_rate"] == f"preset {best}"
    made_by = read_json(Path(best))["layers"][0]["made_by"]
    assert made_by["command"].startswith("etude tune --env catch --rule actor_critic --steps 1000")
    assert made_by["trials"] == 30 and made_by["seed"] == TUNING_SEEDS
    assert made_by["score"] == summary["score"] and summary["importances"] == {"learning_rate": 1.0}
    assert (tmp_path / "run" / "tuning.png").stat().st_size > 1000
    assert not list((tmp_path / "run").rglob("checkpoint"))


def test_defaults_that_are_not_beaten_stay(tmp_path):
    def flat(env, settings):
        return 0.0 if "learning_rate" in settings else 1.0

    assert (
        search(config_of(trials=2), tmp_path / "run", PretendedPlaces(flat))["chosen"] == "defaults"
    )
    best = str(tmp_path / "run" / "best.json")
    named = dict(env="catch", rule="actor_critic")
    plan = plan_named(TrainRequest(**named, preset=best)).plan
    assert plan.learning_rate == plan_named(TrainRequest(**named)).plan.learning_rate


def test_killed_at_any_moment_a_search_goes_on_to_the_same_end(tmp_path):
    config = config_of(trials=12, confirm=2)
    whole = search(config, tmp_path / "whole")
    for jobs in (0, 6, 14):
        with pytest.raises(Killed):
            search(config, tmp_path / f"{jobs}", PretendedPlaces(jobs=jobs))
        with (tmp_path / f"{jobs}" / JOURNAL).open("a") as journal:
            journal.write('{"op_code": 4, "wor')  # it was writing
        reopened, folder = searches.reopen(str(tmp_path / f"{jobs}"))
        assert reopened == config
        assert searches.execute(reopened, folder, PretendedPlaces()) == whole


def test_more_trials_can_be_added(tmp_path):
    search(config_of(trials=2, confirm=0), tmp_path / "run")
    config, folder = searches.reopen(str(tmp_path / "run"), 4)
    summary = searches.execute(config, folder, PretendedPlaces())
    assert sum(summary["trials"].values()) == 4 and folder.config()["trials"] == 4
    with pytest.raises(UserError, match="--trials can only add"):
        searches.reopen(str(tmp_path / "run"), 3)


def test_a_trial_that_fails_is_not_the_end(tmp_path):
    def fragile(env, settings):
        return None if settings.get("learning_rate", 0.0) > 2e-3 else quadratic(env, settings)

    summary = search(config_of(), tmp_path / "run", PretendedPlaces(fragile, number=3))
    failed = [x for x in summary["each_trial"] if x["state"] == "fail"]
    assert len(failed) == summary["trials"]["fail"] > 0
    assert all(x["why"] == "The loss is nan." for x in failed)
    assert all(x["settings"]["learning_rate"] > 1.9e-3 for x in failed)
    with pytest.raises(UserError, match=r"None of the trials could be finished.*The loss is nan"):
        search(config_of(trials=2), tmp_path / "none", PretendedPlaces(lambda *_: None))


def test_several_environments_are_weighed_and_hopeless_trials_spare_the_later_ones(tmp_path):
    file = tmp_path / "mine.txt"
    file.write_text("catch 0 2\nbandit 1 5\n")
    config = config_of(env=str(file), trials=20, confirm=0)
    places = PretendedPlaces(lambda env, x: 2.0 * quadratic(env, x) + (env == "bandit"))
    summary = search(config, tmp_path / "run", places)
    first = summary["each_trial"][0]
    by_env = [2.0 * quadratic("", first["settings"]) + x for x in (0, 1)]
    # A line from a tenth of its end: 0.505 is its area, with the first value held before it.
    shape = 0.5 * (0.1 * 0.1 + 0.9 * 0.55) + 0.5
    catch, bandit = (x * shape for x in by_env)
    assert first["score"] == pytest.approx((catch / 2 + (bandit - 1) / 4) / 2, rel=1e-2)
    assert places.envs.count("bandit") < places.envs.count("catch")


def test_the_score_of_a_curve_by_hand():
    records = [
        {"steps": 10, "last_returns": [None, None]},
        {"steps": 20, "last_returns": [1.0, None]},
        {"steps": 40, "last_returns": [2.0, 4.0]},
    ]
    assert curve_score(records[:1], 100.0) is None and curve_score(records, 19.0) is None
    assert curve_score(records, 20.0) == 1.0
    assert curve_score(records, 40.0) == 0.5 * (20 * 1.0 + 20 * 2.0) / 40 + 0.5 * 3.0


# --- Ranges ---------------------------------------------------------------------------------------


def ends(range_) -> tuple:
    return range_.values if isinstance(range_, Choice) else (range_.low, range_.high)


@pytest.mark.parametrize("kind", KINDS)
def test_whatever_a_rule_is_searched_in_can_be_set(kind):
    found = rules.class_named(kind)
    for name, range_ in found.ranges.items():
        own = {} if range_.when is None else {range_.when[0]: range_.when[1]}
        for value in ends(range_):
            made = ",".join(f"{k}={v}" for k, v in (own | {name: value}).items())
            rules.load(f"{kind}:{made}")
    assert set(found.searched) <= RANGES_OF_RULES.keys()


def test_whatever_training_is_searched_in_can_be_set():
    for name, range_ in (RANGES | RANGES_OF_RULES | RANGES_ONLINE).items():
        for value in ends(range_):
            assert getattr(TrainRequest(**{name: value}), name) == value


def test_a_setting_that_depends_on_another_is_drawn_where_it_matters():
    space = space_of(TuneConfig(rule="policy_gradient"))

    def drawn(baseline: str) -> LayerForm:
        return space.draw(lambda name, x: baseline if name == "rule.baseline" else ends(x)[0])

    assert "td_lambda" in drawn("linear")["rule"] and "td_lambda" not in drawn("mean")["rule"]
    given = space_of(TuneConfig(rule="policy_gradient:baseline=linear", search="td_lambda"))
    assert given.draw(lambda name, x: 0.9)["rule"] == {"td_lambda": 0.9}
    ranges = space_of(TuneConfig(rule="metagrad", fix="batch=8")).ranges
    assert "meta_learning_rate" in ranges and "batch" not in ranges and "epochs" not in ranges
    assert isinstance(ranges["learning_rate"], Span) and ranges["learning_rate"].log


# --- Mistakes and files ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (dict(seed=5), "--seed must be 1000000 or more, not 5"),
        (dict(trials=0), "trials must be at least 1"),
        (dict(fix="batch"), "'batch' should have the form name=value"),
        (dict(fix="bach=3"), "A training run has no setting 'bach'; did you mean 'batch'"),
        (dict(fix="seed=3"), "--fix is not for seed"),
        (dict(fix="batch=many"), "batch must be of type int"),
        (dict(search="learning_rat"), "The search has no setting 'learning_rat'; did you mean"),
        (dict(fix="learning_rate=0.1", search="learning_rate"), "The search has no setting"),
        (dict(env="katch"), "There is no environment 'katch'"),
        (dict(env="catch,gymnax/Pong-misc"), "Of gymnax/Pong-misc no scores of a random"),
        (dict(rule="pppo"), "There is no rule 'pppo'"),
    ],
)
def test_a_search_that_makes_no_sense_gets_a_sentence(settings, words):
    with pytest.raises(UserError, match=words):
        config = TuneConfig(**({"rule": "ppo"} | settings))
        _ = config.goals
        space_of(config)


def test_the_journal_is_json_and_a_mangled_one_gets_a_sentence(tmp_path):
    search(config_of(trials=2), tmp_path / "run")
    journal = tmp_path / "run" / JOURNAL
    lines = journal.read_text().splitlines()
    assert len(lines) > 4 and all(isinstance(json.loads(line), dict) for line in lines)
    journal.write_text("\n".join([*lines[:2], "[1]", *lines[2:], ""]))
    with pytest.raises(UserError, match=r"Line 3 of .*study.jsonl is damaged"):
        Study(journal, 0)
    journal.write_text("\n".join([*lines[:2], '{"op_code": 5}', ""]))
    with pytest.raises(UserError, match="is damaged"):
        Study(journal, 0)


def test_a_search_is_no_run_of_another_kind(tmp_path):
    search(config_of(trials=1, confirm=0), tmp_path / "run")
    with pytest.raises(UserError, match="is a search of `etude tune`; the runs"):
        api.resume(str(tmp_path / "run"))


# --- For real -------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_search_that_is_killed_with_its_processes_is_resumed(tmp_path):
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "COLUMNS": "200"}
    etude = [sys.executable, "-m", "etude", "tune"]
    asked = "--env catch:rows=4,columns=3 --rule actor_critic --fix torso=8,batch=8,rollout=4"
    asked += " --search learning_rate --trials 1 --confirm 0 --steps 320 --seeds 2 --out run"
    streams = dict(cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    process = subprocess.Popen([*etude, *asked.split(), "--processes", "1"], text=True, **streams)
    started, until = tmp_path / "run/trials/defaults/log.txt", time.monotonic() + 120
    while not started.exists():
        assert process.poll() is None and time.monotonic() < until
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    result = subprocess.run([*etude, "--resume", "run"], text=True, timeout=300, **streams)
    assert result.returncode == 0, result.stdout
    assert "1 trial finished, 0 pruned, 0 failed" in result.stdout
    assert (tmp_path / "run" / "best.json").is_file()
