"""What all tests share: quick compilation, 64-bit arithmetic on request, repeatable properties."""

import gc
import os
from collections.abc import Callable
from typing import TypeVar

from tests.programs import kept_programs

# Before JAX is imported, here and in the processes that tests start: nearly all the time of the
# tests is compilation, and the programs are small. The devices are for what several of them share.
os.environ.setdefault(
    "XLA_FLAGS",
    "--xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false"
    " --xla_cpu_parallel_codegen_split_count=1 --xla_llvm_disable_expensive_passes=true"
    " --xla_force_host_platform_device_count=8",
)

# All pytest workers, and processes that tests start, inherit these variables from the process that
# comes here first.
if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
    os.environ["JAX_COMPILATION_CACHE_DIR"] = kept_programs()
    os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0.1"

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import HealthCheck, settings

from etude import plugins

settings.register_profile(
    "etude",
    deadline=None,  # the first example of a shape compiles
    derandomize=True,
    max_examples=25,
    # The fixture `x64` is the same for every example.
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
settings.load_profile("etude")

# Tracing, most of what is left, makes a great many objects that live until it is done: looking
# through all of them again and again takes a sixth of the time.
gc.set_threshold(50_000, 10, 10)

# A shape that broadcasts by accident is an error, as is a call that breaks its shapes in types (see
# the option --jaxtyping-packages in pyproject.toml).
jax.config.update("jax_numpy_rank_promotion", "raise")

Tree = TypeVar("Tree")


@pytest.fixture(scope="module", autouse=True)
def one_loop(request):
    """In a meta-gradient all updates are in one loop, the first and the last as well, which leaves
    less to compile; unless a module says that its bits are compared with those of processes that
    know nothing of this."""
    with pytest.MonkeyPatch.context() as patch:
        if not getattr(request.module, "OTHER_PROCESSES", False):
            patch.setattr("etude.meta.gradient.FEW", 0)
            patch.setattr("etude.meta.gradient.UNROLLED", 0)
        yield


@pytest.fixture(autouse=True)
def trusts_nothing():
    """What a command called in this process was told to trust ends with the test."""
    named = set(plugins._NAMED)
    token = plugins._TRUSTS.set(False)
    yield
    plugins._TRUSTS.reset(token)
    plugins._NAMED.clear()
    plugins._NAMED.update(named)


@pytest.fixture
def x64():
    """64-bit JAX for the length of a test."""
    with jax.enable_x64(True):
        yield


def random_like(make: Callable[[], Tree], scale: float = 0.5) -> Tree:
    """What `make` makes, with normal random leaves: no initialiser has to be compiled."""
    random = np.random.default_rng(0)
    return jax.tree.map(
        lambda x: jnp.asarray(scale * random.normal(size=x.shape), x.dtype), jax.eval_shape(make)
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The slow ones first, so that no worker is left with one of them at the end."""
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)
