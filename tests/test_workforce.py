"""Workers that are lost, hang, are slow or come late; here they are pretended, so that much can
happen in little time. With Ray: tests/test_cluster.py."""

import itertools
import random
from pathlib import Path

import pytest

from etude.errors import UserError
from etude.placing.actors import Actors, Lost
from etude.placing.balance import relieved, shared_out
from etude.placing.job import Job
from etude.placing.ray_places import RESTARTS, OnWorker
from etude.placing.workforce import Failed, Workforce

PIECES = 5


class Counter:
    """Holds pieces, each a list of what was sent to it."""

    def __init__(self):
        self.held = {}

    def about(self, pieces):
        return "here"

    def prepare(self, pieces):
        pass

    def adopt(self, pieces, *states):
        self.held |= {piece: list(state) for piece, state in zip(pieces, states, strict=True)}

    def step(self, pieces, message):
        for piece in pieces:
            self.held[piece].append(message)
        if message == "bad":
            return (Failed("It cannot be done."),) * len(pieces)
        return tuple((piece, message, len(self.held[piece])) for piece in pieces)

    def replay(self, pieces, *messages):
        for message in messages:
            self.step(pieces, message)

    def fetch(self, pieces):
        return tuple(list(self.held[piece]) for piece in pieces)

    def drop(self, pieces):
        for piece in pieces:
            del self.held[piece]


class PretendedActors:
    """Each wait takes a second, in which every worker but those that hang answers one call."""

    def __init__(
        self, chance: random.Random | None = None, capacity: int = 99, kind: type = Counter
    ):
        self.kind = kind
        self.chance, self.capacity = chance or random.Random(0), capacity
        self.now, self.numbers, self.names = 0.0, itertools.count(), itertools.count()
        self.workers, self.queues, self.values = {}, {}, {}
        self.hanging, self.delays, self.dies = set(), {}, 0.0
        self.killed, self.asked = [], []

    def hire(self):
        actor = next(self.names)
        self.workers[actor], self.queues[actor] = self.kind(), []
        return actor

    def room(self):
        return self.capacity - len(self.workers)

    def call(self, actor, what, returns, *arguments):
        refs = [(actor, what, next(self.numbers)) for _ in range(returns)]
        self.asked.append((actor, what))
        if actor in self.workers:
            self.queues[actor].append((refs, what, arguments))
        else:
            self.values |= {ref: Lost("it is dead") for ref in refs}
        return refs

    def wait(self, refs, seconds):
        for _ in range(max(1, int(seconds))):
            if ready := self.wait_a_second(refs):
                break
        return ready

    def wait_a_second(self, refs):
        self.now += 1.0
        for actor in list(self.workers):
            if self.dies and self.chance.random() < self.dies:
                self.lose(actor)
            elif self.queues[actor] and self.can_answer(actor):
                self.answer(actor)
        return [ref for ref in refs if ref in self.values]

    def can_answer(self, actor):
        has_started = list(self.workers).index(actor) < self.capacity
        waits = actor in self.hanging or self.now < self.delays.get(actor, 0.0)
        return has_started and not waits

    def answer(self, actor):
        refs, what, arguments = self.queues[actor].pop(0)
        arguments = [self.values.get(x, x) if isinstance(x, tuple) else x for x in arguments]
        found = getattr(self.workers[actor], what)(*arguments)
        values = found if what in ("step", "fetch") else (found,)
        self.values |= dict(zip(refs, values, strict=True))

    def lose(self, actor, with_results=True):
        del self.workers[actor]
        for refs, _, _ in self.queues.pop(actor):
            self.values |= {ref: Lost("it died") for ref in refs}
        if with_results:  # as with its node
            for ref in self.values:
                if ref[0] == actor:
                    self.values[ref] = Lost("it died")

    def get(self, ref):
        while ref not in self.values:
            self.wait([ref], 1.0)
        if isinstance(self.values[ref], Lost):
            raise self.values[ref]
        return self.values[ref]

    def put(self, value):
        ref = ("driver", "put", next(self.numbers))
        self.values[ref] = value
        return ref

    def kill(self, actor):
        self.killed.append(actor)
        if actor in self.workers:
            self.lose(actor, with_results=False)
            self.hanging.discard(actor)


def workforce(actors, workers=3, timeout=20.0):
    told = []
    found = Workforce(
        actors,
        [f"piece {i}" for i in range(PIECES)],
        [1.0] * PIECES,
        workers=workers,
        timeout=timeout,
        tell=told.append,
        clock=lambda: actors.now,
    )
    found.prepare()
    found.settle([[] for _ in range(PIECES)])
    return found, told


def go(work, first, number):
    """Steps, each of which must count once for every piece, in order."""
    for message in range(first, first + number):
        assert list(work.step(message)) == [(i, message, message + 1) for i in range(PIECES)]


def test_pieces_are_shared_out_evenly():
    costs = {0: 5.0, 1: 1.0, 2: 1.0, 3: 2.0, 4: 1.0}
    assert shared_out(range(5), costs, {7: [], 8: []}) == {7: [0], 8: [1, 2, 3, 4]}
    assert shared_out([1], costs, {7: [0], 8: [3]}) == {8: [1]}
    assert relieved(9, costs, {7: [0, 1], 8: [2, 3, 4], 9: []}) == [0]
    assert relieved(9, costs, {7: [0], 9: [3]}) == []
    assert relieved(9, costs, {9: []}) == []


@pytest.mark.parametrize("workers", [1, 2, 3, 9, None])
def test_any_number_of_workers_does_the_same(workers):
    actors = PretendedActors(capacity=4)
    work, told = workforce(actors, workers)
    go(work, 0, 25)
    assert work.fetch() == [list(range(25))] * PIECES
    expected = {9: "4 of 5 workers", None: "4 workers", 1: "1 worker"}
    assert work.standing == expected.get(workers, f"{workers} workers")
    work.close()
    assert not told and not actors.workers


