"""Watching an agent: episodes rendered to a GIF or into the terminal."""

import dataclasses
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np
from gymnax.environments.classic_control.cartpole import CartPole
from jaxtyping import PRNGKeyArray, PyTree

from etude import envs
from etude.acting.host_source import HostSource
from etude.acting.jax_source import Actors, JaxSource
from etude.adaptation import run as adaptation
from etude.adaptation import watch
from etude.adaptation.config import GRADIENT_BASED
from etude.adaptation.saved import read_config
from etude.api import load
from etude.core.players import GREEDY, Player, Sharpened
from etude.core.types import Context
from etude.envs import HostTask, JaxTask, Task, pictures
from etude.errors import UserError, disk_errors, foreign_code
from etude.kinds import kind_in, open_folder
from etude.runs.arrays import write_atomically
from etude.runs.folder import RunFolder
from etude.settings import Settings

CHUNK_STEPS = 64
FRAME_MS = 80
END_MS = 600
MOST_TOLD = 20
"""Episodes whose returns are told one by one."""


@dataclasses.dataclass(frozen=True)
class Shot:
    """What is to be filmed."""

    key: PRNGKeyArray
    episodes: int
    index: int
    """Which of the run's agents acts."""
    sharpness: float
    """What logits are multiplied by: with much of it, the likeliest action is always taken."""
    steps: int
    """The longest that a film may be."""


class Film(NamedTuple):
    frames: list[np.ndarray]
    ends: list[bool]
    """Which of the frames end an episode."""
    returns: list[float]
    pictured: bool
    """Whether the environment has pictures; if not, quantities are drawn."""


def play_run(
    run: str,
    out: str | None,
    episodes: int | None,
    seed: int,
    index: int,
    greedy: bool,
    show: bool,
    seconds: float,
) -> str:
    """Plays episodes with an agent of a run into a GIF, and says what came of it."""
    folder = open_folder(run)
    play = play_adapting if kind_in(folder) == "adapt" else play_trained
    number, about = plan(folder, episodes)
    steps = max(1, round(1000 * seconds / FRAME_MS))
    shot = Shot(jax.random.key(seed), number, index, GREEDY if greedy else 1.0, steps)
    film = play(folder, shot)
    path = Path(os.path.realpath(out)) if out else folder.path / "play.gif"
    write_gif(film.frames, film.ends, path)
    if show:
        show_in_terminal(film.frames)
    total = ", ".join(f"{x:.3g}" for x in film.returns[:MOST_TOLD]) or "none ended"
    if (more := len(film.returns) - MOST_TOLD) > 0:
        total += f" and {more} more; all on average {np.mean(film.returns):.3g}"
    cut = "" if len(film.returns) == number else f" (cut after {seconds:g} s: see --seconds)"
    drawn = "" if film.pictured else "; there is no picture of this environment, but its quantities"
    return f"Wrote {path}; returns of the episodes: {total}{cut}{about}{drawn}"


def plan(folder: RunFolder, episodes: int | None) -> tuple[int, str]:
    """How many episodes to play if one does not say, and what there is to tell of the first."""
    if kind_in(folder) != "adapt":
        return episodes or 3, ""
    settings = read_config(folder).filled().settings()
    if settings["algo"] in GRADIENT_BASED:
        return episodes or 3, "; the first is before adapting"
    number: int = episodes or settings["episodes"]
    explore = min(number, settings["explore"])
    first = "is" if explore == 1 else f"{explore} are"
    return number, f"; the first {first} to explore" if explore else ""


def play_trained(folder: RunFolder, shot: Shot) -> Film:
    run = load(str(folder.path))
    check_index(shot.index, len(run.agents))
    trained = run.agents[shot.index]
    player = Sharpened(trained.rule.player(trained.agent), shot.sharpness)
    task = envs.make(folder.settings()["env"])
    return film(task, player, shot, trained.rule.context)


