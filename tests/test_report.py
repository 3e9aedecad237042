"""Reports: what a page says of a folder, and that it says nothing but text, whatever lies there."""

import base64
import hashlib
import http.client
import json
import os
import random
import re
import signal
import subprocess
import sys
import threading
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from etude.errors import UserError
from etude.kinds import KINDS
from etude.report import serve
from etude.report.build import build
from etude.report.curves import Detail, line, thinned
from etude.report.folders import stamp
from etude.report.page import Curves, Film, Line, Page, Paragraph, Table
from etude.report.render import render, render_main
from etude.report.write import write_report
from tests import fuzz, pages
from tests.damage import damage_json
from tests.sound import write_sound

ROOT = Path(__file__).resolve().parent.parent


def blocks(page: Page, kind: type) -> list:
    return [x for part in page.parts for x in part.blocks if isinstance(x, kind)]


def titled(page: Page, title: str):
    return next(x for part in page.parts for x in part.blocks if getattr(x, "title", None) == title)


# --- Curves ---------------------------------------------------------------------------------------


def test_curves_are_thinned_to_means_of_stretches():
    x = np.arange(6.0)
    values = np.array([[1.0], [3.0], [np.nan], [5.0], [7.0], [9.0]])
    thin_x, thin = thinned(x, values, 2)  # the row without a value is left out: 2 and 3 remain
    np.testing.assert_allclose(thin_x, [0.5, 4.0])
    np.testing.assert_allclose(thin, [[2.0], [7.0]])
    same_x, same = thinned(x, values, 5)
    np.testing.assert_allclose(same_x, [0, 1, 3, 4, 5])
    assert same.shape == (5, 1)


def test_a_stretch_is_the_mean_of_what_a_seed_has_there():
    values = np.array([[1.0, np.nan], [3.0, 4.0], [np.nan, 5.0], [np.nan, 7.0]])
    _, thin = thinned(np.arange(4.0), values, 2)
    np.testing.assert_allclose(thin, [[2.0, 4.0], [np.nan, 6.0]])


def test_a_band_stays_within_what_was_seen():
    by_seed = np.array([[0.0, 1.0, 5.0], [2.0, 2.0, 2.0]])
    drawn = line("x", np.arange(2.0), by_seed, 10)
    np.testing.assert_allclose(drawn.y, [2.0, 2.0])
    np.testing.assert_allclose(drawn.low, [0.0, 2.0])  # Student's interval is -4.57 to 8.57
    np.testing.assert_allclose(drawn.high, [5.0, 2.0])


def test_a_page_of_many_folders_has_room_for_few_points_of_each():
    assert Detail.among(1).points == 400 and Detail.among(100).points == 150
    assert 100 * Detail.among(100).film_bytes <= 3 << 20


def test_a_figure_is_told_in_words():
    lines = [Line(f"run {i}", np.array([1.0, 2000.0]), np.array([0.5, i])) for i in range(8)]
    told = Curves("Return", "steps", "return", lines).described
    assert told.startswith("return by steps, 8 lines. run 0: 0.5 at 1, 0 at 2,000;")
    assert told.endswith("and 2 more.")


# --- Pages ----------------------------------------------------------------------------------------


def test_a_training_run_is_told_in_full(tmp_path):
    path = pages.training(tmp_path / "run")
    (path / "play.gif").write_bytes(pages.GIF)
    page = build([str(path)])
    assert page.title == "ppo on catch" and "finished" in page.lead and "3 seeds" in page.lead
    assert "95% interval" in titled(page, "Results").rows["final return"]
    settings = {row[0].text: row[1].text for row in titled(page, "Settings").rows}
    assert settings["torso"] == "8 8" and "made" not in settings
    assert titled(page, "Commands").lines["What was run"] == pages.MADE["command"]
    origin = titled(page, "Environment and versions").rows
    assert origin["etude"] == "0.1.0" and origin["device"] == "cpu"
    curve = titled(page, "Episode return")
    assert [x.label for x in curve.lines] == ["mean", "seed 0", "seed 1", "seed 2"]
    assert [x.hidden for x in curve.lines] == [False, True, True, True]
    assert {x.label for x in titled(page, "Losses").lines} == {"loss", "pi loss"}
    assert any("episode length 4" in x.text for x in blocks(page, Paragraph))
    assert base64.b64encode(pages.GIF).decode() in render(page)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("missing", [[], ["summary.json"], ["summary.json", "metrics.jsonl"]])
def test_every_kind_of_run_has_a_page_at_every_stage(kind, missing, tmp_path):
    folder = write_sound(tmp_path / "run", kind)
    for name in missing:
        (folder.path / name).unlink()
    page = build([str(folder.path)])
    assert ("not finished" in page.lead) == bool(missing)
    assert bool(blocks(page, Curves)) == ("metrics.jsonl" not in missing)
    assert "<h1>" in render_main(page)


