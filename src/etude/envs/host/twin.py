"""Pictures of environments that do not draw for people, from a second simulator."""

from collections.abc import Callable
from typing import Any

import numpy as np


class Twin:
    """The first environment once more, drawn as a person would see it: another simulator, given the
    same seed and the same actions. It costs nothing until a picture is asked for, which must be
    before the first step."""

    def __init__(
        self,
        start: Callable[[int], tuple[Any, np.ndarray]],
        look: Callable[[np.ndarray], np.ndarray],
    ):
        """
        Args:
            start: From a seed, a vector environment of one copy and its first observation.
            look: From such an observation, the picture: height × width × RGB.
        """
        self.start, self.look = start, look
        self.env: Any = None
        self.seen: np.ndarray | None = None
        self.seed: int | None = None
        """Until the first step: what it has to start from."""

    def reset(self, seed: int) -> None:
        self.seed = seed
        if self.env is not None:
            self._begin()

    def step(self, actions: np.ndarray) -> None:
        self.seed = None
        if self.env is not None:
            self.seen = self.env.step(actions[:1])[0]

    def picture(self) -> np.ndarray | None:
        if self.env is None and self.seed is not None:
            self._begin()
        return None if self.seen is None else self.look(self.seen)

    def close(self) -> None:
        if self.env is not None:
            self.env.close()
            self.env = None

    def _begin(self) -> None:
        assert self.seed is not None
        self.close()
        self.env, self.seen = self.start(self.seed)