def play_adapting(folder: RunFolder, shot: Shot) -> Film:
    """On a fresh task. Each episode's last frame is the state that it ended in."""
    work = adaptation.read_folder(folder)
    check_index(shot.index, work.config.seeds)
    policy = jax.tree.map(lambda x: x[shot.index], adaptation.kept_policies(work, folder))
    story = watch.adapt_and_watch(work, policy, shot.key, shot.episodes, shot.sharpness)
    scenes = [(x, i == len(each) - 1) for each in story.episodes for i, x in enumerate(each)]
    scenes = scenes[: shot.steps]
    drawn = [frame(story.task, *scene) for scene, _ in scenes]
    ends = [end for _, end in scenes]
    returns = story.returns[: sum(ends)]
    return Film([x for x, _ in drawn], ends, returns, all(own for _, own in drawn))


def check_index(index: int, seeds: int) -> None:
    if not seeds:
        raise UserError("A run of discovery has a rule, but no agent to play.")
    if not 0 <= index < seeds:
        raise UserError(f"--agent must be from 0 to {seeds - 1} for this run.")


def film(task: Task, player: Player, shot: Shot, context: Context | None = None) -> Film:
    """Episodes of one environment."""
    shoot = film_outside if isinstance(task, HostTask) else film_jax
    return shoot(task, player, shot, context)  # type: ignore[arg-type]


def film_outside(task: HostTask, player: Player, shot: Shot, context: Context | None) -> Film:
    """In the simulator's own pictures."""
    seed = int(jax.random.randint(shot.key, (), 0, 2**31 - 1))
    source = HostSource(task, 1, 1, lambda leaves: (player, context), seed=seed)
    frames, ends, returns, pictured = [], [], [], True
    for step in range(shot.steps):
        picture, observation = source.look()
        rollout, ended = source.collect([], jax.random.fold_in(shot.key, step)[None], 1)
        if rollout.seam.item():
            continue
        pictured = pictured and picture is not None
        named = jax.tree.unflatten(jax.tree.structure(task.observation), observation)
        frames.append(board_or_quantities(named) if picture is None else picture)
        ends.append(ended.ended.item())
        if ends[-1]:
            returns.append(ended.returns.item())
        if len(returns) == shot.episodes:
            break
    source.close()
    return Film(frames, ends, returns, pictured)


def film_jax(task: JaxTask, player: Player, shot: Shot, context: Context | None) -> Film:
    source = JaxSource(task, 1)

    def step(actors: Actors, key):
        after, (_, done) = source.step(player, actors, key, context)
        seen = (actors.env_state, actors.observation, actors.at_seam)
        return after, (jax.tree.map(lambda x: x[0], seen), done.ended[0], done.returns[0])

    run = jax.jit(lambda actors, keys: jax.lax.scan(step, actors, keys))
    actors = source.reset(player, shot.key)
    found = Film([], [], [], True)
    for start in range(0, shot.steps, CHUNK_STEPS):
        keys = jax.random.split(jax.random.fold_in(shot.key, start), CHUNK_STEPS)
        actors, played = run(actors, keys)
        seen, ended, total = jax.device_get(played)
        for t in range(min(CHUNK_STEPS, shot.steps - start)):
            state, observation, at_seam = jax.tree.map(lambda x, t=t: x[t], seen)
            if at_seam:
                continue
            picture, own = frame(task, state, observation)
            found = found._replace(pictured=found.pictured and own)
            found.frames.append(picture)
            found.ends.append(bool(ended[t]))
            if ended[t]:
                found.returns.append(float(total[t]))
            if len(found.returns) == shot.episodes:
                return found
    return found


