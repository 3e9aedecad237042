"""Time in units that carry from machine to machine.

One unit is the time of one 2048×2048×2048 float32 matrix product in JAX on the same machine in the
same run: the median of 15, taken just before and just after the case it measures.
"""

import dataclasses
import statistics
import time
from collections.abc import Callable

import jax
import jax.numpy as jnp


@dataclasses.dataclass(frozen=True)
class Measured:
    units: float
    temp_mb: float
    compile_s: float
    ms: float

    def figures(self) -> dict[str, float]:
        """Those that carry from machine to machine."""
        return {"units": self.units, "temp_mb": self.temp_mb, "compile_s": self.compile_s}


def seconds(call: Callable[[], object], repeats: int) -> float:
    """The median time of a call, its result waited for."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        jax.block_until_ready(call())
        times.append(time.perf_counter() - start)
    return statistics.median(times)


_matmul = jax.jit(jnp.matmul)


def unit_seconds() -> float:
    a = jnp.ones((2048, 2048), jnp.float32)
    jax.block_until_ready(_matmul(a, a))
    return seconds(lambda: _matmul(a, a), 15)


def measure(function: Callable, *arguments, repeats: int = 15) -> Measured:
    """Compiles `function` afresh for the arguments and times it, in units."""
    lowered = jax.jit(function).lower(*arguments)
    start = time.perf_counter()
    compiled = lowered.compile()
    compile_s = time.perf_counter() - start
    for _ in range(2):
        jax.block_until_ready(compiled(*arguments))
    before = unit_seconds()
    took = seconds(lambda: compiled(*arguments), repeats)
    unit = statistics.mean([before, unit_seconds()])
    memory = compiled.memory_analysis()
    assert memory is not None
    return Measured(took / unit, memory.temp_size_in_bytes / 1e6, compile_s, took * 1e3)
