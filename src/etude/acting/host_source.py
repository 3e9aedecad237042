"""Experience from host simulators: one policy program per step, written into arrays on the host and
moved to the device once per rollout."""

import dataclasses
import time
from collections.abc import Callable, Sequence
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Key, PyTree

from etude.core.observations import Symbols
from etude.core.players import Player
from etude.core.trees import choose
from etude.core.types import Context, Episodes, Rollout
from etude.envs.host.simulator import Leaves, Outcome, Simulator, SimulatorFault, Stepped
from etude.envs.tasks import HostTask
from etude.errors import UserError, reason

Acted = tuple[PyTree[Array], PyTree[Array], Float[Array, "S B A"]]
"""What was remembered before and after, and the logits of the actions."""


@dataclasses.dataclass
class Spent:
    """Seconds that went into simulating and into the policy, of all that were spent collecting."""

    simulator: float = 0.0
    policy: float = 0.0
    total: float = 0.0


class Stopped(Exception):
    """A rollout was given up."""


class HostSource:
    """Parallel copies of an environment that runs outside JAX.

    S players act, each in B environments of its own. What they remember has S × B as its first
    axes; rollouts and episodes have T × S × B.
    """

    def __init__(
        self,
        task: HostTask,
        players: int,
        num_envs: int,
        unpack: Callable[[Sequence[Array]], tuple[Player, Context | None]],
        *,
        workers: int = 0,
        seed: int = 0,
    ):
        """`unpack` makes a player, and what tells it something, of the leaves that `collect` gets:
        taking a tree of modules apart at every step would cost more than the step."""
        self.task, self.shape, self.seed = task, (players, num_envs), seed
        self.form = jax.tree.structure(task.observation)
        self.spent, self.steps = Spent(), 0
        self.outcomes: list[Outcome] = []
        """Those of the episodes that ended in the latest rollout."""
        self.stop = False
        """Whether to give up the rollout that is being played."""
        self.stepping_since: float | None = None
        """When the simulator began what it is doing now, if it is doing anything."""
        self._unpack, self._act = unpack, jax.jit(self._acted)
        self._rows: dict[int, Rows] = {}
        self._latest: Leaves | None = None
        self._memory: PyTree[Array] = None
        self._score = np.zeros(players * num_envs, np.float32)
        self._length = np.zeros(players * num_envs, np.int32)
        self._forget = np.ones(self.shape, bool)
        try:
            self._simulator: Simulator = task.open(players * num_envs, workers)
        except SimulatorFault as fault:
            raise UserError(f"{task.name} cannot be started: {fault}.") from fault

    @property
    def at(self) -> int | None:
        """The environment that is being stepped, if that is known."""
        return self._simulator.at

    @property
    def _observation(self) -> Leaves:
        """The latest; the first one when it is first asked for, by whoever can wait for it."""
        latest = self._latest
        if latest is None:
            latest = self._latest = self._simulate(partial(self._simulator.reset, self.seed))
        return latest

    def close(self) -> None:
        self._simulator.close()

    def look(self) -> tuple[np.ndarray | None, list[np.ndarray]]:
        """A picture of the first environment, if there is one, and what is observed in it; copies,
        since simulators write over both."""
        seen = [x[0].copy() for x in self._observation]
        picture = self._simulate(self._simulator.picture)
        return None if picture is None else np.array(picture), seen

    def forget(self, players: np.ndarray) -> None:
        """Has players, some of all (flags), forget what they know, as if an episode began. Those
        that take their place go on with the episodes that are being played."""
        self._forget |= players[:, None]

    # --- The policy ------------------------------------------------------------------------------

    def start(self, leaves: Sequence[Array]) -> PyTree[Array]:
        """What players remember before anything was seen."""
        players, num_envs = self.shape
        start = jax.vmap(lambda x: self._unpack(x)[0].start(num_envs), axis_size=players)
        return start(leaves)

    def _acted(
        self,
        leaves: Sequence[Array],
        memory: PyTree[Array],
        observation: Sequence[Array],
        forget: Bool[Array, "S B"],
    ) -> Acted:
        """One step of all players."""

        def one(leaves, memory, observation, forget):
            player, context = self._unpack(leaves)
            observation = jax.tree.unflatten(self.form, observation)
            memory = choose(forget, player.start(self.shape[1]), memory)
            told = None if context is None else context(observation)
            return memory, *player.act(memory, observation, context=told)

        parted = [x.reshape(*self.shape, *x.shape[1:]) for x in observation]
        return jax.vmap(one, axis_size=self.shape[0])(leaves, memory, parted, forget)

    def _act_now(self, leaves: Sequence[Array]) -> tuple[PyTree[Array], PyTree[Array], np.ndarray]:
        started = time.perf_counter()
        before, after, logits = self._act(
            leaves, self._memory, list(self._observation), self._forget
        )
        logits = np.asarray(logits)
        self.spent.policy += time.perf_counter() - started
        return before, after, logits

    # --- Rollouts --------------------------------------------------------------------------------

    def collect(
        self, leaves: Sequence[Array], keys: Key[Array, " S"], length: int
    ) -> tuple[Rollout, Episodes]:
        """`length` steps of every environment."""
        began = time.perf_counter()
        if self._memory is None:
            self._memory = self.start(leaves)
        rows, self.outcomes = self._rows_for(length), []
        noise = np.asarray(_gumbel(keys, length, (self.shape[1], self.task.num_actions)))
        memory = self._memory
        for t in range(length):
            if self.stop:
                raise Stopped
            before, self._memory, logits = self._act_now(leaves)
            memory = before if t == 0 else memory
            rows.saw(t, self._observation, logits)
            actions = np.argmax(noise[t] + logits, axis=-1).reshape(-1)
            self.steps += 1
            now: Stepped = self._simulate(partial(self._simulator.step, actions))
            self._count(rows, t, now)
            rows.did(t, actions, now)
            self.outcomes.extend(now.outcomes)
            self._latest = now.observation
            np.logical_or(now.terminated, now.skipped, out=self._forget.reshape(-1))
        rows.saw(length, self._observation, self._act_now(leaves)[2])
        self._require_sense(rows)
        rollout = rows.rollout(self.form, jax.tree.map(lambda x: x[None], memory))
        self.spent.total += time.perf_counter() - began
        return rollout, rows.episodes()

    def _rows_for(self, length: int) -> "Rows":
        if length not in self._rows:
            self._rows[length] = Rows.empty(
                length, self.shape, self._observation, self.task.num_actions
            )
        return self._rows[length]

    def _simulate(self, work: Callable):
        self.stepping_since = started = time.monotonic()
        try:
            return work()
        except SimulatorFault as fault:
            raise self.fault(reason(fault).removesuffix("."), fault.index) from fault
        finally:
            self.spent.simulator += time.monotonic() - started
            self.stepping_since = None

    def fault(self, message: str, index: int | None = None) -> UserError:
        which = "" if index is None else f"environment {index}, "
        seed = self.seed + (index or 0)
        return UserError(
            f"{self.task.name} failed at step {self.steps} ({which}seed {seed}): {message}."
        )

    def _count(self, rows: "Rows", t: int, now: Stepped) -> None:
        """Which games are over, and their scores and lengths."""
        self._score += now.reward if now.score is None else now.score
        self._length += ~now.skipped if now.over is None else 1
        ended, score, length = rows.ended
        ended[t] = now.terminated | now.truncated if now.over is None else now.over
        score[t], length[t] = self._score, self._length
        if ended[t].any():
            self._score[ended[t]], self._length[ended[t]] = 0.0, 0

    def _require_sense(self, rows: "Rows") -> None:
        forms = jax.tree.leaves(self.task.observation)
        # A reward belongs to the step that it follows, an observation to the one before it.
        found = [("reward is", 1, rows.reward, nonsense(rows.reward))]
        for x, form in zip(rows.observation, forms, strict=True):
            is_symbols = isinstance(form, Symbols)
            what = f"observation, of {form.number} symbols, has" if is_symbols else "observation is"
            found.append((what, 0, x, nonsense(x, form.number if is_symbols else None)))
        for what, after, x, wrong in found:
            if wrong is not None and wrong.any():
                t, index, *_ = np.argwhere(wrong)[0].tolist()
                self.steps += t + after - len(rows.reward)
                raise self.fault(f"its {what} {x[wrong][0]}", index)


