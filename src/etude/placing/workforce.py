"""Pieces of a state that live on workers and advance together, step by step, whoever is lost.

Each piece has a number, and moves on by one step with every message that is sent to all. The driver
keeps the pieces as it fetched them last, and the messages since then: when a worker is lost, others
take its pieces from there and go through these messages again, to the same bits. What a piece
returned for a step counts once, in the order of the pieces.
"""

import dataclasses
import statistics
import time
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any, Generic, TypeVar

from etude.errors import UserError
from etude.placing.actors import Actors, Lost, Ref
from etude.placing.balance import relieved, shared_out

LOOK_EVERY = 0.2
"""Seconds between two looks at the time, when no worker answers."""
KEEP_EVERY = 10
"""Steps between two times that all pieces are fetched: as many have to be gone through again."""
TOLD, STARTING, PREPARING = 15.0, 60.0, 3600.0
"""Seconds until it is said that no worker starts, that others wait for one to start, and that
preparing (compiling) may take."""
SLOW, NOTICEABLE = 10.0, 5.0
"""A worker is slow that takes so many times as long as others do, and so many seconds longer."""
MOST_LOSSES = 5
"""After as many losses in a row the work itself must be to blame."""
ABOUT, PREPARE, ADOPT, REPLAY, STEP, FETCH, DROP = [
    "about",
    "prepare",
    "adopt",
    "replay",
    "step",
    "fetch",
    "drop",
]
"""What workers are asked."""

Value = TypeVar("Value")


@dataclasses.dataclass(frozen=True)
class Failed:
    """What a worker returns that cannot do what it is asked, and never will."""

    sentence: str


@dataclasses.dataclass
class _Call:
    what: str
    pieces: tuple[int, ...]
    refs: list[Ref]
    limit: float
    """Seconds that it may take."""
    step: int
    """How many steps had begun when it was asked."""
    began: float | None = None
    """When it was first at the head of the worker's queue."""


@dataclasses.dataclass
class _Worker:
    number: int
    actor: Hashable
    name: str
    pieces: list[int] = dataclasses.field(default_factory=list)
    coming: list[int] = dataclasses.field(default_factory=list)
    """Pieces that it gets ready to take from others."""
    calls: deque[_Call] = dataclasses.field(default_factory=deque)
    here: bool = False
    """Whether it has started."""

    def waits_for(self, *what: str) -> bool:
        return any(call.what in what for call in self.calls)


