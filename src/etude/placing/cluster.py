"""Which machines work, as the flags of a command say; of Ray, nothing is imported."""

import dataclasses
import importlib.util
import re

from etude.errors import UserError
from etude.settings import check

LOCAL = "local"


@dataclasses.dataclass(frozen=True)
class ClusterOptions:
    """The machines that work, if not this one alone."""

    cluster: str | None = None
    """Ray cluster that works: the address of one, as HOST:PORT, or local, for one on this machine
    that only this command can reach and that ends with it."""
    workers: int | None = None
    """Workers on the cluster; those that cannot start yet join later. By default as many as there
    are cores and work for."""
    worker_cpus: int = 1
    """Cores that each worker asks for."""
    worker_gpus: float = 0.0
    """GPUs that each worker asks for."""
    worker_timeout: float = 600.0
    """Seconds after which a worker that does not answer counts as hanging: others do its work."""

    def __post_init__(self):
        check(
            self,
            count="workers worker_cpus",
            positive="worker_timeout",
            cost="worker_gpus",
        )
        fields = dataclasses.fields(self)
        if self.cluster is None and any(getattr(self, x.name) != x.default for x in fields):
            raise UserError("--workers and the like are for a cluster: name it with --cluster.")
        if self.cluster not in (None, LOCAL):
            host_and_port(self.cluster or "")

    def threads(self, limited: bool) -> int:
        """How many parts a worker runs at once: side by side, they could take more memory than a
        limit allows."""
        return 1 if limited else self.worker_cpus

    @property
    def cpus(self) -> int:
        """That all workers ask for together, as far as one knows how many there will be."""
        return (self.workers or 1) * self.worker_cpus

    def require(self) -> "ClusterOptions":
        """Refuses a cluster where Ray is not installed."""
        if self.cluster is not None and importlib.util.find_spec("ray") is None:
            raise UserError(
                "--cluster needs ray, which is not installed: pip install 'etude[cluster]'."
            )
        return self


def host_and_port(address: str) -> tuple[str, int]:
    """Of a cluster that is there."""
    host, _, port = address.rpartition(":")
    is_number = re.fullmatch("[0-9]{1,5}", port) is not None
    if not host or "/" in host or not is_number or not 0 < int(port) < 2**16:
        raise UserError(
            f"--cluster is {LOCAL}, or the address of a Ray cluster as HOST:PORT, not "
            f"{address[:80]!r}."
        )
    return host.strip("[]"), int(port)
