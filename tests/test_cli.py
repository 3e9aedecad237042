"""The command line as its users meet it: real processes, killed, starved and mistyped."""

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from etude import __version__
from etude.cli import commands as cli
from etude.cli import hints, terminal
from etude.cli.progress import ProgressReport
from etude.runs.arrays import read_arrays
from etude.runs.folder import RunFolder

ROOT = Path(__file__).resolve().parent.parent
SMALL = ["--env", "catch:rows=4,columns=3", "--rule", "actor_critic", "--torso", "8"]
SMALL += ["--batch", "8", "--rollout", "4"]
LIVELY = [*SMALL, "--replay-share", "0.5", "--replay-capacity", "4096", "--log-every", "5"]


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    """No weights anywhere, no way out."""
    cache = tmp_path_factory.mktemp("cache")
    return {
        **{k: v for k, v in os.environ.items() if k != "ETUDE_WEIGHTS_DIR"},
        "XDG_CACHE_HOME": str(cache),
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")]),  # this tree, wherever it is
        "ETUDE_WEIGHTS_URL": "http://127.0.0.1:9/none.npz",
        "COLUMNS": "200",
    }


@pytest.fixture
def etude(environment, tmp_path):
    def call(*arguments, env=environment):
        return subprocess.run(
            [sys.executable, "-m", "etude", *map(str, arguments)],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            env=env,
            timeout=300,
        )

    return call


@pytest.fixture
def here(environment, tmp_path, monkeypatch, capsys):
    """The same in this process, which saves the time to start another."""

    def call(*arguments):
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(os, "environ", environment)
        monkeypatch.setattr(sys, "argv", ["etude", *map(str, arguments)])
        monkeypatch.setattr(cli, "_configure_jax", lambda: None)
        code: Any = 0
        try:
            cli.main()
        except SystemExit as exit_:
            code = exit_.code
        printed = capsys.readouterr()
        return subprocess.CompletedProcess(arguments, code, printed.out, printed.err)

    return call