def test_a_comparison_says_which_rule_is_best_and_how_sure_that_is(tmp_path):
    page = build([str(pages.comparison(tmp_path / "it"))])
    assert page.title == "ppo, actor_critic on catch, bandit"
    best = titled(page, "All environments together")
    assert [row[0].text for row in best.rows] == ["ppo", "actor_critic"]
    assert {row[-1].tone for row in best.rows} == {"open"}  # they are alike
    (pair,) = titled(page, "Probability of improvement").rows
    assert pair[-1].text == "cannot be told"
    catch = titled(page, "catch")
    assert [(x.label, x.look) for x in catch.lines] == [("ppo", 0), ("actor_critic", 1)]
    assert catch.levels == {"random": -1.0, "reference": 1.0}
    assert all(np.all(x.low <= x.y) and np.all(x.y <= x.high) for x in catch.lines)
    assert len(titled(page, "Cells").rows) == 4
    settings = titled(page, "Settings that differ")
    assert {"learning_rate", "epochs"} & {*settings.columns}
    assert titled(page, "Commands").lines["What was run"] == pages.MADE["command"]
    assert "<h1>" in render_main(page)


def test_a_cell_that_failed_is_one_line(tmp_path):
    page = build([str(pages.comparison(tmp_path / "it", fails="ppo"))])
    (line_,) = [x.text for x in blocks(page, Paragraph) if x.warns]
    assert line_ == "Failed: ppo on bandit: it was killed"
    states = [row[-1].text for row in titled(page, "Cells").rows]
    assert states == ["done", "done", "failed: it was killed", "done"]
    assert [x.look for x in titled(page, "bandit").lines] == [1]  # the colour stays


def test_a_comparison_that_goes_on_tells_how_far_its_runs_are(tmp_path):
    path = pages.comparison(tmp_path / "it")
    (path / "summary.json").unlink()
    cell = next((path / "cells").iterdir())
    (cell / "summary.json").unlink()
    page, before = build([str(path)]), stamp(str(path))
    assert "not finished" in page.lead and titled(page, "Runs").note == "3 of 4 runs finished."
    (cell / "metrics.jsonl").write_text("")
    assert stamp(str(path)) != before


def test_a_summary_leads_nowhere_else(tmp_path):
    path = pages.comparison(tmp_path / "it")
    pages.training(tmp_path / "elsewhere", rule="mine")
    text = (path / "summary.json").read_text()
    (path / "summary.json").write_text(re.sub(r"cells/[^\"/]+\"", '../elsewhere"', text))
    assert titled(build([str(path)]), "catch").lines == []


def test_a_search_says_what_mattered(tmp_path):
    page = build([str(pages.search(tmp_path / "it"))])
    assert titled(page, "Results").rows["chosen"] == "trial 1, score 0.8"
    assert list(titled(page, "What mattered").bars) == ["learning_rate", "entropy_cost"]
    words = [row[-1].text for row in titled(page, "Contenders").rows]
    assert words == ["none", "learning_rate 0.01, entropy_cost 0.1"]
    np.testing.assert_allclose(titled(page, "The search").lines[1].y, [np.nan, 0.9])
    assert "best.json" in titled(page, "Use what was found").lines[""]


def test_a_reproduction_shows_its_verdicts(tmp_path):
    page = build([str(pages.reproduction(tmp_path / "it"))])
    assert page.title == "FRODO learns to bootstrap on Catch."
    assert "1 of 2 claims hold" in page.lead
    assert [row[-1].tone for row in titled(page, "Verdicts").rows] == ["good", "bad"]
    values = titled(page, "Values")
    assert (values.x_label, values.y_label, values.levels) == (
        "switches", "value error", {"best fixed": 0.5},
    )  # fmt: skip
    assert titled(page, "Ends").bars["MAML"][0] == pytest.approx(0.3)
    assert titled(page, "Commands").lines == {"What was run": "etude reproduce frodo-catch"}


def test_a_short_reproduction_has_no_verdicts(tmp_path):
    page = build([str(pages.reproduction(tmp_path / "it", quick=True))])
    (warning,) = [x.text for x in blocks(page, Paragraph) if x.warns]
    assert "says nothing of the claims" in warning and "short version" in page.lead
    assert not any(x.title == "Verdicts" for x in blocks(page, Table))


def test_several_folders_share_a_page(tmp_path):
    runs = [
        pages.training(tmp_path / name, rule=rule) for name, rule in zip("abc", "xxy", strict=True)
    ]
    paths = [*map(str, runs), str(pages.reproduction(tmp_path / "it"))]
    page = build(paths)
    assert [part.anchor for part in page.parts] == ["overview", "run-1", "run-2", "run-3", "run-4"]
    overview = titled(page, "All folders")
    assert [row[0].link for row in overview.rows] == ["run-1", "run-2", "run-3", "run-4"]
    labels = [x.label for x in titled(page, "catch").lines]
    assert labels == ["x (a)", "x (b)", "y (c)"]
    assert all(part.folded for part in page.parts[1:])


