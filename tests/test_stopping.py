"""Signals in small processes of their own: never lost, never an exception, nothing half-made."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from etude.cli import streams
from etude.runs import folder as folders
from etude.runs.folder import RunFolder

SOURCE = Path(__file__).resolve().parent.parent / "src"
START = """
import hashlib, sys, time
from etude import stopping
stopping.listen()
def ready():
    print("ready", flush=True)
"""


HEARS_ALL = "import signal; signal.signal(signal.SIGHUP, signal.SIG_DFL)"


def begun(code: str, before: str = "") -> subprocess.Popen:
    """A process that has said that it is ready, with a shell's command before it."""
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    pipes = dict(stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    # The tests themselves may run under nohup, which they would hand on.
    code = START + code if before else HEARS_ALL + START + code
    command = ["sh", "-c", f'{before} exec "$0" "$@"', sys.executable, "-c", code]
    process = subprocess.Popen(command, env=environment, **pipes)
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    return process


def ended(process: subprocess.Popen) -> tuple[int, str, str]:
    try:
        out, errors = process.communicate(timeout=20)
    finally:
        process.kill()  # if it is still there
    return process.returncode, out, errors


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
def test_work_is_saved_at_the_first_signal(number, code):
    process = begun("""
with stopping.unsaved_work():
    ready()
    while not stopping.asked():
        time.sleep(0.01)
    time.sleep(0.3)
    print("saved")
sys.exit(stopping.exit_code())
""")
    process.send_signal(number)
    returned, out, errors = ended(process)
    assert (returned, out) == (code, "saved\n")
    assert "then saving, within 25 s" in errors and "Traceback" not in errors


def test_a_second_signal_stops_at_once_and_duties_are_done():
    process = begun("""
with stopping.last_duty(lambda: print("workers are killed", flush=True)), stopping.unsaved_work():
    ready()
    time.sleep(60)
""")
    process.send_signal(signal.SIGTERM)
    time.sleep(0.2)
    process.send_signal(signal.SIGTERM)
    assert ended(process)[:2] == (143, "workers are killed\n")


def test_saving_that_takes_too_long_is_cut_short():
    process = begun("""
with stopping.telling(lambda x: print(x, flush=True), "Go on.", 0.3), stopping.unsaved_work():
    ready()
    time.sleep(60)
""")
    started = time.monotonic()
    process.send_signal(signal.SIGTERM)
    returned, out, _ = ended(process)
    assert returned == 143 and 0.3 <= time.monotonic() - started < 10
    assert "Not saved within 0.3 s" in out and "Go on." in out


def test_what_was_saved_in_time_is_not_said_to_be_lost():
    """An overloaded machine may take longer than that to end a process."""
    process = begun("""
with stopping.telling(lambda x: print(x, flush=True), "Go on.", 0.3):
    with stopping.unsaved_work():
        ready()
        stopping._request.came.wait()
    time.sleep(60)
""")
    process.send_signal(signal.SIGTERM)
    returned, out, _ = ended(process)
    assert returned == 143 and "Go on." in out and "Not saved" not in out


def test_a_signal_is_heard_inside_a_compiler():
    """A call that does not come back to Python stands for it."""
    process = begun("ready()\nhashlib.pbkdf2_hmac('sha256', b'', b'', 10**8)")
    started = time.monotonic()
    process.send_signal(signal.SIGINT)
    returned, _, errors = ended(process)
    assert (returned, errors) == (130, "") and time.monotonic() - started < 10


def test_a_signal_in_a_callback_of_the_garbage_collector_is_not_lost():
    process = begun("""
import gc
gc.callbacks.append(lambda *_: time.sleep(0.001))
ready()
while True:
    gc.collect()
""")
    process.send_signal(signal.SIGINT)
    assert ended(process) == (130, "", "")


def test_what_must_not_be_cut_is_finished_first():
    process = begun("""
with stopping.held():
    ready()
    time.sleep(0.5)
    print("made", flush=True)
print("never")
""")
    process.send_signal(signal.SIGTERM)
    assert ended(process)[:2] == (143, "made\n")


def test_nohup_is_respected():
    process = begun("ready()\ntime.sleep(0.3)\nprint('done')", "trap '' HUP;")
    process.send_signal(signal.SIGHUP)
    assert ended(process)[:2] == (0, "done\n")


def test_a_folder_whose_making_was_killed_can_be_made_again(tmp_path):
    path = tmp_path / "run"
    folder = RunFolder.create(str(path), "")
    with pytest.raises(KeyboardInterrupt), folder.being_made():
        (path / "rule.npz").write_text("half")
        raise KeyboardInterrupt
    again = RunFolder.create(str(path), "")
    with again.being_made():
        again.write_config({"kind": "train"})
    assert {x.name for x in path.iterdir()} == {"rule.npz", folders.CONFIG}
    with pytest.raises(folders.UserError, match="is there already"):
        RunFolder.create(str(path), "")


def test_a_checkpoint_that_is_gone_is_missed(tmp_path):
    folder = RunFolder.create(str(tmp_path / "run"), "")
    assert folder.restore({}) is None
    folder.save({}, 3, 1.0)
    (folder.path / folders.CHECKPOINT).unlink()
    with pytest.raises(folders.UserError, match="which is missing"):
        folder.restore({})


# --- Standard output ------------------------------------------------------------------------------

PRINTS = """
import sys
from etude.cli import streams
with streams.forgiving():
    {matter}
    from etude.cli.terminal import say
    for i in range(3000):
        say(f"update {{i}} · return − … × γ")
    open("done", "w").close()
"""


def printing(folder, matter="streams.files_matter()", where="", **options):
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)} | options.pop("env", {})
    command = ["sh", "-c", f'exec "$0" "$@" {where}', sys.executable, "-c"]
    command.append(PRINTS.format(matter=matter))
    return subprocess.run(
        command, stderr=subprocess.PIPE, cwd=folder, env=environment, timeout=60, **options
    )