def nonsense(x: np.ndarray, symbols: int | None = None) -> np.ndarray | None:
    """Where numbers are not finite, or are not one of so many symbols; None if all can be right."""
    if symbols is not None:
        return (x < 0) | (x >= symbols)
    return ~np.isfinite(x) if np.issubdtype(x.dtype, np.floating) else None


@partial(jax.jit, static_argnums=(1, 2))
def _gumbel(keys: Key[Array, " S"], length: int, shape: tuple[int, int]) -> Float[Array, "T S B A"]:
    """What turns logits into samples, where the largest sum of both is chosen; drawn with the keys
    that a `JaxSource` would draw actions with."""

    def noise(key: Key[Array, ""]) -> Float[Array, "B A"]:
        return jax.random.gumbel(jax.random.split(key)[0], shape)

    return jax.vmap(lambda key: jax.vmap(noise)(jax.random.split(key, length)), out_axes=1)(keys)


@dataclasses.dataclass
class Rows:
    """A rollout while it is being played, on the host: T × (S · B)."""

    shape: tuple[int, int]
    observation: list[np.ndarray]
    logits: np.ndarray
    action: np.ndarray
    reward: np.ndarray
    terminal: np.ndarray
    seam: np.ndarray
    ended: tuple[np.ndarray, np.ndarray, np.ndarray]
    """Whether a game was over, its score and its length."""

    @staticmethod
    def empty(length: int, shape: tuple[int, int], observation: Leaves, actions: int) -> "Rows":
        width = shape[0] * shape[1]

        def row(dtype) -> np.ndarray:
            return np.empty((length, width), dtype)

        return Rows(
            shape,
            [np.empty((length + 1, *x.shape), x.dtype) for x in observation],
            np.empty((length + 1, *shape, actions), np.float32),
            row(np.int32),
            row(np.float32),
            row(bool),
            row(bool),
            (row(bool), row(np.float32), row(np.int32)),
        )

    def saw(self, t: int, observation: Leaves, logits: np.ndarray) -> None:
        for row, x in zip(self.observation, observation, strict=True):
            row[t] = x
        self.logits[t] = logits

    def did(self, t: int, actions: np.ndarray, now: Stepped) -> None:
        self.action[t] = actions
        self.reward[t] = now.reward
        self.terminal[t] = now.terminated
        self.seam[t] = now.skipped

    def episodes(self) -> Episodes:
        return Episodes(*map(self._moved, self.ended))

    def rollout(self, form: jax.tree_util.PyTreeDef, memory: PyTree[Array]) -> Rollout:
        seam = self._moved(self.seam)
        return Rollout(
            observation=jax.tree.unflatten(form, map(self._moved, self.observation)),
            action=self._moved(self.action),
            reward=self._moved(self.reward),
            terminal=self._moved(self.terminal),
            seam=seam,
            behaviour_logits=jnp.array(self.logits),
            mask=~seam,
            memory=memory,
        )

    def _moved(self, x: np.ndarray) -> Array:
        """On the device, T × S × B; a copy, since the next rollout is written over this one."""
        return jnp.array(x.reshape(len(x), *self.shape, *x.shape[2:]))