def test_films_that_are_none_or_too_large_are_left_out(tmp_path):
    path = pages.training(tmp_path / "run")
    for data, words in ((b"<svg>", "not a GIF"), (b"GIF89a" + bytes(4 << 20), "4.2 MB")):
        (path / "play.gif").write_bytes(data)
        page = build([str(path)])
        assert not blocks(page, Film)
        assert any(words in x.text for x in blocks(page, Paragraph))


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({}, "neither a run folder nor one of"),
        ({"summary.json": "{}"}, "neither a run folder nor one of"),
        ({"summary.json": '{"experiment": 3}'}, "is damaged"),
        ({"config.json": '{"kind": "dance"}'}, "a kind that this version"),
        ({"config.json": "{}"}, "a kind that this version"),
    ],
)
def test_other_folders_get_a_sentence(files, words, tmp_path):
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    with pytest.raises(UserError, match=words):
        build([str(tmp_path)])


# --- Folders of others ----------------------------------------------------------------------------

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>{{ 7*7 }}\"'`&amp;\u202e"


class Elements(HTMLParser):
    """All elements of a page, with their attributes, and the texts of scripts."""

    def __init__(self, page: str):
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.inside = False
        self.scripts: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))
        if tag == "script":
            self.scripts.append("")
            self.inside = True

    def handle_endtag(self, tag):
        self.inside = self.inside and tag != "script"

    def handle_data(self, data):
        if self.inside:
            self.scripts[-1] += data


def hostile_page(tmp_path: Path) -> str:
    names = dict(env=HOSTILE, rule=HOSTILE)
    first = pages.training(tmp_path / "<b>bold<", **names)
    second = pages.training(tmp_path / "b", **names)
    config = json.loads((second / "config.json").read_text())
    made = pages.MADE | {"command": HOSTILE, "versions": {HOSTILE: HOSTILE}}
    (second / "config.json").write_text(json.dumps(config | {HOSTILE: HOSTILE, "made": made}))
    third = pages.reproduction(tmp_path / "c")
    text = (third / "summary.json").read_text()
    quoted = json.dumps(HOSTILE)[1:-1]
    for word in ("frodo-catch", "FRODO", "best fixed", "It is above 0.", "MAML", "It is small."):
        text = text.replace(f'"{word}"', f'"{quoted}"')
    (third / "summary.json").write_text(text)
    return render(build([str(first), str(second), str(third)]))


def test_what_a_folder_holds_is_shown_as_text_alone(tmp_path):
    page = hostile_page(tmp_path)
    elements = Elements(page)
    tags = {tag for tag, _ in elements.found}
    assert not tags & {"img", "iframe", "object", "form", "b"}
    for _, attributes in elements.found:
        assert not [name for name in attributes if name.startswith("on")]
        targets = [attributes.get(name) or "#" for name in ("src", "href", "action")]
        assert all(x.startswith(("#", "data:,")) for x in targets)
    assert "49" not in re.findall(r"onerror=alert\(2\)&gt;(.{2})", page)
    labels = [
        one["label"]
        for script in elements.scripts
        if script.startswith("{")
        for one in json.loads(script).get("lines", [])
    ]
    assert any(HOSTILE in label for label in labels)  # whole, where it is data


def test_only_our_scripts_may_run(tmp_path):
    elements = Elements(hostile_page(tmp_path))
    (policy,) = [
        attributes["content"] for tag, attributes in elements.found
        if tag == "meta" and attributes.get("http-equiv") == "Content-Security-Policy"
    ]  # fmt: skip
    allowed = set(re.findall(r"'sha256-([^']+)'", policy or ""))
    kinds = [attributes.get("type") for tag, attributes in elements.found if tag == "script"]
    ours = [s for s, kind in zip(elements.scripts, kinds, strict=True) if kind is None]
    digests = {base64.b64encode(hashlib.sha256(x.encode()).digest()).decode() for x in ours}
    assert len(ours) == 2 and digests < allowed and len(allowed) == 3  # the third is Plotly's
    assert {*kinds} == {None, "application/json", "application/octet-stream"}
    assert "unsafe-eval" not in policy and "script-src 'unsafe" not in policy
    assert "default-src 'none'" in policy and "connect-src 'none'" in policy


