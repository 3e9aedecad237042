"""Several devices in one process.

What is computed for each of many agents is shared out in parts. Parts of the same size run as the
same program for one device, each device its own parts, so that no bit depends on how many devices
there are. (XLA compiles a program for several devices otherwise than one for one.)

The batch of a single agent is shared out by XLA, which adds up the parts of its gradient.
"""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as Spec

from etude.errors import UserError
from etude.text import count

Tree = TypeVar("Tree")
Found = TypeVar("Found")

AXIS = "devices"
ALL = "all"
_NUMBER: ContextVar[int] = ContextVar("devices", default=1)


@contextmanager
def using(devices: int | str) -> Iterator[None]:
    """Within it, runs are made for so many devices: a number, or `all` that there are."""
    token = _NUMBER.set(_checked(devices))
    try:
        yield
    finally:
        _NUMBER.reset(token)


def _checked(devices: int | str) -> int:
    if devices in (1, "1"):  # there is one, whatever there is
        return 1
    if devices != ALL and (not str(devices).isdecimal() or int(devices) < 1):
        raise UserError(f"--devices must be a number from 1, or {ALL}, not {devices}.")
    there_are = len(jax.local_devices())
    number = there_are if devices == ALL else int(devices)
    if number > there_are:
        found = count(there_are, f"{jax.default_backend()} device")
        raise UserError(f"--devices {number} is more than there are: JAX finds {found}.")
    return number


def in_use() -> list[jax.Device]:
    return jax.local_devices()[: _NUMBER.get()]


def mesh() -> Mesh:
    """The devices in use, along one axis."""
    return Mesh(np.array(in_use()), (AXIS,))


def along(mesh: Mesh, axis: int | None) -> NamedSharding:
    """Arrays are shared out along one of their axes, or each device has all of them."""
    return NamedSharding(mesh, Spec() if axis is None else Spec(*[None] * axis, AXIS))


@dataclasses.dataclass(frozen=True)
class Shares:
    """How agents, the first axis of each leaf of a tree, are shared out."""

    mesh: Mesh
    agents: int
    part: int
    """Agents that are computed together."""

    @staticmethod
    def of(agents: int, setting: str, part: int = 0) -> "Shares":
        """Those of the devices in use; without a `part`, each has one. `setting` is that of the
        number of agents."""
        where = mesh()
        own = max(part, 1) * where.size
        if agents % own:
            what = f"in parts of {part} (--part) " if part else ""
            raise UserError(
                f"{count(where.size, 'device')} cannot share out {setting} {agents} {what}equally: "
                f"it must be a multiple of {own}."
            )
        return Shares(where, agents, part or agents // where.size)

    @property
    def devices(self) -> Sequence[jax.Device]:
        return list(self.mesh.devices.flat)

    @property
    def layout(self) -> NamedSharding:
        return along(self.mesh, 0)

    @property
    def parts(self) -> int:
        """Of each device."""
        return self.agents // (self.mesh.size * self.part)

    def of_a_part(self, form: Tree) -> Tree:
        """The shapes of a part of a tree, from those of all."""
        return jax.tree.map(
            lambda x: jax.ShapeDtypeStruct((self.part, *x.shape[1:]), x.dtype), form
        )

    def split(self, tree: Tree) -> list[list[Tree]]:
        """The parts of each device."""
        leaves, form = jax.tree.flatten(jax.device_put(tree, self.layout))
        shares = [_shares(x) for x in leaves]
        return [
            [jax.tree.unflatten(form, part) for part in self._parts([x[i] for x in shares])]
            for i in range(self.mesh.size)
        ]

    def _parts(self, leaves: list[jax.Array]) -> Iterator[list[jax.Array]]:
        if self.parts == 1:
            yield leaves
            return
        for i in range(self.parts):
            yield [x[i * self.part : (i + 1) * self.part] for x in leaves]

    def join(self, parts: list[list[Tree]]) -> Tree:
        """One tree of the parts of each device, which stay where they are."""
        own = [xs[0] if len(xs) == 1 else _concatenated(xs) for xs in parts]
        return jax.tree.map(lambda *xs: _joined(xs, self.layout), *own)


def _concatenated(trees: Sequence[Tree]) -> Tree:
    return jax.tree.map(lambda *xs: jnp.concatenate(xs), *trees)


def _is_key(x: jax.Array) -> bool:
    return jnp.issubdtype(x.dtype, jax.dtypes.prng_key)


def _shares(x: jax.Array) -> list[jax.Array]:
    """What each device has of an array, in the order of the mesh."""
    if _is_key(x):
        return [jax.random.wrap_key_data(share) for share in _shares(jax.random.key_data(x))]
    by_place = sorted(x.addressable_shards, key=lambda shard: shard.index[0].start or 0)
    return [shard.data for shard in by_place]


def _joined(shares: Sequence[jax.Array], layout: NamedSharding) -> jax.Array:
    if len(shares) == 1:
        return shares[0]
    if _is_key(shares[0]):
        data = [jax.random.key_data(x) for x in shares]
        return jax.random.wrap_key_data(_joined(data, layout))
    shape = (sum(x.shape[0] for x in shares), *shares[0].shape[1:])
    return jax.make_array_from_single_device_arrays(shape, layout, list(shares))


def at_once(calls: Sequence[Callable[[], Found]]) -> list[Found]:
    """What they return. Each runs in a thread of its own, the first in this one."""
    first, *others = calls
    with ThreadPoolExecutor(max(1, len(others))) as pool:
        waiting = [pool.submit(call) for call in others]
        return [first(), *(x.result() for x in waiting)]