@pytest.mark.parametrize("where", ["/dev/full", "a closed pipe", "nowhere"])
def test_standard_output_does_not_end_a_run(where, tmp_path):
    if where == "/dev/full":
        with open(where, "w") as full:
            result = printing(tmp_path, stdout=full)
    elif where == "nowhere":
        result = printing(tmp_path, where=">&-")
    else:
        read, write = os.pipe()
        os.close(read)
        result = printing(tmp_path, stdout=write)
        os.close(write)
    assert (result.returncode, result.stderr) == (0, b"") and (tmp_path / "done").exists()


def test_what_only_prints_says_that_it_could_not(tmp_path):
    with open("/dev/full", "w") as full:
        result = printing(tmp_path, "", stdout=full)
    assert result.returncode == 1 and b"No space left on device" in result.stderr


@pytest.mark.parametrize(
    ("encoding", "line"),
    [
        ("ascii", b"update 0 - return - ... x gamma"),
        ("latin-1", b"update 0 \xb7 return - ... \xd7 gamma"),
    ],
)
def test_a_terminal_without_our_characters_shows_others(encoding, line, tmp_path):
    result = printing(tmp_path, stdout=subprocess.PIPE, env={"PYTHONIOENCODING": encoding})
    assert result.returncode == 0 and result.stdout.splitlines()[0] == line


def test_all_of_our_characters_have_others_in_ascii():
    texts = [path.read_text() for path in (SOURCE / "etude").rglob("*.py")]
    ours = {x for text in texts for x in text if not x.isascii()} - {"\ufffd"}
    assert "−" in ours and not {x for x in ours if streams.in_ascii(x) == "?"}
    assert "".join(map(streams.in_ascii, "½ ŷ − ñ 語")) == "1/2 y - n ?"