def test_a_rule_that_learns_online_leaves_itself_and_its_figure(etude, here, tmp_path):
    settings = ["--env", "catch:rows=4,columns=3", "--rule", "metagrad", "--torso", "8"]
    settings += ["--batch", "8", "--rollout", "4", "--inner-updates", "2", "--steps", "2000"]
    result = etude("train", *settings, "--out", "run")
    assert result.returncode == 0, result.stderr
    names = {"rule.npz", "learned.png", "curve.png", "summary.json", "checkpoint"}
    assert names <= {p.name for p in (tmp_path / "run").iterdir()}
    record = json.loads((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()[-1])
    assert 0 < record["gamma"] < 1 and 0 < record["lambda"] < 1
    frozen = here("train", "--env", "catch:rows=4,columns=3", "--rule", "run", "--steps", 400)
    assert frozen.returncode == 0, frozen.stderr
    listed = here("reproduce", "--list")
    assert listed.returncode == 0 and "frodo-catch" in listed.stdout


def test_train_leaves_a_whole_run_folder_and_plot_and_play_use_it(etude, here, tmp_path):
    result = etude("train", *SMALL, "--steps", 3200, "--seeds", 2, "--out", "run", "--tensorboard")
    assert result.returncode == 0, result.stderr
    assert "final return" in result.stdout and "steps/s" in result.stdout
    run = tmp_path / "run"
    names = {"config.json", "metrics.jsonl", "checkpoint", "curve.png", "summary.json"}
    assert names <= {p.name for p in run.iterdir()}
    assert any((run / "tensorboard").iterdir())
    summary = json.loads((run / "summary.json").read_text())
    assert summary["environment_steps"] == 3200 and len(summary["params_sha256"]) == 64
    final = summary["final_return"]
    assert final["low"] <= final["mean"] <= final["high"]
    config = json.loads((run / "config.json").read_text())
    assert config["learning_rate"] is not None and config["torso"] == [8]

    assert here("plot", "run", "run", "--out", "both.png").returncode == 0
    assert (tmp_path / "both.png").read_bytes()[:4] == b"\x89PNG"
    played = here("play", "run", "--episodes", 2, "--seconds", 0.4)
    assert played.returncode == 0, played.stderr
    assert (run / "play.gif").read_bytes()[:3] == b"GIF" and "cut after 0.4 s" in played.stdout
    again = here("train", "--resume", "run")
    assert again.returncode == 0 and "final return" in again.stdout
    assert "Wrote run/report.html" in here("report", "run").stdout
    page = (run / "report.html").read_text()
    assert "etude train --env catch:rows=4,columns=3" in page and "image/gif" in page


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["train", "--env", "katch"], "did you mean 'catch'"),
        (["train", "--rule", "dsco103"], "did you mean 'disco103'"),
        (["train", "--rule", "disco103"], "put disco_103.npz into"),
        (["train", *SMALL, "--steps", "-3"], "steps must be at least 1"),
        (["train", *SMALL, "--learning-rate", "-0.1"], "learning_rate must be a positive"),
        (["train", *SMALL, "--steps", "many"], "many"),
        (["train", *SMALL, "--stepz", "3"], "--stepz"),
        (["train", "--resume", "nowhere"], "not a run folder"),
        (["train", "--resume", "nowhere", "--seed", "3"], "only --steps can change"),
        (["train", *SMALL, "--out", "/dev/null/run"], "Cannot write to"),
        (["train", *SMALL, "--checkpoint-seconds", "-1"], "checkpoint-seconds"),
        (["train", "--env", "catch", "--rule", "frodo", "--outer", "frdo"], "no rule 'frdo'"),
        (["train", "--env", "catch", "--rule", "frodo", "--replay-share", "0.5"], "no use for"),
        (["reproduce", "frodo-cach"], "did you mean 'frodo-catch'"),
        (["reproduce", "frodo-catch", "--seeds", "1"], "seeds must be at least 2"),
        (["discover", "--envs", "catch,katch"], "did you mean 'catch'"),
        (["discover", "--from", "disco103"], "put disco_103.npz into"),
        (["discover", "--agents", "0"], "agents must be at least 1"),
        (["discover", "--size", "huge"], "huge"),
        (["discover", "--held-out", "katch"], "did you mean 'catch'"),
        (["discover", "--resume", "nowhere"], "not a run folder"),
        (["discover", "--meta-schedule", "linear"], "linear"),
        (["discover", "--resume", "nowhere", "--agents", "3"], "only --meta-steps can change"),
        (["train", *SMALL, "--env", "catch:row=5", "--dry-run"], "did you mean 'rows'"),
        (["train", "--env", "krazy_world:level=eazy", "--dry-run"], "There is no level 'eazy'"),
        (["train", "--rule", "actor_critic:discoun=1", "--dry-run"], "did you mean 'discount'"),
        (["discover", "--envs", "catch:row=5", "--dry-run"], "did you mean 'rows'"),
        (["adapt", "--tasks", "catch", "--dry-run"], "catch is one task"),
        (["train", "--rule", "/"], "/ holds no rule.npz, as runs of etude train and discover do"),
        (["plot", "nowhere"], "not a run folder"),
        (["plot"], "run"),
        (["report"], "Name one or more folders"),
        (["report", "nowhere"], "There is no folder nowhere"),
        (["report", "nowhere", "--watch", "--out", "a.html"], "does not go with --out"),
        (["report", "nowhere", "--watch", "--port", "70000"], "--port must be from 0 to 65535"),
        (["adapt", "--tasks", "catch"], "catch is one task, not a distribution"),
        (["adapt", "--algo", "mamml"], "mamml"),
        (["adapt", "--algo", "maml", "--cell", "lstm"], "maml has no setting cell"),
        (["adapt", "--tasks", "maze:size=2"], "must be at least 4, not 2"),
        (["adapt", "--episodes", "2", "--explore", "2"], "nothing would be scored"),
        (["adapt", "--test", "nowhere"], "not a run folder"),
        (["adapt", "--test", "nowhere", "--batch", "3"], "and --seed can change here, not --batch"),
        (["play", "nowhere"], "not a run folder"),
        (["play", "nowhere", "--episodes", "0"], "episodes"),
        (["play", "nowhere", "--seed", "-1"], "--seed must be from 0"),
        (["play", "nowhere", "--seconds", "0"], "--seconds must be above 0"),
        (["play", "nowhere", "--show"], "--show needs a terminal"),
        (["train", "--env", "catch:max_steps_in_episode=0"], "must be at least 1, not 0"),
        (["train", "--resume", "nowhere", "--env", "catch"], "not --env"),
        (["tarin"], "no command 'tarin': did you mean 'train'?"),
        (["train", *SMALL, "--frame-stack", "100000000"], "frame_stack must be from 1 to 256"),
        (["train", *SMALL, "--lr", "0.1"], "no flag --lr: did you mean --learning-rate?"),
        (["train", *SMALL, "--steps", "1e320"], "steps must be at most 1,000,000,000,000,000"),
        (["train", *SMALL, "--steps", "1.5"], "'1.5' is not a whole number"),
        (["train", *SMALL, "--torso", *["8"] * 300], "torso must be 1 to 256 positive widths"),
    ],
)
def test_a_mistake_gets_a_sentence_and_exit_code_2(arguments, words, here, tmp_path):
    """The next test does the same in a real process."""
    result = here(*arguments)
    assert result.returncode == 2
    assert words in result.stderr + result.stdout
    assert not list(tmp_path.iterdir()), "a refused command leaves nothing behind"


