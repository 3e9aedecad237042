"""The places that jobs are given: the cores of this machine, or those of a cluster."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from etude.errors import UserError
from etude.placing.cluster import ClusterOptions
from etude.placing.job import Places
from etude.placing.local import LocalPlaces
from etude.placing.ray_places import RayPlaces
from etude.placing.rays import connected

_MAKE: ContextVar[Callable[[], Places]] = ContextVar("make", default=LocalPlaces)


@contextmanager
def working_on(
    options: ClusterOptions,
    processes: int | None = None,
    tell: Callable[[str], None] = lambda text: None,
) -> Iterator[None]:
    """Within it, jobs run on the cluster, if there is one, or in so many processes of this machine,
    by default one per core. `tell` hears what befalls workers of a cluster."""
    if options.cluster is not None and processes is not None:
        raise UserError("--processes are those of this machine; of a cluster, it is --workers.")
    with connected(options.require()):
        here = options.cluster is None
        token = _MAKE.set(lambda: LocalPlaces(processes) if here else RayPlaces(options, tell))
        try:
            yield
        finally:
            _MAKE.reset(token)


def places() -> Places:
    """Where jobs run, as `working_on` says."""
    return _MAKE.get()()
