"""Many jobs side by side: what runs where, what is told, and what happens when something fails."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from etude.errors import UserError
from etude.placing.job import LOG, Job
from etude.placing.local import Claim, LocalPlaces, cores, on_one_core
from etude.placing.pace import Pace, Progress
from etude.placing.running import run_jobs
from etude.placing.sweeper import Sweeper

SOURCE = Path(__file__).resolve().parent.parent / "src"


def job(name: str, folder: Path, command: tuple[str, ...] = ("rules",), like: str = "") -> Job:
    """One that is done when its folder holds a file `done`."""
    folder.mkdir(exist_ok=True)
    done = folder / "done"
    return Job(name, command, folder, done.exists, lambda: float(done.exists()), like)


# --- Places that only pretend to run something ----------------------------------------------------


class Pretended:
    """Ends at the second look, with an exit code, unless it goes on until it is stopped."""

    def __init__(self, job: Job, code: int | None):
        self.job, self.code, self.looks, self.asked = job, code, 0, False

    def exit_code(self) -> int | None:
        self.looks += 1
        if self.code is None or self.looks < 2:
            return None
        if self.code == 0:
            (self.job.folder / "done").touch()
        return self.code

    def last_words(self) -> str:
        return "etude: it cannot be." if self.code == 2 else ""

    def ask_to_stop(self) -> None:
        self.asked = True

    def end(self, seconds: float) -> None:
        assert self.asked and seconds > 0


class PretendedPlaces:
    def __init__(self, number: int, codes: dict[str, int | None]):
        self.number, self.codes = number, codes
        self.log: list[tuple[str, int]] = []
        self.placed: list[Pretended] = []

    def start(self, job: Job, place: int) -> Pretended:
        self.log.append((job.name, place))
        self.placed.append(Pretended(job, self.codes.get(job.name, 0)))
        return self.placed[-1]


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr("etude.placing.running.LOOK_EVERY", 0.001)


def jobs_in(folder: Path, names: str) -> list[Job]:
    return [job(name, folder / name) for name in names]


def test_others_go_on_when_one_fails_if_that_is_wanted(tmp_path, quick):
    places = PretendedPlaces(2, {"b": 2, "d": -9, "e": 1})
    told: list[Progress] = []
    failed = run_jobs(jobs_in(tmp_path, "abcdef"), places, keep_going=True, report=told.append)
    assert failed == {
        "b": "it cannot be.",
        "d": "it was killed by signal 9; if memory is short, by the system.",
        "e": "exit code 1.",
    }
    assert [name for name, _ in places.log] == list("abcdef")
    assert places.log[:2] == [("a", 0), ("b", 1)]
    assert {place for _, place in places.log} == {0, 1}
    assert (told[-1].done, told[-1].failed, told[-1].total) == (3, 3, 6)
    assert told[-1].share == 1.0 and told[-1].running == ()


def test_otherwise_all_stop_and_nothing_else_begins(tmp_path, quick):
    places = PretendedPlaces(2, {"a": None, "b": 2})
    with pytest.raises(UserError, match=r"b stopped: it cannot be\.$"):
        run_jobs(jobs_in(tmp_path, "abc"), places)
    assert [name for name, _ in places.log] == ["a", "b"]
    assert places.placed[0].asked and not places.placed[1].asked  # b had ended


def test_what_raises_before_a_start_stops_those_under_way(tmp_path, quick):
    places, calls = PretendedPlaces(2, {"a": None}), []

    def before_each() -> None:
        calls.append(1)
        if len(calls) == 2:
            raise UserError("The code was changed.")

    with pytest.raises(UserError, match="changed"):
        run_jobs(jobs_in(tmp_path, "ab"), places, before_each=before_each)
    assert places.log == [("a", 0)] and places.placed[0].asked


# --- Time left ------------------------------------------------------------------------------------


class Shares(dict[str, float]):
    """By the names of jobs."""

    def job(self, name: str, like: str = "", share: float = 0.0) -> Job:
        self[name] = share
        return Job(name, (), Path(), lambda: False, lambda: self[name], like)


def test_time_left_is_that_of_jobs_like_those_that_were_seen():
    now, shares = 0.0, Shares()
    slow, fast, other = (shares.job(*x) for x in (("s", "x"), ("f", "y"), ("o", "y")))
    done = shares.job("d", "x", 0.5)  # was begun before
    pace = Pace([slow, fast, other, done], places=2, clock=lambda: now)
    assert pace.progress() == Progress(0.125, None, (), 0, 0, 4)
    pace.started(slow)
    pace.started(fast)
    now = 10.0
    shares.update(s=0.2, f=0.5)
    seen = pace.progress()
    # slow takes 50 s, fast 20 s; by them, other takes 20 s and what is left of done takes 25 s.
    assert seen.running == ("s", "f")
    assert seen.seconds_left == pytest.approx((40 + 10 + 20 + 25) / 2)
    assert seen.share == pytest.approx(1 - 95 / 140)
    now, shares["f"] = 20.0, 1.0
    pace.ended(fast)
    pace.started(other)
    pace.started(done)
    now = 50.0
    shares.update(s=0.5, o=0.99, d=0.9)
    # done was at 0.5: 0.4 of it took 30 s here, so that all of it takes 75 s.
    assert pace.progress().seconds_left == pytest.approx(50.0, abs=1.0)  # slow alone
    pace.ended(other, failed=True)
    assert (pace.progress().done, pace.progress().failed) == (1, 1)


def test_a_job_alone_is_not_shared_out():
    now, shares = 0.0, Shares()
    alone = shares.job("a")
    pace = Pace([alone], places=4, clock=lambda: now)
    pace.started(alone)
    now, shares["a"] = 30.0, 0.25
    assert pace.progress().seconds_left == pytest.approx(90.0)


# --- Processes of this machine --------------------------------------------------------------------


def test_processes_get_cores_of_their_own():
    there_are = cores()
    everyone = LocalPlaces()
    assert everyone.number == len(there_are)
    assert sorted(core for place in everyone._cores for core in place) == there_are
    assert LocalPlaces(1)._cores == [there_are]
    for wrong in (0, len(there_are) + 1):
        with pytest.raises(UserError, match="--processes must be from 1 to"):
            LocalPlaces(wrong)


def test_a_command_runs_in_a_process_and_its_log_is_kept(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(SOURCE))
    # A module of that name, where the user stands, is not for us.
    (tmp_path / "runpy.py").write_text("raise SystemExit('not this one')")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "good").mkdir()
    (tmp_path / "good" / LOG).write_text("from before\n")
    good = job("good", tmp_path / "good")
    bad = job("bad", tmp_path / "bad", ("train", "--env", "cach"))
    failed = run_jobs([good, bad], LocalPlaces(1), keep_going=True)
    log = (good.folder / LOG).read_text()
    assert log.startswith("from before\n") and "actor_critic" in log
    assert "did you mean 'catch'" in failed["bad"] and not failed["bad"].startswith("etude")
    assert failed["good"].startswith("Settings follow a colon")  # it left no file `done`


PARENT = """
import sys, time
from pathlib import Path
from etude import stopping
from etude.placing.job import Job
from etude.placing.running import run_jobs
from etude.placing.local import LocalPlaces
stopping.listen()
folder = Path(sys.argv[1])
run = ("train", "--out", str(folder / "run"), "--env", "catch", "--rule", "actor_critic",
       "--steps", "100000000", "--log-every", "1", "--torso", "8", "--batch", "4", "--rollout", "4")