def test_nothing_is_lost_or_counted_twice_when_workers_die_at_random():
    losses = 0
    for seed in range(40):
        actors = PretendedActors(random.Random(seed), capacity=3 + seed % 2)
        work, told = workforce(actors, None if seed % 3 else 3)
        actors.dies = 0.05
        go(work, 0, 35)
        actors.dies = 0.0
        assert work.fetch() == [list(range(35))] * PIECES
        losses += sum("is lost (it died): others take over" in x for x in told)
    assert losses > 100


def test_a_worker_that_hangs_is_lost_when_its_time_is_over():
    actors = PretendedActors()
    work, told = workforce(actors)
    go(work, 0, 3)
    actors.hanging.add(1)
    go(work, 3, 1)
    assert actors.killed == [1]
    assert any("no answer for 21 s" in x and "3 steps are done again" not in x for x in told)
    go(work, 4, 1)


def test_a_slow_worker_is_named_once():
    actors = PretendedActors()
    work, told = workforce(actors, timeout=100.0)
    go(work, 0, 1)
    for message in (1, 2):
        actors.delays[2] = actors.now + 40.0
        go(work, message, 1)
    assert len(told) == 2 and not actors.killed
    assert told[0] == (
        "worker 3 (here) takes more than 10 times as long as the others for piece 2."
    )


def test_who_comes_late_takes_over_from_the_busiest():
    actors = PretendedActors(capacity=1)
    work, told = workforce(actors, 2)
    assert work.standing == "1 of 2 workers"
    go(work, 0, 2)
    actors.capacity = 2
    go(work, 2, 5)
    assert work.standing == "2 workers"
    assert told == ["worker 2 (here) joins, and takes over piece 3, piece 4."]
    assert [sorted(x.held) for x in actors.workers.values()] == [[0, 1, 2], [3, 4]]
    assert work.fetch() == [list(range(7))] * PIECES


def test_what_cannot_be_done_is_not_tried_again():
    work, _ = workforce(PretendedActors())
    with pytest.raises(UserError, match="It cannot be done"):
        list(work.step("bad"))


def test_work_that_no_worker_survives_ends():
    actors = PretendedActors()
    work, _ = workforce(actors)
    actors.dies = 1.0
    with pytest.raises(UserError, match="Workers are lost again and again, at last worker"):
        list(work.step(0))


class Runs:
    """Ends at once with what the command says."""

    def run(self, command, folder):
        self.code = int(command[0])
        return self.code

    def pulse(self):
        return "a machine"

    def last_words(self):
        return f"etude: ended with {self.code}."

    def ask_to_stop(self):
        self.asked = True

    def end(self, seconds):
        assert self.asked and seconds > 0


def job(code: str) -> Job:
    return Job("job", (code,), Path("nowhere"), lambda: False, lambda: 0.0)


def placed_on(actors, code: str, told=None) -> OnWorker:
    tell = (lambda text: None) if told is None else told.append
    return OnWorker(actors, job(code), 30.0, tell, clock=lambda: actors.now)


def exit_code(placed: OnWorker) -> int:
    return next(x for x in iter(placed.exit_code, "never") if x is not None)


def test_a_job_whose_machine_is_lost_goes_on_on_another():
    actors = PretendedActors(kind=Runs)
    placed = placed_on(actors, "2")
    for lost in range(RESTARTS):
        actors.lose(lost)
        assert placed.exit_code() is None
    assert exit_code(placed) == 2 and placed.last_words() == "etude: ended with 2."
    assert not actors.workers and len(actors.killed) == RESTARTS + 1


def test_a_job_that_loses_every_machine_fails():
    actors = PretendedActors(kind=Runs)
    placed = placed_on(actors, "0")
    actors.dies = 1.0
    assert exit_code(placed) == 1
    assert placed.last_words() == "its worker was lost 6 times, at last: it died."


def test_a_job_is_asked_to_stop_before_it_is_ended():
    actors = PretendedActors(kind=Runs)
    placed = placed_on(actors, "0")
    placed.ask_to_stop()
    placed.end(5.0)
    assert [what for _, what in actors.asked] == ["run", "pulse", "ask_to_stop"]  # it was waiting
    placed = placed_on(actors, "0")
    while not placed._host:
        placed._require_pulse()
    placed.ask_to_stop()
    placed.end(5.0)
    assert [what for _, what in actors.asked][-2:] == ["ask_to_stop", "end"]


class Endless(PretendedActors):
    """Whose workers answer while they run something that does not end."""

    def answer(self, actor):
        self.queues[actor] = [call for call in self.queues[actor] if call[1] != "run"]
        if self.queues[actor]:
            super().answer(actor)


def test_a_job_whose_machine_does_not_answer_goes_on_on_another():
    actors, told = Endless(kind=Runs), []
    actors.capacity = 0  # nothing starts
    placed = placed_on(actors, "0", told)
    for _ in range(40):
        assert placed.exit_code() is None
    assert told.pop() == "job waits for room on the cluster." and not told  # it does not hang
    actors.capacity = 99
    for _ in range(40):
        assert placed.exit_code() is None
    assert not told
    actors.hanging.add(0)
    for _ in range(40):
        assert placed.exit_code() is None
    (text,) = told
    assert text.startswith("The worker of job on a machine is lost (no answer for 3")
    assert actors.killed == [0] and list(actors.workers) == [1]


def test_pretended_actors_are_actors():
    assert isinstance(PretendedActors(), Actors)