@pytest.mark.parametrize("kind", KINDS)
def test_damaged_folders_have_a_page_or_get_a_sentence(kind, tmp_path):
    chance, refused = random.Random(0), 0
    folder = write_sound(tmp_path / "run", kind)
    names = ("config.json", "metrics.jsonl", "summary.json")
    sound = {name: (folder.path / name).read_bytes() for name in names}
    for _ in range(30):
        name = chance.choice(names)
        (folder.path / name).write_bytes(fuzz.DAMAGE[name](sound[name], chance))
        try:
            render_main(build([str(folder.path)]))
        except UserError:
            refused += 1
        (folder.path / name).write_bytes(sound[name])
    assert 0 < refused < 30


@pytest.mark.parametrize("make", [pages.reproduction, pages.comparison, pages.search])
def test_damaged_summaries_have_a_page_or_get_a_sentence(make, tmp_path):
    chance, path = random.Random(0), make(tmp_path / "it") / "summary.json"
    sound = path.read_bytes()
    for _ in range(10):
        path.write_bytes(damage_json(sound, chance))
        try:
            render_main(build([str(path.parent)]))
        except UserError:
            continue


# --- Files and servers ----------------------------------------------------------------------------


def test_the_page_goes_into_the_folder_or_here_and_links_are_replaced(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path, other = pages.training(tmp_path / "a"), tmp_path / "precious"
    other.write_text("mine")
    (path / "report.html").symlink_to(other)
    assert write_report([str(path)], None) == path / "report.html"
    assert other.read_text() == "mine" and not (path / "report.html").is_symlink()
    second = pages.training(tmp_path / "b")
    assert write_report([str(path), str(second)], None) == Path("report.html")
    assert (tmp_path / "report.html").read_text().startswith("<!doctype html>")
    with pytest.raises(UserError, match="cannot be written to"):
        write_report([str(path)], "nowhere/a.html")


@pytest.fixture
def served(tmp_path):
    path = pages.training(tmp_path / "run")
    (path / "summary.json").unlink()
    addresses: list[str] = []
    ready = threading.Event()

    def begin(url: str) -> None:
        addresses.append(url)
        ready.set()

    threading.Thread(target=serve.serve, args=([str(path)], 0, begin), daemon=True).start()
    assert ready.wait(20)
    return path, int(addresses[0].rstrip("/").rpartition(":")[2])


def get(port: int, path: str, **headers: str) -> tuple[int, str, str | None]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    connection.request("GET", path, headers={k.replace("_", "-"): v for k, v in headers.items()})
    answer = connection.getresponse()
    found = answer.status, answer.read().decode(), answer.getheader("ETag")
    connection.close()
    return found


def test_a_live_page_is_new_only_when_its_folder_is(served):
    path, port = served
    assert "connect-src &#39;self&#39;" in get(port, "/")[1]
    status, main, tag = get(port, "/main")
    assert status == 200 and "4,000 of 4,000 steps" in main
    assert get(port, "/main", If_None_Match=tag)[:2] == (304, "")
    record = (path / "metrics.jsonl").read_text().splitlines()[-1]
    with open(path / "metrics.jsonl", "a") as file:
        file.write(record.replace('"steps": 4000', '"steps": 4100') + "\n")
    status, main, newer = get(port, "/main", If_None_Match=tag)
    assert status == 200 and newer != tag and "4,100 of 4,000 steps" in main
    with open(path / "metrics.jsonl", "a") as file:
        file.write("5\n")
    assert get(port, "/main")[2] == newer  # what cannot be read changes nothing


def test_the_page_is_served_under_its_own_name_alone(served):
    _, port = served
    for host in ("evil.example", f"evil.example:{port}", "127.0.0.1.evil.example", "[::1", ""):
        assert get(port, "/", Host=host)[0] == 403
    assert get(port, "/", Host="localhost:99")[0] == 200  # through a tunnel
    assert get(port, "/../../etc/passwd")[0] == get(port, "/config.json")[0] == 404


def test_watching_ends_with_ctrl_c_and_needs_no_jax(tmp_path):
    pages.training(tmp_path / "run")
    code = """
import sys
from etude.__main__ import main
from etude.report import serve
begin = serve.serve
def told(paths, port, say):
    def ready(url):
        say(url)
        print("heavy:", {"jax", "gymnax", "matplotlib"} & sys.modules.keys(), flush=True)
    begin(paths, port, ready)
serve.serve = told
sys.argv = ["etude", "report", "--watch", "run", "--port", "0"]
main()
"""
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    process = subprocess.Popen(
        [sys.executable, "-c", code], cwd=tmp_path, env=environment, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout is not None
    assert "http://127.0.0.1:" in process.stdout.readline()
    assert process.stdout.readline() == "heavy: set()\n"
    process.send_signal(signal.SIGINT)
    out, errors = process.communicate(timeout=20)
    assert (process.returncode, errors) == (130, "") and "No longer served." in out


def test_a_port_that_is_taken_gets_a_sentence(served, tmp_path):
    path, port = served
    with pytest.raises(UserError, match=f"Port {port} cannot be listened on"):
        serve.serve([str(path)], port, print)