def test_a_run_that_another_process_works_on_gets_no_events(here, tmp_path):
    assert here("train", *SMALL, "--steps", 320, "--out", "run").returncode == 0
    with RunFolder.open(str(tmp_path / "run")).locked():
        result = here("train", "--resume", "run", "--steps", 640, "--tensorboard")
    assert result.returncode == 2 and "Another process" in result.stderr
    assert not (tmp_path / "run" / "tensorboard").exists()


def test_a_mistake_ends_a_real_process_the_same_way(etude, tmp_path):
    result = etude("train", *SMALL, "--env", "katch")
    assert result.returncode == 2
    assert "did you mean 'catch'" in result.stderr and "Traceback" not in result.stderr
    assert not list(tmp_path.iterdir())


def test_whoever_stops_reading_gets_no_traceback(environment, tmp_path):
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-m", "etude", "adapt", "--help"]
    result = subprocess.run(
        command, stdout=write, stderr=subprocess.PIPE, text=True, env=environment, cwd=tmp_path
    )
    os.close(write)
    assert (result.returncode, result.stderr) == (1, "")


def test_lists(here):
    listed = here("envs").stdout
    assert "catch" in listed and "gymnax/Breakout-MinAtar" in listed and "10×10×4" in listed
    listed = here("rules").stdout
    assert "disco103" in listed and "discount=0.99" in listed and "V-trace" in listed
    assert "ranks" not in listed
    residual, sarsa = (listed.split(f"\n{x}  ")[1].split("\n\n")[0] for x in ("residual", "sarsa"))
    assert "scale_values=False" in residual and "bins=0" in residual  # those of the actor-critic
    assert "epsilon_end=0.05" in sarsa


def test_help_and_settings_wait_for_no_heavy_import(environment, tmp_path):
    code = """
import sys
import etude, etude.adaptation.config, etude.core.config, etude.meta.discovery.config
import etude.training.config, etude.training.presets
from etude.cli import commands
names = "train discover adapt compare tune reproduce envs rules plot play"
for command in [], *([x] for x in names.split()):
    sys.argv = ["etude", *command, "--help"]
    try:
        commands.main()
    except SystemExit as end:
        assert not end.code, command
print("heavy:", {"jax", "gymnax", "numpy", "matplotlib"} & sys.modules.keys())
"""
    assert "heavy: set()" in heavy(code, environment, tmp_path)


@pytest.mark.parametrize(
    "arguments",
    [
        ["envs"],
        ["envs", "atri"],
        ["rules"],
        ["reproduce", "--list"],
        ["reproduce", "frodo-cach"],
        ["plot", "--help"],
        ["plot", "nowhere"],
        ["train", "--env", "katch"],
        ["train", "--rule", "dsco103"],
        ["discover", "--envs", "katch"],
        ["tune", "--env", "katch"],
        ["compare", "--envs", "catch,katch"],
        ["compare", "--envs", "catch", "--rules", "ppo,dsco103"],
        ["train", "--resume", "nowhere"],
    ],
)
def test_names_are_known_without_jax(arguments, environment, tmp_path):
    code = f"""
import sys
from etude.cli import commands
sys.argv = ["etude", *{arguments}]
try:
    commands.main()
except SystemExit as end:
    assert end.code == (0 if "--help" in sys.argv else 2)
print("heavy:", {{"jax", "gymnax"}} & sys.modules.keys())
"""
    assert "heavy: set()" in heavy(code, environment, tmp_path)


