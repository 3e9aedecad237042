"""Watching an agent: episodes rendered to a GIF or into the terminal."""

import os
import sys
import time
from pathlib import Path

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
MAX_STEPS = 2000
FRAME_MS = 80
END_MS = 600


def play_run(
    run: str, out: str | None, episodes: int | None, seed: int, index: int, greedy: bool, show: bool
) -> str:
    """Plays episodes with an agent of a run into a GIF, and says what came of it."""
    folder = open_folder(run)
    play = play_adapting if kind_in(folder) == "adapt" else play_trained
    number, about = plan(folder, episodes)
    frames, ends, returns = play(folder, jax.random.key(seed), number, index, greedy)
    path = Path(os.path.realpath(out)) if out else folder.path / "play.gif"
    write_gif(frames, ends, path)
    if show:
        show_in_terminal(frames)
    total = ", ".join(f"{x:.3g}" for x in returns) or "none ended"
    cut = "" if len(returns) == number else f" (stopped after {MAX_STEPS} steps)"
    return f"Wrote {path}; returns of the episodes: {total}{cut}{about}"


def plan(folder: RunFolder, episodes: int | None) -> tuple[int, str]:
    """How many episodes to play if one does not say, and what there is to tell of the first."""
    config = folder.config()
    if kind_in(folder) != "adapt":
        return episodes or 3, ""
    if config["algo"] in GRADIENT_BASED:
        return episodes or 3, "; the first is before adapting"
    number: int = episodes or config["episodes"]
    explore = min(number, config["explore"])
    first = "is" if explore == 1 else f"{explore} are"
    return number, f"; the first {first} to explore" if explore else ""


Film = tuple[list[np.ndarray], list[bool], list[float]]
"""Frames of episodes, which of them end one, and the returns."""


def play_trained(
    folder: RunFolder, key: PRNGKeyArray, episodes: int, index: int, greedy: bool
) -> Film:
    run = load(str(folder.path))
    check_index(index, len(run.agents))
    trained = run.agents[index]
    player = Sharpened(trained.rule.player(trained.agent), GREEDY if greedy else 1.0)
    task = envs.make(folder.settings()["env"])
    return film(task, player, key, episodes, trained.rule.context)


def play_adapting(
    folder: RunFolder, key: PRNGKeyArray, episodes: int, index: int, greedy: bool
) -> Film:
    """On a fresh task. Each episode's last frame is the state that it ended in."""
    work = adaptation.read_folder(folder)
    check_index(index, work.config.seeds)
    policy = jax.tree.map(lambda x: x[index], adaptation.kept_policies(work, folder))
    story = watch.adapt_and_watch(work, policy, key, episodes, GREEDY if greedy else 1.0)
    frames = [frame(story.task, *scene) for scenes in story.episodes for scene in scenes]
    ends = [i == len(scenes) - 1 for scenes in story.episodes for i in range(len(scenes))]
    return frames, ends, story.returns


def check_index(index: int, seeds: int) -> None:
    if not 0 <= index < seeds:
        raise UserError(f"--agent must be from 0 to {seeds - 1} for this run.")


def film(
    task: Task, player: Player, key: PRNGKeyArray, episodes: int, context: Context | None = None
) -> Film:
    """Episodes of one environment."""
    shoot = film_outside if isinstance(task, HostTask) else film_jax
    return shoot(task, player, key, episodes, context)  # type: ignore[arg-type]


def film_outside(
    task: HostTask, player: Player, key: PRNGKeyArray, episodes: int, context: Context | None
) -> Film:
    """In the simulator's own pictures."""
    seed = int(jax.random.randint(key, (), 0, 2**31 - 1))
    source = HostSource(task, 1, 1, lambda leaves: (player, context), seed=seed)
    frames, ends, returns = [], [], []
    for step in range(MAX_STEPS):
        picture, observation = source.look()
        rollout, ended = source.collect([], jax.random.fold_in(key, step)[None], 1)
        if rollout.seam.item():
            continue
        frames.append(board_or_bars(observation) if picture is None else picture)
        ends.append(ended.ended.item())
        if ends[-1]:
            returns.append(ended.returns.item())
        if len(returns) == episodes:
            break
    source.close()
    return frames, ends, returns


def film_jax(
    task: JaxTask, player: Player, key: PRNGKeyArray, episodes: int, context: Context | None
) -> Film:
    source = JaxSource(task, 1)

    def step(actors: Actors, key):
        after, (_, done) = source.step(player, actors, key, context)
        seen = (actors.env_state, actors.observation, actors.at_seam)
        return after, (jax.tree.map(lambda x: x[0], seen), done.ended[0], done.returns[0])

    run = jax.jit(lambda actors, keys: jax.lax.scan(step, actors, keys))
    actors = source.reset(player, key)
    frames, ends, returns = [], [], []
    for start in range(0, MAX_STEPS, CHUNK_STEPS):
        keys = jax.random.split(jax.random.fold_in(key, start), CHUNK_STEPS)
        actors, played = run(actors, keys)
        seen, ended, total = jax.device_get(played)
        for t in range(CHUNK_STEPS):
            state, observation, at_seam = jax.tree.map(lambda x, t=t: x[t], seen)
            if at_seam:
                continue
            frames.append(frame(task, state, observation))
            ends.append(bool(ended[t]))
            if ended[t]:
                returns.append(float(total[t]))
            if len(returns) == episodes:
                return frames, ends, returns
    return frames, ends, returns


def frame(task: JaxTask, state: PyTree, observation: PyTree) -> np.ndarray:
    """An RGB picture of the environment: by its own `render(state, params)` if it has one."""
    if (own := own_picture(task, state)) is not None:
        return own
    if isinstance(task.env, CartPole):
        return pictures.cart_pole(float(state.x), float(state.theta), task.params.x_threshold)
    return board_or_bars(jax.tree.leaves(observation))


def board_or_bars(observation: list[np.ndarray]) -> np.ndarray:
    leaves = [np.asarray(x, float) for x in observation]
    if len(leaves) == 1 and leaves[0].ndim in (2, 3):
        return pictures.board(leaves[0])
    return pictures.bars(np.concatenate([np.ravel(x) for x in leaves]))


def own_picture(task: JaxTask, state: PyTree) -> np.ndarray | None:
    """What the environment's `render` returns, if it is an RGB array (some return a figure)."""
    if (render := getattr(task.env, "render", None)) is None:
        return None
    with foreign_code(f"{task.name} cannot be rendered"):
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