def frame(task: JaxTask, state: PyTree, observation: PyTree) -> tuple[np.ndarray, bool]:
    """An RGB picture of the environment, by its own `render(state, params)` if it has one, and
    whether it is a picture, not some quantities."""
    if (own := own_picture(task, state)) is not None:
        return own, True
    if isinstance(task.env, CartPole):
        drawn = pictures.cart_pole(float(state.x), float(state.theta), task.params.x_threshold)
        return drawn, True
    if len(jax.tree.leaves(observation)) == 1 and jax.tree.leaves(observation)[0].ndim in (2, 3):
        return board_or_quantities(observation), True
    return pictures.quantities(scalars(state) or scalars(observation)), False


def board_or_quantities(observation: PyTree) -> np.ndarray:
    leaves = [np.asarray(x, float) for x in jax.tree.leaves(observation)]
    if len(leaves) == 1 and leaves[0].ndim in (2, 3):
        return pictures.board(leaves[0])
    return pictures.quantities(scalars(observation))


def scalars(tree: PyTree) -> dict[str, float]:
    """The numbers in a tree by their names in it: `theta`, `velocity[1]`."""
    found = {}
    for path, leaf in jax.tree.flatten_with_path(tree)[0]:
        name = jax.tree_util.keystr(path, simple=True, separator=".")
        values = np.asarray(leaf)
        if values.dtype.kind not in "biuf":
            continue
        for place, value in np.ndenumerate(values):
            index = "".join(f"[{i}]" for i in place)
            found[f"{name}{index}" or "observation"] = float(value)
    return found


def own_picture(task: JaxTask, state: PyTree) -> np.ndarray | None:
    """What the environment's `render` returns, if it is an RGB array (some return a figure)."""
    if (render := getattr(task.env, "render", None)) is None:
        return None
    with foreign_code(f"{task.name} cannot be rendered"), closing_figures():
        picture = render(state, task.params)
    if not isinstance(picture, (np.ndarray, jax.Array)) or picture.ndim != 3:
        return None
    pixels = np.asarray(picture)
    if pixels.shape[2] != 3:
        raise UserError(
            f"{task.name} renders arrays of shape {pixels.shape}, not height × width × 3."
        )
    if np.issubdtype(pixels.dtype, np.floating):  # shares of full brightness
        pixels = 255.0 * np.clip(pixels, 0.0, 1.0)
    return pixels.astype(np.uint8)


@contextmanager
def closing_figures() -> Iterator[None]:
    """Closes what is opened within it: pyplot keeps each figure until someone does."""
    pyplot = sys.modules.get("matplotlib.pyplot")
    before = set(pyplot.get_fignums()) if pyplot else set()
    yield
    if (pyplot := sys.modules.get("matplotlib.pyplot")) is not None:
        for number in set(pyplot.get_fignums()) - before:
            pyplot.close(number)


def write_gif(frames: list[np.ndarray], ends: list[bool], path: Path) -> None:
    from PIL import Image

    images = [Image.fromarray(x) for x in frames]
    durations = [END_MS if end else FRAME_MS for end in ends]
    with disk_errors(f"The animation cannot be written to {path}"):
        settings: Settings = dict(append_images=images[1:], duration=durations, loop=0)
        write_atomically(path, lambda file: images[0].save(file, "GIF", save_all=True, **settings))


def show_in_terminal(frames: list[np.ndarray], columns: int = 40) -> None:
    """Each character cell shows two pixels: the upper as foreground, the lower as background."""
    for pixels in frames:
        step = max(1, pixels.shape[1] // columns)
        small = pixels[step // 2 :: step, step // 2 :: step]
        small = small[: len(small) // 2 * 2]
        lines = [
            "".join(
                f"\033[38;2;{a[0]};{a[1]};{a[2]};48;2;{b[0]};{b[1]};{b[2]}m▀"
                for a, b in zip(upper, lower, strict=True)
            )
            for upper, lower in zip(small[::2], small[1::2], strict=True)
        ]
        sys.stdout.write("\033[H\033[J" + "\033[0m\n".join(lines) + "\033[0m\n")
        sys.stdout.flush()
        time.sleep(FRAME_MS / 1000)
