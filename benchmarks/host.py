"""What it costs to train on simulators outside JAX, beyond simulating, acting and learning.

    python -m benchmarks.host [nothing] [atari] [overlap]

`nothing`: microseconds per environment step that are neither simulator nor policy, on a simulator
that does nothing. `atari`: the share of wall time that is neither simulator, policy nor update, in
PPO on atari/Breakout. `overlap`: wall time with a lag of one against acting alone and learning
alone. The last line is one JSON object. Run it with nothing else running.
"""

import json
import sys
import time
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from etude import api
from etude.acting.host_source import Spent
from etude.envs.host.simulator import Leaves, Stepped
from etude.envs.tasks import HostTask
from etude.training.host_run import HostRun

ROLLOUT = 128
GAME = "atari/Breakout"


class Nothing:
    """Observes 4 zeros, whatever one does."""

    at = None

    def __init__(self, num_envs: int, workers: int):
        no = np.zeros(num_envs, bool)
        self.now = Stepped([np.zeros((num_envs, 4), np.float32)], np.zeros(num_envs), no, no, no)

    def reset(self, seed: int) -> Leaves:
        return self.now.observation

    def step(self, actions: np.ndarray) -> Stepped:
        return self.now

    def picture(self) -> None:
        return None

    def close(self) -> None:
        pass


class Waiting(Nothing):
    """Takes its time, without needing a core."""

    def step(self, actions: np.ndarray) -> Stepped:
        time.sleep(2e-3)
        return self.now


def run_on(env: str | HostTask, num_envs: int, **settings: Any) -> HostRun:
    """PPO with 4 epochs of 4 minibatches, as far as the settings do not say otherwise."""
    ppo = dict(batch=num_envs, rollout=ROLLOUT, epochs=4, minibatches=4, steps=10**9, log_every=100)
    run = api.setup(env, "ppo", **(ppo | settings))
    assert isinstance(run, HostRun)
    run.prepare()
    return run


class Timed:
    """A run that has warmed up: seconds per update, and where they go."""

    def __init__(self, run: HostRun, updates: int):
        learn, self.learning = run._compiled["learn"], 0.0

        def timed_learn(*arguments: Any) -> Any:
            started = time.perf_counter()
            after = jax.block_until_ready(learn(*arguments))
            self.learning += (time.perf_counter() - started) / updates
            return after

        state, _ = run.advance(run.init(), 0, 2)
        if not run.config.lag:  # or else waiting for it is what the lag is there to avoid
            run._compiled["learn"] = timed_learn
        source = run.collectors[0].source
        source.spent, self.learning = Spent(), 0.0
        started = time.perf_counter()
        jax.block_until_ready(run.advance(state, 2, updates))
        self.total = (time.perf_counter() - started) / updates
        self.simulating = source.spent.simulator / updates
        self.acting = source.spent.policy / updates
        self.collecting = source.spent.total / updates
        run.close()


def nothing() -> dict[str, float]:
    found = {}
    for num_envs in (8, 32):
        observation = jax.ShapeDtypeStruct((4,), np.float32)
        task = HostTask("nothing", 2, observation, Nothing)
        timed = Timed(run_on(task, num_envs, lag=0, torso=(64, 64)), 20)
        rest = timed.collecting - timed.simulating - timed.acting
        found[f"nothing{num_envs}_us_per_step"] = 1e6 * rest / (ROLLOUT * num_envs)
    return found


def atari() -> dict[str, float]:
    found = {}
    for num_envs in (8, 32):
        timed = Timed(run_on(GAME, num_envs, lag=0), 3)
        known = timed.simulating + timed.acting + timed.learning
        found |= {
            f"atari{num_envs}_overhead": 1.0 - known / timed.total,
            f"atari{num_envs}_simulating": timed.simulating / timed.total,
            f"atari{num_envs}_acting": timed.acting / timed.total,
            f"atari{num_envs}_learning": timed.learning / timed.total,
            f"atari{num_envs}_steps_per_s": ROLLOUT * num_envs / timed.total,
        }
    return found


def overlap() -> dict[str, float]:
    """On Atari, where both acting and learning keep all cores busy, and where acting waits."""
    observation = jax.ShapeDtypeStruct((4,), np.float32)
    waiting = HostTask("waiting", 2, observation, Waiting)
    found = {}
    for name, env, settings in (
        ("atari_1_epoch", GAME, dict(epochs=1)),
        ("atari_4_epochs", GAME, dict(epochs=4)),
        ("waiting", waiting, dict(torso=(1024, 1024), epochs=4)),
    ):
        in_turn = Timed(run_on(env, 8, lag=0, **settings), 4)
        beside = Timed(run_on(env, 8, lag=1, **settings), 4)
        longer = max(in_turn.collecting, in_turn.learning)
        found |= {
            f"{name}_acting_s": in_turn.collecting,
            f"{name}_learning_s": in_turn.learning,
            f"{name}_in_turn_s": in_turn.total,
            f"{name}_beside_s": beside.total,
            f"{name}_over_longer": beside.total / longer,
        }
    return found


CASES: dict[str, Callable[[], dict[str, float]]] = {
    "nothing": nothing,
    "atari": atari,
    "overlap": overlap,
}

if __name__ == "__main__":
    results = {}
    for name in sys.argv[1:] or CASES:
        for what, value in CASES[name]().items():
            results[what] = round(value, 4)
            print(f"{what:28} {value:.4g}")
    print(json.dumps(results))
