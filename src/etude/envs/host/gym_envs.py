"""Gymnasium environments, several of them in this process."""

import importlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.envs.registration import load_env_creator

from etude.envs.host.simulator import (
    OUTCOME,
    Leaves,
    Outcome,
    SimulatorFault,
    Stepped,
    faults,
)

MakeEnv = Callable[[], gymnasium.Env]


PICTURE = "rgb_array"
"""Gymnasium's name for the way of rendering that `picture` needs."""


def make_registered(name: str, arguments: dict[str, Any]) -> gymnasium.Env:
    module, _, own_name = name.rpartition(":")
    if module:
        importlib.import_module(module)
    if _draws_pictures(own_name):
        arguments = {"render_mode": PICTURE, **arguments}
    # The checker warns of what Etude refuses, and costs as much as a small environment.
    return gymnasium.make(own_name, disable_env_checker=True, **arguments)


def _draws_pictures(name: str) -> bool:
    entry = gymnasium.spec(name).entry_point
    creator = load_env_creator(entry) if isinstance(entry, str) else entry
    return PICTURE in getattr(creator, "metadata", {}).get("render_modes", [])


def first_action_in(space: spaces.Space) -> int:
    """Agents count from 0, spaces of actions may not."""
    return int(getattr(space, "start", 0))


class Leaf(NamedTuple):
    """An array of an observation."""

    path: tuple[str | int, ...]
    """Where it is: keys of dictionaries and indices of tuples."""
    space: spaces.Space
    below_zero: int = 0
    """What is taken from it: symbols count from 0 at the least, spaces may begin below."""

    @property
    def shape(self) -> tuple[int, ...]:
        return self.space.shape or ()

    @property
    def dtype(self) -> np.dtype:
        """JAX's default types: 32 bits where there are 64."""
        smaller = {"float64": np.float32, "int64": np.int32, "uint64": np.uint32}
        dtype = np.dtype(self.space.dtype)
        return np.dtype(smaller.get(dtype.name, dtype))

    @property
    def place(self) -> str:
        """As one would write it in Python."""
        return "".join(f"[{key!r}]" for key in self.path)

    def of(self, observation: Any) -> Any:
        for key in self.path:
            observation = observation[key]
        return np.asarray(observation) - self.below_zero if self.below_zero else observation


def leaves_of(space: spaces.Space, path: tuple[str | int, ...] = ()) -> list[Leaf]:
    """The arrays of a space in JAX's order."""
    if isinstance(space, spaces.Dict):
        return [x for key in sorted(space) for x in leaves_of(space[key], (*path, key))]
    if isinstance(space, spaces.Tuple):
        return [x for i, part in enumerate(space) for x in leaves_of(part, (*path, i))]
    start = getattr(space, "start", 0)  # an array, of several symbols
    return [Leaf(path, space, min(0, int(np.min(start))))]


def picture_in(rendered: object) -> np.ndarray | None:
    """What an environment has rendered, if it is a picture."""
    if isinstance(rendered, np.ndarray) and rendered.shape[2:] == (3,):
        return rendered
    return None


def require_real(values: np.ndarray, index: int | None = None) -> None:
    """NumPy would drop the imaginary part with a warning."""
    if values.dtype.kind not in "biuf":
        raise SimulatorFault(f"it observes numbers of type {values.dtype}", index)


def room_for(leaves: Sequence[Leaf], num_envs: int) -> Stepped:
    """Arrays that steps can be written into."""
    observation = [np.zeros((num_envs, *leaf.shape), leaf.dtype) for leaf in leaves]
    terminated, truncated, skipped = np.zeros((3, num_envs), bool)
    reward = np.zeros(num_envs, np.float32)
    return Stepped(observation, reward, terminated, truncated, skipped)


class GymEnvs:
    """Copies of a Gymnasium environment, one after another. An episode that terminates is followed
    by the next at once; one that its time limit cut, after a step that is skipped."""

    def __init__(self, make: MakeEnv, num_envs: int, room: Stepped | None = None):
        """`room`: arrays to write steps into, if there are any."""
        self.num_envs, self.at = num_envs, 0
        self.envs: list[gymnasium.Env] = []
        with faults(self):
            for self.at in range(num_envs):
                self.envs.append(make())
        self.leaves = leaves_of(self.envs[0].observation_space)
        self.outcomes: list[Outcome] = []
        room = room_for(self.leaves, num_envs) if room is None else room
        self.now = room._replace(outcomes=self.outcomes)
        self.first_action = first_action_in(self.envs[0].action_space)

    def reset(self, seed: int) -> Leaves:
        self.now.truncated[:] = False
        with faults(self):
            for i in range(self.num_envs):
                self.at = i
                self._begin(i, seed + i)
        return self.now.observation

    def step(self, actions: np.ndarray) -> Stepped:
        self.outcomes.clear()
        with faults(self):
            for i, action in enumerate((actions + self.first_action).tolist()):
                self.at = i
                self._step(i, action)
        return self.now

    def picture(self) -> np.ndarray | None:
        with faults(self):
            try:
                return picture_in(self.envs[0].render())
            except gymnasium.error.DependencyNotInstalled:
                return None

    def close(self) -> None:
        for env in self.envs:
            with suppress(SimulatorFault), faults():  # the others are to be closed as well
                env.close()

    def _begin(self, i: int, seed: int | None = None) -> None:
        observation, _ = self.envs[i].reset(seed=seed)
        self._write(i, observation)
        self._require_kinds(i, observation)

    def _step(self, i: int, action: int) -> None:
        now = self.now
        now.skipped[i] = now.truncated[i]
        if now.skipped[i]:
            now.reward[i], now.terminated[i], now.truncated[i] = 0.0, False, False
            return self._begin(i)
        observation, reward, terminated, truncated, info = self.envs[i].step(action)
        if (terminated or truncated) and isinstance(told := info.get(OUTCOME), Mapping):
            self.outcomes.append((i, {str(name): float(x) for name, x in told.items()}))
        self._require_truth(i, terminated=terminated, truncated=truncated)
        now.reward[i], now.terminated[i] = reward, terminated
        now.truncated[i] = truncated and not terminated
        if terminated:
            return self._begin(i)
        self._write(i, observation)

    def _write(self, i: int, observation: Any) -> None:
        for leaf, buffer in zip(self.leaves, self.now.observation, strict=True):
            value = np.asarray(leaf.of(observation))
            if value.shape != buffer.shape[1:]:
                raise SimulatorFault(
                    f"it observes{leaf.place} an array of shape {value.shape}, where its space "
                    f"says {buffer.shape[1:]}",
                    i,
                )
            require_real(value, i)
            buffer[i] = value

    @staticmethod
    def _require_truth(i: int, **ends: Any) -> None:
        """NaN and None neither end an episode nor let it go on."""
        for name, value in ends.items():
            if not isinstance(value, (bool, np.bool_, int, np.integer)):
                raise SimulatorFault(f"its {name} is {value!r}, not true or false", i)

    def _require_kinds(self, i: int, observation: Any) -> None:
        """Fractions, such as images between 0 and 1, would be cut to whole numbers in silence."""
        for leaf in self.leaves:
            if leaf.dtype.kind in "iu" and np.asarray(leaf.of(observation)).dtype.kind == "f":
                raise SimulatorFault(
                    f"it observes{leaf.place} floats, where its space says {leaf.dtype}", i
                )