def test_our_environments_do_not_import_gymnax(environment, tmp_path):
    code = """
import sys
from etude import envs
from etude.envs.catalogue import OURS
for name in OURS:
    envs.make(name)
print("heavy:", {"gymnax"} & sys.modules.keys())
"""
    assert "heavy: set()" in heavy(code, environment, tmp_path)


def heavy(code, environment, folder) -> str:
    command = [sys.executable, "-c", code]
    result = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=folder)
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.mark.parametrize(
    "command", ["train", "discover", "adapt", "tune", "compare", "reproduce", "plot", "play"]
)
def test_help_says_what_happens_by_default(command, here):
    text = " ".join(here(command, "--help").stdout.replace("│", " ").split())
    assert "None" not in text and "options options" not in text and "False" not in text


def test_a_dry_run_prints_the_plan_with_origins_and_does_nothing(here, tmp_path):
    result = here("train", *SMALL, "--steps", 3200, "--dry-run")
    assert result.returncode == 0, result.stderr
    rows = [line.split() for line in result.stdout.splitlines()]
    assert ["steps", "3200", "flag"] in rows and ["torso", "8", "flag"] in rows
    assert ["seed", "0", "default"] in rows
    assert ["learning_rate", "0.003", "preset", "actor_critic", "on", "catch"] in rows
    assert ": 1 seed, 8 environments, 100 updates." in result.stdout
    assert "nothing was written" in result.stdout
    for command, batch in (("discover", "32"), ("adapt", "64")):
        result = here(command, "--seed", 7, "--dry-run")
        rows = [line.split() for line in result.stdout.splitlines()]
        assert ["seed", "7", "flag"] in rows and ["batch", batch, "default"] in rows
    assert not list(tmp_path.iterdir())


def test_numbers_are_read_as_people_write_them(here):
    arguments = [*SMALL, "--steps", "1e6", "--torso", "64,32", "--seeds", "1_0"]
    result = here("train", *arguments, "--env", "catch:rows=1e1", "--dry-run")
    rows = [line.split() for line in result.stdout.splitlines()]
    assert ["steps", "1000000", "flag"] in rows and ["seeds", "10", "flag"] in rows
    assert ["torso", "64", "32", "flag"] in rows and ["log_every", "312"] in [x[:2] for x in rows]


def test_the_command_says_its_version(here):
    assert here("--version").stdout.startswith(f"etude {__version__} (Python 3.")


def test_all_commands_are_known(here):
    listed = re.findall(r"^\W+([a-z]+) ", here("--help").stdout, re.M)
    assert set(hints.COMMANDS) == {*listed} & {*cli.app._subcommands} == {*cli.app._subcommands}


