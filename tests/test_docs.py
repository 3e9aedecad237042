"""What the docs tell a newcomer to type works."""

import re
from pathlib import Path

import pytest

from etude import envs
from etude.api import train

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
