"""Gymnasium environments with known answers, and broken ones. Nothing here needs JAX, so that
processes that only simulate need not import it."""

import os
import subprocess
import time

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import SyncVectorEnv

GAMMA = 0.9


class Corridor(gymnasium.Env):
    """A walk along the numbers, right with action 1. It ends at +3 and is cut after 7 steps; each
    step pays where it leads. `CorridorInJax` in probes.py is the same."""

    end, limit = 3, 7
    observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        self.position = self.time = 0
        return self.seen, {}

    @property
    def seen(self):
        return np.array([self.position, self.time], np.float32)

    def step(self, action):
        self.position += 2 * action - 1
        self.time += 1
        reward, ended = 0.25 * self.position, self.position >= self.end
        info = {"outcome": {"arrived": float(ended), "time": self.time}}
        return self.seen, reward, ended, self.time >= self.limit, info


class Cycle(gymnasium.Env):
    """Pays 1 per step. Episodes end after 3 steps and are cut after 5, in turn. The observation
    says which and how far it is, so that the true values are known."""

    observation_space = spaces.Box(0, 10, (2,), np.float32)
    action_space = spaces.Discrete(2)
    kind = 1

    def reset(self, *, seed=None, options=None):
        self.kind, self.time = 1 - self.kind, 0
        return self.seen, {}

    @property
    def seen(self):
        return np.array([self.kind, self.time], np.float32)

    def step(self, action):
        self.time += 1
        ended, cut = self.kind == 0 and self.time == 3, self.kind == 1 and self.time == 5
        return self.seen, 1.0, ended, cut, {}


def true_values(seen):
    """Of observations of `Cycle`, at a discount of `GAMMA`."""
    endless, left = 1 / (1 - GAMMA), 3 - seen[..., 1]
    return np.where(seen[..., 0] == 1, endless, (1 - GAMMA**left) / (1 - GAMMA))


class Everything(gymnasium.Env):
    """Observes all that agents can read."""

    observation_space = spaces.Dict(
        {
            "picture": spaces.Box(0, 255, (36, 36, 3), np.uint8),
            "where": spaces.Discrete(5, start=2),
            "which": spaces.MultiDiscrete([3, 4]),
            "more": spaces.Tuple([spaces.Box(-1, 1, (2,), np.float64), spaces.MultiBinary(3)]),
        }
    )
    action_space = spaces.Discrete(3, start=7)

    def __init__(self, seed: int = 0):
        self.observation_space.seed(seed)

    def reset(self, *, seed=None, options=None):
        return self.observation_space.sample(), {}

    def step(self, action):
        assert action in (7, 8, 9)
        return self.observation_space.sample(), 0.0, False, False, {}


class Drawn(Corridor):
    """Draws its time, over and over into the same array. What it says of outcomes is a word, which
    is not for us."""

    def __init__(self):
        self.canvas = np.zeros((4, 4, 3), np.uint8)

    def step(self, action):
        return *super().step(action)[:4], {"outcome": "won"}

    def render(self):
        self.canvas[:] = self.time
        return self.canvas


class Continuous(Corridor):
    action_space = spaces.Box(-1, 1, (2,))


class Words(Corridor):
    observation_space = spaces.Text(10)


class Broken(Corridor):
    """Goes wrong at its twentieth step."""

    end = limit = 10**6
    steps = 0

    def __init__(self, how: str):
        self.how = how

    def step(self, action):
        seen, reward, *rest = super().step(action)
        self.steps += 1
        if self.steps < 20:
            return seen, reward, *rest
        match self.how:
            case "raise":
                raise RuntimeError("the glass is broken")
            case "exit":
                raise SystemExit("enough")
            case "interrupt":
                raise KeyboardInterrupt("of its own")
            case "generator":
                raise GeneratorExit("of its own")
            case "hang":
                time.sleep(1000)
            case "die":
                os._exit(3)
            case "nan":
                reward = float("nan")
            case "inf":
                seen = seen + np.inf
            case "shape":
                seen = seen[:1]
            case "lines":
                raise RuntimeError("first line.\nsecond line.")
            case "complex":
                seen = seen + 1j
            case "unsure":
                rest[0] = float("nan")
        return seen, reward, *rest


class HangsAtFirst(Corridor):
    def reset(self, *, seed=None, options=None):
        time.sleep(1000)


class Unknown(Corridor):
    """Shows a symbol that its space does not have."""

    observation_space = spaces.Discrete(3)
    seen = 5  # type: ignore[assignment]


class Fractions(Corridor):
    observation_space = spaces.Box(0, 255, (2,), np.uint8)


class Nothing(Corridor):
    observation_space = spaces.Dict({})


class Spaceless(gymnasium.Env):
    pass


class Copies(SyncVectorEnv):
    def __init__(self):
        super().__init__([Corridor])


class ClosesBadly(Corridor):
    """Starts a process that only `close` ends, and then raises, or never returns."""

    def __init__(self, how: str, pids: str):
        self.how, self.pids, self.child = how, pids, None

    def reset(self, *, seed=None, options=None):
        if self.child is None:
            self.child = subprocess.Popen(["sleep", "600"])
            with open(self.pids, "a") as file:
                file.write(f"{self.child.pid}\n")
        return super().reset(seed=seed)

    def close(self):
        if self.child is None:
            return
        if self.how == "hang":
            time.sleep(1000)
        self.child.kill()
        self.child.wait()
        raise RuntimeError("the door is stuck")


class Unmakeable(Corridor):
    def __init__(self):
        raise RuntimeError("no display")


class NeverMade(Corridor):
    """The second one hangs, in whatever process."""

    made = 0

    def __init__(self):
        NeverMade.made += 1
        if NeverMade.made > 1:
            time.sleep(1000)


class MadeOnce(NeverMade):
    """There is a licence for one."""

    def __init__(self):
        NeverMade.made += 1
        if NeverMade.made > 1:
            raise RuntimeError("no second licence")


class BelowZero(gymnasium.Env):
    """Begins to count below zero: symbols at -2, actions at -1. Pays for the first action, if it
    comes as that."""

    observation_space = spaces.Dict(
        {"at": spaces.Discrete(3, start=-2), "of": spaces.MultiDiscrete([2, 3], start=[-1, 0])}
    )
    action_space = spaces.Discrete(2, start=-1)

    def reset(self, *, seed=None, options=None):
        return {"at": np.int64(-2), "of": np.array([-1, 2])}, {}

    def step(self, action):
        assert action in (-1, 0)
        return {"at": np.int64(0), "of": np.array([0, 0])}, float(action == -1), True, False, {}


class ChannelsFirst(Corridor):
    observation_space = spaces.Box(0, 255, (3, 40, 48), np.uint8)


gymnasium.register("Corridor-v0", "tests.host_probes:Corridor")


class Levers(gymnasium.Env):
    """Two levers, of which the second pays, in episodes of one step: whenever a simulator starts
    anew, it goes on as it would have."""

    observation_space = spaces.Box(0.0, 1.0, (2,), np.float32)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        return np.ones(2, np.float32), {}

    def step(self, action):
        return np.ones(2, np.float32), float(action), True, False, {}
