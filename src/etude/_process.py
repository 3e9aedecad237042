"""What Etude asks of the process that it runs in, before JAX is imported."""

import ctypes
import os
import sys

M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_MAX = -1, -2, -4


def keep_freed_memory() -> bool:
    """Keeps freed memory in the process, on Linux with glibc. Whether the allocator took the
    setting.

    JAX's CPU backend takes its scratch memory from malloc for each call and gives it back after.
    glibc hands large blocks straight back to the system, so that every update of an agent would
    fault all its pages in again, which costs up to a fifth of its time. ETUDE_KEEP_MEMORY=0 leaves
    malloc alone.
    """
    if not sys.platform.startswith("linux") or os.environ.get("ETUDE_KEEP_MEMORY") == "0":
        return False
    try:
        mallopt = ctypes.CDLL("libc.so.6").mallopt
    except (OSError, AttributeError):  # another libc
        return False
    settings = {M_MMAP_MAX: 0, M_TRIM_THRESHOLD: 2**31 - 1, M_TOP_PAD: 2**26}
    return all(mallopt(name, value) == 1 for name, value in settings.items())


def run_small_programs_at_once() -> None:
    """Has JAX run programs on the CPU in the thread that calls them. By default another one does,
    and waking it takes several times as long as a step of a small policy. It is too late for that
    once a program has run."""
    if "jax" in sys.modules:
        sys.modules["jax"].config.update("jax_cpu_enable_async_dispatch", False)
    else:
        os.environ.setdefault("JAX_CPU_ENABLE_ASYNC_DISPATCH", "false")