def test_names_in_a_pipe_are_whole(here, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    lines = here("envs").stdout.splitlines()
    assert any("gymnax/Breakout-MinAtar" in line and "10×10×4" in line for line in lines)
    assert any(len(line) > 100 for line in lines)  # one line per environment


def test_an_interval_says_what_it_is_over_and_there_is_one_speed(capsys, tmp_path):
    score = {"mean": 0.5, "low": 0.2, "high": 0.7, "per_seed": [0.5]}
    summary = {"final_return": score, "seeds": 1, "environment_steps": 64, "updates": 4}
    summary |= {"seconds": 2.0, "steps_per_second": 32.0, "params_sha256": "0" * 64}
    terminal.print_training(summary, RunFolder(tmp_path))
    assert "95% interval over episodes of one seed: 0.2 to 0.7" in capsys.readouterr().out
    terminal.print_training(summary | {"seeds": 3}, RunFolder(tmp_path))
    printed = capsys.readouterr().out
    assert "over seeds and episodes" in printed and "32 steps/s, 3 seeds together" in printed
    report = ProgressReport(terminal.out, "", 4, lambda record: "", seeds=3)
    report({"updates": 1, "seconds": 1.0, "steps": 16})
    report({"updates": 4, "seconds": 4.0, "steps": 64})
    assert "48 steps/s, 3 seeds together" in capsys.readouterr().out  # 3 × 48 steps in 3 s


def test_a_dry_run_of_a_run_that_goes_on_shows_its_own_settings(here, tmp_path):
    assert here("train", *SMALL, "--steps", 320, "--out", "run").returncode == 0
    before = {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir()}
    result = here("train", "--resume", "run", "--steps", 640, "--dry-run")
    rows = [line.split() for line in result.stdout.splitlines()]
    assert ["steps", "640", "flag"] in rows and ["torso", "8", "run", "folder"] in rows
    assert {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir()} == before


def start(environment, folder, *arguments, command="train"):
    with open(folder / "stderr.txt", "w") as errors:
        return subprocess.Popen(
            [sys.executable, "-m", "etude", command, *map(str, arguments)],
            env=environment,
            cwd=folder,
            stdout=subprocess.DEVNULL,
            stderr=errors,
        )


def wait_for(condition, process, folder):
    while not condition():
        assert process.poll() is None, (folder / "stderr.txt").read_text()
        time.sleep(0.0005)


def digest(folder: Path) -> str:
    return json.loads((folder / "summary.json").read_text())["params_sha256"]


def logged(run: Path) -> list[int]:
    """The update numbers in the run's metrics so far."""
    path = run / "metrics.jsonl"
    text = path.read_text() if path.exists() else ""
    return [json.loads(line)["updates"] for line in text.splitlines() if line.endswith("}")]


def kill_when(process, condition, folder):
    wait_for(condition, process, folder)
    process.send_signal(signal.SIGKILL)
    process.wait()


@pytest.mark.slow
def test_killed_at_any_moment_a_run_goes_on_to_the_same_bits(environment, etude, tmp_path):
    """Kill points: before the first checkpoint, at random, and during a checkpoint's writing.

    Compiled and cached as users have it, not in the quick way of the other tests.
    """
    quick = ("XLA_FLAGS", "JAX_COMPILATION_CACHE_DIR")
    environment = {name: x for name, x in environment.items() if name not in quick}
    steps = ["--steps", 12_800, "--checkpoint-seconds", 0]
    assert etude("train", *LIVELY, *steps, "--out", "whole", env=environment).returncode == 0
    whole, run = tmp_path / "whole", tmp_path / "run"
    first = start(environment, tmp_path, *LIVELY, *steps, "--out", "run")
    kill_when(first, (run / "config.json").exists, tmp_path)
    resume = ["--resume", "run", "--checkpoint-seconds", 0]
    for more in random.Random(0).sample(range(3, 40), 1):
        enough = len(logged(run)) + more
        kill_when(
            start(environment, tmp_path, *resume),
            lambda n=enough: len(logged(run)) >= n,
            tmp_path,
        )
        read_arrays(run / "checkpoint")  # whole, whatever happened
    begun = len(logged(run))
    partial = run / ".checkpoint.partial"
    kill_when(
        start(environment, tmp_path, *resume),
        lambda: partial.exists() and len(logged(run)) > begun,
        tmp_path,
    )
    read_arrays(run / "checkpoint")
    assert not (run / "summary.json").exists(), "the run ended before it could be killed"
    result = etude("train", *resume, env=environment)
    assert result.returncode == 0, result.stderr
    assert any((Path(environment["XDG_CACHE_HOME"]) / "etude" / "xla").iterdir())
    assert digest(run) == digest(whole)
    assert logged(run) == logged(whole)


@pytest.mark.slow
def test_ctrl_c_saves_and_says_how_to_go_on(environment, etude, tmp_path):
    process = start(environment, tmp_path, *LIVELY, "--steps", 10**7, "--out", "run")
    wait_for((tmp_path / "run" / "metrics.jsonl").exists, process, tmp_path)
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=60) == 130
    _, header = read_arrays(tmp_path / "run" / "checkpoint")
    assert header["updates"] > 0


