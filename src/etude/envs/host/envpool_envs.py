"""Games in EnvPool's own threads: Atari and Procgen."""

import ctypes
import importlib.util
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from etude.envs.host.simulator import Leaves, SimulatorFault, Stepped, with_skipped
from etude.envs.host.twin import Twin
from etude.errors import UserError, reason

QT = "libicudata.so.56 libicuuc.so.56 libicui18n.so.56 libQt5Core.so.5 libQt5Gui.so.5"


def _load_qt() -> None:
    """EnvPool's Procgen draws with Qt and looks for it in the system; the package PyQt5-Qt5 brings
    it along. What is loaded before EnvPool is imported, it finds."""
    found = importlib.util.find_spec("PyQt5")
    for folder in (found and found.submodule_search_locations) or ():
        for name in QT.split():
            with suppress(OSError):  # then EnvPool says what is missing, if it is needed at all
                ctypes.CDLL(str(Path(folder, "Qt5", "lib", name)), mode=ctypes.RTLD_GLOBAL)


_load_qt()
import envpool  # type: ignore  # noqa: E402  (not before Qt)


def require_game(spec: str, name: str) -> None:
    """Refuses a game that this EnvPool cannot play, for want of Qt or of the game itself."""
    try:
        envpool.make_spec(name)
    except Exception as error:
        raise UserError(f"Environment {spec!r} cannot be made: {reason(error)}") from error


class EnvPoolEnvs:
    """Copies of a game. A new episode starts with the step after the last one, which is skipped."""

    def __init__(
        self,
        name: str,
        num_envs: int,
        threads: int,
        clip: bool = False,
        life: bool = False,
        screen: dict[str, Any] | None = None,
        **options: Any,
    ):
        """
        Args:
            name: As EnvPool calls the game.
            num_envs: Copies.
            threads: 0 for as many as there are cores.
            clip: Learn from rewards between −1 and 1.
            life: Learn that a lost life ends an episode.
            screen: Further options that make observations pictures for people, channels first; by
                default they are pictures already, channels last.
            options: EnvPool's.
        """
        self.name, self.num_envs, self.at = name, num_envs, None
        self.threads, self.clip, self.life, self.options = threads, clip, life, options
        self.pool: Any = None
        self.lives: np.ndarray | None = None
        self.ended = np.zeros(num_envs, bool)
        """Whose next step is skipped."""
        self.seen: np.ndarray | None = None
        self.twin: Twin | None = None
        if screen is not None:
            self.twin = Twin(
                lambda seed: self._start(1, seed, **screen), lambda x: np.moveaxis(x[0], 0, -1)
            )

    def reset(self, seed: int) -> Leaves:
        """Starts it anew: EnvPool is given its seed only then."""
        self._close_pool()
        seed %= 2**31 - self.num_envs
        self.pool, first = self._start(self.num_envs, seed)
        self.ended[:], self.lives = False, None
        if self.twin is not None:
            self.twin.reset(seed)
        return self._observed(first)

    def step(self, actions: np.ndarray) -> Stepped:
        actions = actions.astype(np.int32)
        try:
            observation, score, terminated, truncated, info = self.pool.step(actions)
        except Exception as error:
            raise SimulatorFault(f"{type(error).__name__}: {error}") from error
        if self.twin is not None:
            self.twin.step(actions)
        skipped, self.ended = self.ended, terminated | truncated
        if self.life:
            terminated = terminated | self._lost_life(info["lives"], skipped | self.ended)
        return with_skipped(
            skipped,
            self._observed(observation),
            np.clip(score, -1, 1) if self.clip else score,
            terminated,
            truncated,
            score=score,
            over=self.ended,
        )

    def picture(self) -> np.ndarray | None:
        if self.twin is not None:
            return self.twin.picture()
        return None if self.seen is None else self.seen[0]

    def close(self) -> None:
        self._close_pool()
        if self.twin is not None:
            self.twin.close()

    def _start(self, num_envs: int, seed: int, **options: Any) -> tuple[Any, np.ndarray]:
        settings = self.options | dict(num_envs=num_envs, num_threads=self.threads, seed=seed)
        pool = envpool.make_gymnasium(self.name, **settings | options)
        return pool, pool.reset()[0]

    def _observed(self, observation: np.ndarray) -> Leaves:
        """Atari's come as stacks, here of one frame, which is left out."""
        self.seen = observation if self.twin is None else observation[:, 0]
        return [self.seen]

    def _lost_life(self, lives: np.ndarray, elsewhere: np.ndarray) -> np.ndarray:
        """Where a life was lost; not `elsewhere`, where a game ends or begins."""
        before, self.lives = lives if self.lives is None else self.lives, lives.copy()
        return (lives < before) & ~elsewhere

    def _close_pool(self) -> None:
        if self.pool is not None:
            self.pool.close()
            self.pool = None
