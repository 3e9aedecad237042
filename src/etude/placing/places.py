"""The places that jobs are given: the cores of this machine, or those of a cluster."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from etude.errors import UserError
from etude.placing.cluster import ClusterOptions
from etude.placing.job import Places
from etude.placing.local import LocalPlaces
from etude.placing.ray_places import RayPlaces
from etude.placing.rays import connected

_CLUSTER: ContextVar[ClusterOptions | None] = ContextVar("cluster", default=None)


@contextmanager
def working_on(options: ClusterOptions) -> Iterator[None]:
    """Within it, jobs run on the cluster, if there is one."""
    with connected(options.require()):
        token = _CLUSTER.set(options)
        try:
            yield
        finally:
            _CLUSTER.reset(token)


def places(processes: int | None = None) -> Places:
    """For so many jobs at once, by default one per core."""
    options = _CLUSTER.get()
    if options is None or options.cluster is None:
        return LocalPlaces(processes)
    if processes is not None:
        raise UserError("--processes are those of this machine; of a cluster, it is --workers.")
    return RayPlaces(options)