job = Job("a", run, folder, lambda: False, lambda: 0.0)
with stopping.telling(print, "told"):
    run_jobs([job], LocalPlaces(1))
"""


@pytest.mark.slow
@pytest.mark.parametrize("how", ["asked", "killed"])
def test_jobs_end_with_the_process_that_started_them(tmp_path, how):
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    command = [sys.executable, "-c", PARENT, str(tmp_path)]
    parent = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
    until = time.monotonic() + 60
    while not (tmp_path / "run" / "metrics.jsonl").exists() and time.monotonic() < until:
        time.sleep(0.1)
    parent.send_signal(signal.SIGINT if how == "asked" else signal.SIGKILL)
    out, _ = parent.communicate(timeout=60)
    assert (parent.returncode, out) == ((130, "told\n") if how == "asked" else (-9, ""))
    log = tmp_path / LOG
    while "Stopped and saved" not in log.read_text() and time.monotonic() < until:
        assert how == "killed"  # it was waited for
        time.sleep(0.1)
    assert "Stopped and saved" in log.read_text()
    assert (tmp_path / "run" / "checkpoint").exists()


@pytest.mark.skipif(sys.platform != "linux", reason="needs Linux")
def test_claims_of_cores_exclude_each_other():
    everyone = cores()
    among = f"etude-test-{os.getpid()}"
    one, other = Claim(1, among), Claim(len(everyone) - 1, among)
    assert sorted(one.cores + other.cores) == everyone
    assert Claim(1, among).cores == everyone  # none is free: all are shared
    one.release()
    again = Claim(1, among)
    assert again.cores == one.cores
    again.release()
    other.release()


@pytest.mark.skipif(sys.platform != "linux", reason="needs Linux")
def test_on_one_core_all_threads_are_and_then_no_longer():
    before = os.sched_getaffinity(0)
    with on_one_core():
        each = [os.sched_getaffinity(int(x)) for x in os.listdir("/proc/self/task")]
        assert each == [{min(before)}] * len(each)
    assert os.sched_getaffinity(0) == before


@pytest.mark.skipif(sys.platform != "linux", reason="needs Linux")
def test_what_is_left_of_a_cluster_is_swept_when_its_driver_is_gone(tmp_path):
    room = tmp_path / "room"
    (room / "session").mkdir(parents=True)
    holds = "import sys, time; file = open(sys.argv[1], 'w'); print(flush=True); time.sleep(60)"
    left = subprocess.Popen(
        [sys.executable, "-c", holds, str(room / "session" / "log")], stdout=subprocess.PIPE
    )
    with left, (room / "session" / "own").open("w"):  # the latter is the driver's
        assert left.stdout is not None
        left.stdout.readline()
        Sweeper(str(room)).sweep()
        assert left.wait(10) == -signal.SIGKILL and not room.exists()
