"""What a run needs, told from its traced programs before anything is compiled: memory, and how much
there is to compile. Both are what it takes at least, so that nothing is refused that would work."""

import dataclasses
import math
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Protocol, runtime_checkable

import jax
from jax.stages import Lowered
from jaxtyping import PyTree

from etude.errors import UserError
from etude.runs.storage import bytes_of
from etude.settings import Settings, flag, shown
from etude.text import as_words, size

MOST_OPERATIONS = 100_000
"""Of a program: about ten minutes of compiling on a laptop, and several gigabytes for that."""
TENSOR = re.compile(r"tensor<((?:\d+x)*)[a-z]+(\d+)>")
"""As StableHLO writes a type of arrays: sides, and bits of a number."""


class Needs(NamedTuple):
    memory: int
    """Bytes."""
    operations: int
    """Of all programs together."""


@runtime_checkable
class Sized(Protocol):
    """A run, as far as it is needed here."""

    config: Any
    end: ClassVar[str]

    def shapes(self) -> PyTree: ...

    def traced(self) -> PyTree: ...

    def default_settings(self) -> Settings: ...

    @classmethod
    def untraced(cls, config: Any) -> "Sized": ...


# --- Programs -------------------------------------------------------------------------------------


@dataclasses.dataclass
class _Function:
    """Of a program in StableHLO."""

    operations: int = 0
    calls: list[str] = dataclasses.field(default_factory=list)
    largest: int = 0
    """Bytes of the largest array, or of all that a loop carries, which are there at once."""

    def take_in(self, block: Any) -> None:
        for operation in (x.operation for x in block.operations):
            self.operations += 1
            if operation.name == "func.call":
                self.calls.append(str(operation.attributes["callee"]).lstrip("@"))
            each = [_bytes(x.type) for x in operation.results]
            together = sum(each) if operation.name == "stablehlo.while" else max(each, default=0)
            self.largest = max(self.largest, together)
            for region in operation.regions:
                for inner in region.blocks:
                    self.take_in(inner)


def needs_of(program: Lowered) -> Needs:
    """Memory: what the program is given, and the largest thing that it holds beside it."""
    functions, given = {}, 0
    module: Any = program.compiler_ir("stablehlo")
    for found in (x.operation for x in module.body.operations):
        if found.name != "func.func":
            continue
        name, block = str(found.attributes["sym_name"]).strip('"'), found.regions[0].blocks[0]
        functions[name] = _Function()
        functions[name].take_in(block)
        if name == "main":
            given = sum(_bytes(x.type) for x in block.arguments)
    # A function is compiled wherever it is called; none calls itself.
    operations: dict[str, int] = {}

    def count(name: str) -> int:
        if name not in operations:
            own = functions[name]
            operations[name] = own.operations + sum(map(count, own.calls))
        return operations[name]

    return Needs(given + max(x.largest for x in functions.values()), count("main"))


def _bytes(of_type: object) -> int:
    if not (match := TENSOR.fullmatch(str(of_type))):
        return 0
    sides = [int(x) for x in match[1].split("x") if x]
    return math.prod(sides) * max(1, int(match[2]) // 8)


def needs_of_all(programs: PyTree, state: PyTree = None) -> Needs:
    """Of programs that run one after another."""
    leaves = jax.tree.leaves(programs, is_leaf=lambda x: isinstance(x, Lowered))
    each = [needs_of(x) for x in leaves]
    memory = max(bytes_of(state), *(x.memory for x in each), 0)
    return Needs(memory, sum(x.operations for x in each))


# --- What there is --------------------------------------------------------------------------------


def free_memory() -> int | None:
    """Bytes that programs can have, None if there is no telling."""
    device = jax.devices()[0]
    if device.platform != "cpu":
        return (device.memory_stats() or {}).get("bytes_limit")
    found = [_available(), _number_in("/sys/fs/cgroup/memory.max")]
    return min((x for x in found if x is not None), default=None)


def _available() -> int | None:
    try:
        text = Path("/proc/meminfo").read_text()
        return int(re.findall(r"MemAvailable:\s+(\d+) kB", text)[0]) << 10
    except (OSError, IndexError):  # not Linux
        pass
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, AttributeError):
        return None