class Workforce(Generic[Value]):
    """The workers that there are, and what each has to do."""

    def __init__(
        self,
        actors: Actors,
        names: Sequence[str],
        costs: Sequence[float],
        *,
        workers: int | None,
        timeout: float,
        tell: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ):
        """Of as many pieces as there are `names`. `workers`: how many there should be, by default
        as many as there is room for."""
        self._actors, self._names, self._costs = actors, list(names), dict(enumerate(costs))
        self._most, self._timeout = min(workers or len(names), len(names)), timeout
        self._by_room = workers is None
        self._tell, self._clock = tell, clock
        self._workers: dict[int, _Worker] = {}
        self._hired = self._steps = 0
        self._losses = 0
        """Since the last step that was finished."""
        self._kept: dict[int, Any] = {}
        self._messages: list[Ref] = []
        self._fetched: dict[int, Any] | None = None
        """Those that have come, while all are being fetched."""
        self._found: dict[int, Ref] = {}
        """What was returned for this step and is not taken yet, by piece."""
        self._taken = 0
        """How many pieces' values were taken."""
        self._times: list[float] = []
        self._slow: set[int] = set()
        self._homeless: list[int] = []

    # --- What the driver asks --------------------------------------------------------------------

    @property
    def standing(self) -> str:
        working = sum(bool(worker.pieces) for worker in self._workers.values())
        lacking = working < self._most and not self._by_room
        return f"{working} of {self._most} workers" if lacking else _count(working)

    def prepare(self) -> None:
        """Hires workers, shares the pieces out, and waits until they are ready for them."""
        self._kept, self._messages = {}, []
        self._hire()
        began, told = self._clock(), False
        while not all(worker.here for worker in self._workers.values()):
            waited = self._clock() - began
            if any(worker.here for worker in self._workers.values()) and waited > STARTING:
                break
            if waited > TOLD and not told and not any(x.here for x in self._workers.values()):
                told = True
                self._tell("No worker has started yet: the cluster has no room for one.")
            self._turn()
        self._homeless = list(range(len(self._names)))
        self._house()
        self._work(lambda: not self._homeless and not self._pending(PREPARE))

    def settle(self, states: Sequence[object]) -> None:
        """Gives the pieces to their workers."""
        self._kept, self._messages = dict(enumerate(states)), []
        self._taken, self._found = len(self._names), {}
        for worker in list(self._workers.values()):
            self._adopt(worker, worker.pieces)
        self._work(lambda: not self._homeless and not self._pending(ADOPT))

    def step(self, message: object) -> Iterator[Value]:
        """Moves all pieces on by a message; what each returns, in the order of the pieces."""
        self._welcome()
        self._messages.append(self._actors.put(message))
        self._steps += 1
        self._taken, self._found, self._times = 0, {}, []
        for worker in list(self._workers.values()):
            self._call(worker, STEP, worker.pieces, self._messages[-1])
        while self._taken < len(self._names):
            if self._taken in self._found:
                if (value := self._take(self._taken)) is not None:
                    self._taken += 1
                    yield value
            else:
                self._turn()
        self._work(lambda: not self._homeless and not self._pending(ADOPT, REPLAY, STEP))
        self._losses = 0
        if len(self._messages) >= KEEP_EVERY:
            self.fetch()

    def fetch(self) -> list[Any]:
        """All pieces as they are now."""
        if self._messages:
            self._fetched = {}
            for worker in list(self._workers.values()):
                self._call(worker, FETCH, worker.pieces)
            fetched = self._fetched
            self._work(lambda: len(fetched) == len(self._names))
            self._kept, self._messages, self._fetched = fetched, [], None
        return [self._kept[number] for number in range(len(self._names))]

    def close(self) -> None:
        for worker in self._workers.values():
            self._actors.kill(worker.actor)
        self._workers = {}

    # --- Who works -------------------------------------------------------------------------------

    def _hire(self) -> None:
        """As many as are wanted; by default, as many as can start at once."""
        wanted = self._most - len(self._workers)
        if self._by_room:
            starting = sum(not worker.here for worker in self._workers.values())
            wanted = min(wanted, self._actors.room() - starting)
        for _ in range(max(wanted, 0 if self._workers else 1)):
            self._hired += 1
            worker = _Worker(self._hired, self._actors.hire(), f"worker {self._hired}")
            self._workers[worker.number] = worker
            self._call(worker, ABOUT, (), limit=float("inf"))

    def _house(self) -> None:
        """Shares out pieces that have no worker to those who are there."""
        here = {x.number: x.pieces for x in self._workers.values() if x.here}
        if not here or not self._homeless:
            return
        for number, pieces in shared_out(self._homeless, self._costs, here).items():
            worker = self._workers[number]
            worker.pieces = sorted(worker.pieces + pieces)
            self._call(worker, PREPARE, pieces, limit=max(PREPARING, self._timeout))
            if self._kept:
                self._adopt(worker, pieces)
                self._catch_up(worker, pieces)
        self._homeless = []

    def _adopt(self, worker: _Worker, pieces: Sequence[int]) -> None:
        self._call(worker, ADOPT, pieces, *(self._kept[piece] for piece in pieces))

    def _catch_up(self, worker: _Worker, pieces: Sequence[int]) -> None:
        """From the pieces as they were kept to what all others have done or are doing now."""
        *past, now = self._messages or [None]
        if past:
            self._call(worker, REPLAY, pieces, *past, limit=self._timeout * len(past))
        if now is not None:
            self._call(worker, STEP, pieces, now)
        if self._fetched is not None:
            self._call(worker, FETCH, pieces)

    def _welcome(self) -> None:
        """Between two steps: workers who came late get something to do. They prepare for it while
        the others go on."""
        self._hire()
        for worker in list(self._workers.values()):
            if worker.coming and not worker.calls:
                self._move(worker)
            elif worker.here and not worker.pieces and not worker.calls:
                shares = {x.number: x.pieces for x in self._workers.values()}
                worker.coming = relieved(worker.number, self._costs, shares)
                limit = max(PREPARING, self._timeout)
                self._call(worker, PREPARE, worker.coming, limit=limit)

    def _move(self, newcomer: _Worker) -> None:
        """Hands over what a newcomer has prepared for, if it still is where it was."""
        self.fetch()
        if newcomer.number not in self._workers:
            return
        coming, newcomer.coming = set(newcomer.coming), []
        moved = []
        for worker in self._workers.values():
            if worker is newcomer:
                continue  # it may have got some in the meantime
            leaving = [piece for piece in worker.pieces if piece in coming]
            worker.pieces = [piece for piece in worker.pieces if piece not in coming]
            self._call(worker, DROP, leaving)
            moved += leaving
        newcomer.pieces = sorted(newcomer.pieces + moved)
        self._adopt(newcomer, moved)
        if moved:
            self._tell(f"{newcomer.name} joins, and takes over {self._named(moved)}.")

    def _lose(self, worker: _Worker, why: str) -> None:
        """Others take over what a worker had. What it returned and nobody took is done again."""
        self._actors.kill(worker.actor)
        del self._workers[worker.number]
        self._slow.discard(worker.number)
        self._losses += 1
        if self._losses > MOST_LOSSES + self._most:
            held = f" with {self._named(worker.pieces)}" if worker.pieces else ""
            raise UserError(f"Workers are lost again and again, at last {worker.name}{held}: {why}")
        for piece in worker.pieces:
            self._found.pop(piece, None)
        if worker.pieces:
            again = f" {_again(len(self._messages))}" if self._messages else ""
            self._tell(f"{worker.name} is lost ({why}): others take over.{again}")
        self._homeless = sorted(self._homeless + worker.pieces)
        self._hire()
        self._house()

    # --- What they are asked, and answer ---------------------------------------------------------

    def _call(
        self,
        worker: _Worker,
        what: str,
        pieces: Sequence[int],
        *arguments: object,
        limit: float | None = None,
    ) -> None:
        if not pieces and what != ABOUT:
            return
        returns = len(pieces) if what in (STEP, FETCH) else 1
        refs = self._actors.call(worker.actor, what, returns, list(pieces), *arguments)
        limit = self._timeout if limit is None else limit
        worker.calls.append(_Call(what, tuple(pieces), refs, limit, self._steps))

    def _pending(self, *what: str) -> bool:
        """Whether those who have pieces are still at such a thing."""
        return any(x.pieces and x.waits_for(*what) for x in self._workers.values())

    def _work(self, is_done: Callable[[], bool]) -> None:
        while not is_done():
            self._turn()

    def _turn(self) -> None:
        """Waits for an answer, for a moment, and deals with those that have come."""
        heads = {w.calls[0].refs[0]: w for w in self._workers.values() if w.calls}
        self._watch()
        ready = set(self._actors.wait(list(heads), LOOK_EVERY))
        for ref, worker in heads.items():
            if ref in ready and self._workers.get(worker.number) is worker:
                call = worker.calls.popleft()
                try:
                    self._answered(worker, call)
                except Lost as loss:
                    self._lose(worker, str(loss))

    def _answered(self, worker: _Worker, call: _Call) -> None:
        if call.what == STEP:
            self._times.append(self._clock() - (call.began or self._clock()))
            self._slow.discard(worker.number)
            for piece, ref in zip(call.pieces, call.refs, strict=True):
                if call.step == self._steps and piece >= self._taken:
                    self._found[piece] = ref
        elif call.what == FETCH:
            values = [self._get(ref) for ref in call.refs]
            if self._fetched is not None:  # or all had come, and one of them once more
                self._fetched.update(zip(call.pieces, values, strict=True))
        else:
            value = self._get(call.refs[0])
            if call.what == ABOUT:
                worker.here, worker.name = True, f"{worker.name} ({value})"
                self._house()

    def _take(self, piece: int) -> Value | None:
        """What a piece returned; None if that is lost with its worker."""
        try:
            return self._get(self._found.pop(piece))
        except Lost as loss:
            owner = next(x for x in self._workers.values() if piece in x.pieces)
            self._lose(owner, str(loss))
            return None

    def _get(self, ref: Ref) -> Any:
        value = self._actors.get(ref)
        if isinstance(value, Failed):
            raise UserError(value.sentence)
        return value

    def _watch(self) -> None:
        """Who is over time is lost; who is slow is named."""
        now = self._clock()
        for worker in list(self._workers.values()):
            if not worker.calls:
                continue
            call = worker.calls[0]
            call.began = now if call.began is None else call.began
            took = now - call.began
            if took > call.limit:
                self._lose(worker, f"no answer for {took:.0f} s")
            elif call.what == STEP and self._times and worker.number not in self._slow:
                usual = statistics.median(self._times)
                if took > max(SLOW * usual, usual + NOTICEABLE):
                    self._slow.add(worker.number)
                    self._tell(
                        f"{worker.name} takes more than {SLOW:.0f} times as long as the others "
                        f"for {self._named(call.pieces)}."
                    )

    def _named(self, pieces: Sequence[int]) -> str:
        names = [self._names[piece] for piece in pieces]
        more = f" and {len(names) - 3} more" if len(names) > 4 else ""
        return ", ".join(names if not more else names[:3]) + more


def _count(number: int) -> str:
    return f"{number} worker{'' if number == 1 else 's'}"


def _again(steps: int) -> str:
    return "1 step is done again." if steps == 1 else f"{steps} steps are done again."