BANDIT = ["--tasks", "bandit:arms=2,pulls=4", "--hidden", 8, "--batch", 8, "--test-tasks", 8]


@pytest.mark.slow
def test_adapt_stops_goes_on_and_is_tested_watched_and_plotted(environment, here, tmp_path):
    arguments = [*BANDIT, "--checkpoint-seconds", 0, "--log-every", 1]
    more = ["--steps", 10**8, "--out", "run"]
    process = start(environment, tmp_path, *arguments, *more, command="adapt")
    run = tmp_path / "run"
    wait_for(lambda: len(logged(run)) >= 3, process, tmp_path)
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=60) == 130
    _, header = read_arrays(run / "checkpoint")
    config = json.loads((run / "config.json").read_text())
    steps = (header["updates"] + 2) * 8 * 5 * 4
    (run / "config.json").write_text(json.dumps(config | {"steps": steps}))
    resumed = here("adapt", "--resume", "run")
    assert resumed.returncode == 0, resumed.stderr
    assert "after adapting" in resumed.stdout and (run / "curve.png").is_file()
    whole = here("adapt", *BANDIT, "--log-every", 1, "--steps", steps, "--out", "whole")
    assert whole.returncode == 0, whole.stderr
    shas = {json.loads((tmp_path / x / "summary.json").read_text())["policy_sha256"]
            for x in ("run", "whole")}  # fmt: skip
    assert len(shas) == 1

    tested = here("adapt", "--algo", config["algo"], "--test", "run", "--test-tasks", 9)
    assert tested.returncode == 0 and "on 9 fresh tasks" in tested.stdout
    other = here("adapt", "--tasks", "maze", "--test", "run")
    assert other.returncode == 2 and "not maze" in other.stderr
    played = here("play", "run", "--episodes", 2)
    assert played.returncode == 0, played.stderr
    assert (run / "play.gif").read_bytes()[:3] == b"GIF"
    assert here("plot", "run", "whole", "--out", "both.png").returncode == 0


@pytest.mark.slow
def test_ctrl_c_ends_a_reproduction_at_once(environment, tmp_path):
    """Even while it is in a compiled program, and without a trace."""
    process = start(environment, tmp_path, "frodo-random-walk", "--out", "out", command="reproduce")
    wait_for((tmp_path / "out").exists, process, tmp_path)
    time.sleep(3)
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=5) == 130
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_a_full_disk_ends_the_run_with_a_sentence_and_keeps_the_last_checkpoint(
    environment, etude, tmp_path
):
    """A limit on file size stands in for the full disk: writing fails half-way through the file."""
    assert etude("train", *SMALL, "--steps", 640, "--log-every", 5, "--out", "run").returncode == 0
    good = (tmp_path / "run" / "checkpoint").read_bytes()
    limit = len(good) // 2
    arguments = ["train", "--resume", "run", "--steps", "64000", "--checkpoint-seconds", "0"]
    code = f"""
import resource, sys
from etude import __version__
from etude.cli import commands as cli
from etude.cli import hints
from etude.cli import terminal
from etude.cli.progress import ProgressReport
resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit}))
sys.argv = ["etude", *{arguments}]
cli.main()
"""
    result = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=environment,
    )
    assert result.returncode == 2
    assert "could not be written" in result.stderr and "still good" in result.stderr
    assert "Traceback" not in result.stderr
    assert (tmp_path / "run" / "checkpoint").read_bytes() == good
    assert not (tmp_path / "run" / ".checkpoint.partial").exists()


@pytest.mark.slow
def test_bad_numbers_end_the_run_with_the_step_and_the_cause(etude, tmp_path):
    arguments = [*SMALL, "--log-every", 5, "--steps", 64_000, "--checkpoint-seconds", 0]
    arguments[1] = "tests.probes:PoisonedReward"
    result = etude("train", *arguments, "--out", "run")
    assert result.returncode == 2
    assert "the reward is nan" in result.stderr and "environment step" in result.stderr
    arrays, _ = read_arrays(tmp_path / "run" / "checkpoint")
    assert all(np.isfinite(x).all() for n, x in arrays.items() if n.startswith("learner"))