def _number_in(path: str) -> int | None:
    try:
        return int(Path(path).read_text())
    except (OSError, ValueError):  # "max": there is no limit
        return None


# --- The two together -----------------------------------------------------------------------------

_FORCED: ContextVar[bool] = ContextVar("forced", default=False)
ANYWAY = "To run it anyway: --force, in Python force=True."


@contextmanager
def forcing(force: bool) -> Iterator[None]:
    """Within it, runs are made however much they need, if `force`."""
    token = _FORCED.set(force or _FORCED.get())
    try:
        yield
    finally:
        _FORCED.reset(token)


def require_possible(run: Sized) -> None:
    """Refuses a run that memory cannot hold, or that would compile for longer than anyone waits."""
    if _FORCED.get():
        return
    needs, free = needs_of_all(run.traced(), run.shapes()), free_memory()
    if free is not None and needs.memory > free:
        raise UserError(_too_large(needs.memory, free, costliest(run, 0)))
    if needs.operations > MOST_OPERATIONS:
        raise UserError(
            f"This would be a program of {needs.operations:,} operations, which compiles for many "
            f"minutes.{_due_to(costliest(run, 1))} {ANYWAY}"
        )


def require_room(memory: int, setting: str) -> None:
    """Refuses what takes more bytes than there are, due to a setting."""
    free = free_memory()
    if not _FORCED.get() and free is not None and memory > free:
        raise UserError(_too_large(memory, free, setting))


def _too_large(memory: int, free: int, setting: str) -> str:
    needed = f"This would take at least {size(memory)} of memory, where {size(free)} is free."
    return f"{needed}{_due_to(setting)} {ANYWAY}"


def _due_to(setting: str) -> str:
    return f" What costs most is {setting}." if setting else ""


TRIES = 3
ORDINARY = 1 << 15
"""Bytes of an observation that is not large: those of Atari have as many."""


class _Suspect(NamedTuple):
    name: str
    value: object
    excess: float
    """How many times its default a setting is."""
    smaller: Any
    """The settings of the run with half of it; None where that cannot be had."""


def costliest(run: Sized, need: int = 0) -> str:
    """The setting, with its value, to which a run owes most of one of its `Needs`: of those that
    are furthest above their default, the first that matters. Empty if there is none."""
    before = needs_of_all(run.traced(), run.shapes())[need]
    for suspect in sorted(_suspects(run), key=lambda x: -x.excess)[:TRIES]:
        if suspect.smaller is None or _needs_with(run, suspect.smaller)[need] < 0.9 * before:
            return f"{flag(suspect.name)} {shown(as_words(suspect.value))}"
    return ""


def _needs_with(run: Sized, config: Any) -> Needs:
    try:
        other = type(run).untraced(config)
        return needs_of_all(other.traced(), other.shapes())
    except Exception:  # there is no such run
        return Needs(sys.maxsize, sys.maxsize)


def _suspects(run: Sized) -> Iterator[_Suspect]:
    defaults, config = run.default_settings(), run.config
    for owner in filter(dataclasses.is_dataclass, (config, getattr(config, "online", None))):
        for name, value in vars(owner).items():
            counts = value if isinstance(value, tuple) else (value,)
            if name in ("seed", run.end) or not counts or any(type(x) is not int for x in counts):
                continue
            default = defaults.get(name) or 1
            usual = default if isinstance(default, tuple) else (default,)
            excess = max(sum(counts) / sum(usual), len(counts) / len(usual))
            half = tuple(max(1, x // 2) for x in counts[: -(-len(counts) // 2)])
            smaller = {name: half if isinstance(value, tuple) else half[0]}
            yield _Suspect(name, value, excess, _with(config, owner, smaller))
    task = getattr(run, "task", None)
    if task is not None and (excess := bytes_of(task.observation) / ORDINARY) > 1:
        yield _Suspect("env", task.name, excess, None)


def _with(config: Any, owner: Any, changes: Settings) -> Any:
    try:
        if owner is config:
            return dataclasses.replace(config, **changes)
        return dataclasses.replace(config, online=dataclasses.replace(owner, **changes))
    except UserError:
        return config
