"""What the docs tell a newcomer to type works."""

import contextlib
import io
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import jax
import pytest

from etude import envs
from etude.api import train
from etude.cli import commands
from etude.experiments import EXPERIMENTS
from etude.meta.discovery.config import DiscoverConfig
from etude.meta.discovery.lives import family_of, require_drawable
from etude.rules.names import kind_named

ROOT = Path(__file__).resolve().parent.parent


def python_blocks(name: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (ROOT / name).read_text(), re.S)


def test_the_ten_line_environment_trains(tmp_path, monkeypatch):
    (block,) = python_blocks("docs/guide/your-own-environment.md")
    (tmp_path / "my_env.py").write_text(block)
    monkeypatch.chdir(tmp_path)
    assert envs.make("my_env:Corridor:size=4").observation.shape == (4,)
    result = train("my_env:Corridor", "actor_critic", steps=200_000, torso=(32, 32))
    assert result.summary["final_return"]["mean"] > 0.9  # the shortest way is worth 0.94


def test_the_gymnasium_environment_trains_and_so_does_the_vector_of_them(tmp_path, monkeypatch):
    environment, vector = python_blocks("docs/guide/gymnasium.md")
    (tmp_path / "my_gym.py").write_text(environment)
    monkeypatch.chdir(tmp_path)
    assert envs.make("my_gym:Corridor:size=4").observation.number == 4
    result = train("my_gym:Corridor", "ppo", steps=20_000, torso=(16,))
    assert result.summary["final_return"]["mean"] > 0.9  # the shortest way is worth 0.94
    names = {}
    exec(vector.replace("20_000", "4_000"), names)
    assert names["result"].summary["final_return"]["mean"] > 10


def test_each_life_in_the_family_of_the_guide_has_its_own_task(tmp_path, monkeypatch):
    (block,) = python_blocks("docs/guide/own-family.md")
    (tmp_path / "my_family.py").write_text(block)
    monkeypatch.chdir(tmp_path)
    task, config = envs.make("my_family:Street:length=5,horizon=8"), DiscoverConfig()
    require_drawable(task, config)
    family = family_of(task, config)
    assert family is not None and family.horizon == 8
    errands = jax.vmap(family.sample_task)(jax.random.split(jax.random.key(0), 200))
    assert set(errands.shop.tolist()) == {1, 2, 3, 4} and set(errands.opens.tolist()) == {*range(4)}


@pytest.mark.slow
def test_the_lines_of_the_readme_run():
    (block,) = python_blocks("README.md")
    names = {}
    exec(block.replace("60_000", "4_000"), names)
    assert names["result"].summary["updates"] > 1 and names["learner"].agent is not None


PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
LINK = re.compile(r"\]\((?!http)([^)#]*)(?:#([^)]+))?\)")


def test_every_linked_file_is_there():
    for page in PAGES:
        for link, _ in LINK.findall(page.read_text()):
            assert (page.parent / link).exists(), f"{page.name} links to {link}"


def anchors(page: Path) -> set[str]:
    """Of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.M)
    return {re.sub(r"[^a-z0-9 _-]", "", x.lower()).replace(" ", "-") for x in headings}


def test_every_linked_heading_is_there():
    for page in PAGES:
        for link, anchor in LINK.findall(page.read_text()):
            target = page.parent / link if link else page
            assert not anchor or anchor in anchors(target), f"{page.name}: {link}#{anchor}"


def test_the_index_names_every_page():
    index = ROOT / "docs" / "README.md"
    linked = {(index.parent / link).resolve() for link, _ in LINK.findall(index.read_text())}
    assert {*(ROOT / "docs").rglob("*.md")} - {index} <= linked


def test_every_figure_is_shown():
    shown = {
        (page.parent / link).resolve()
        for page in PAGES
        for link, _ in LINK.findall(page.read_text())
    }
    assert {*(ROOT / "docs").rglob("*.png")} <= shown


# --- Commands -------------------------------------------------------------------------------------

COMMAND = re.compile(r"(?:^|[`\s/;])etude ((?:[a-z]+)\b[^`\n#;|>]*)", re.M)


def code_in(page: Path) -> str:
    """Code blocks, fenced and indented, and code in lines."""
    text = page.read_text()
    fenced = re.findall(r"^```(?!python)[a-z]*\n(.*?)^```", text, re.S | re.M)
    indented = re.findall(r"^    (.*)$", re.sub(r"^```.*?^```", "", text, flags=re.S | re.M), re.M)
    inline = re.findall(r"`([^`]+)`", text)
    return "\n".join(fenced + indented + inline)


@pytest.fixture(scope="module")
def flags_of() -> Callable[[str], set[str]]:
    """The flags that a command knows, from its own help."""
    known: dict[str, set[str]] = {}

    def flags(command: str) -> set[str]:
        if command not in known:
            printed = io.StringIO()
            with (
                pytest.MonkeyPatch.context() as patch,
                contextlib.redirect_stdout(printed),
                contextlib.suppress(SystemExit),
            ):
                patch.setattr(sys, "argv", ["etude", command, "--help"])
                patch.setattr(commands, "_configure_jax", lambda: None)
                commands.main()
            assert "usage: etude" in printed.getvalue(), f"there is no command {command}"
            known[command] = set(re.findall(r"--[a-z][a-z-]*", printed.getvalue()))
        return known[command]

    return flags


def test_every_command_in_the_docs_is_understood(flags_of):
    seen = 0
    for page in PAGES:
        for found in COMMAND.findall(code_in(page)):
            command, *words = found.split()
            flags = {re.sub(r"[^a-z-].*", "", x.strip("[](),")) for x in words if "--" in x}
            unknown = {x for x in flags if x.startswith("--")} - flags_of(command) - {"--version"}
            assert not unknown, f"{page.name}: etude {found.strip()} has {unknown}"
            seen += 1
    assert seen > 100


def test_every_module_and_target_in_the_docs_is_there():
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.M))
    for page in PAGES:
        code = code_in(page)
        for name in re.findall(r"python -m ((?:benchmarks|tests)[.\w]*)", code):
            assert (ROOT / f"{name.replace('.', '/')}.py").exists(), f"{page.name}: {name}"
        assert set(re.findall(r"^make ([a-z]+)", code, re.M)) <= targets, page.name


def test_every_figure_has_its_command_and_its_commit():
    page = ROOT / "docs" / "results" / "figures" / "README.md"
    rows = re.findall(r"^\| `(.+?\.png)` \| (.*) \| ([0-9a-f]{7,}) \|$", page.read_text(), re.M)
    assert {name for name, _, _ in rows} == {path.name for path in page.parent.glob("*.png")}
    for name, command, commit in rows:
        assert "`etude " in command, f"{name} has no command"
        if experiment := re.findall(r"etude reproduce ([a-z0-9-]+)", command):
            assert experiment[0] in EXPERIMENTS, f"{name}: there is no experiment {experiment[0]}"
        for spec in re.findall(r"--(?:env|held-out) (\S+)", command):
            envs.require_known(spec)
        for spec in re.findall(r"--rule ([^\s`]+)", command):
            kind_named(spec)
        if git("rev-parse", "--is-shallow-repository") == "false":
            assert git("cat-file", "-t", commit) == "commit", f"{name}: there is no {commit}"


def git(*words: str) -> str:
    """What it answers about this repository, if it is one with a history."""
    command = ["git", "-C", str(ROOT), *words]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
