"""The driver's side of a population on a cluster."""

import pickle
from collections.abc import Callable, Iterator, Sequence

import jax
import jax.numpy as jnp

from etude.core.rule import Rule
from etude.meta.discovery.cluster.worker import PartStep, Setup, Worker, versions
from etude.meta.discovery.config import DiscoverConfig
from etude.meta.discovery.parts import Part, Sum, by_environment, is_outside
from etude.meta.discovery.placement import Placement, PopulationStep, Seats
from etude.meta.discovery.rule_optimiser import RuleUpdate
from etude.placing.cluster import ClusterOptions
from etude.placing.rays import RayActors, connect
from etude.placing.surroundings import Surroundings
from etude.placing.workforce import Workforce
from etude.runs.storage import from_arrays, to_arrays


class OnCluster(Placement):
    """Parts live on workers. The rule goes out once a meta-step, their updates come back and are
    added up as in one process; seats are fetched for checkpoints, and now and then in between, so
    that whoever takes over from a lost worker has few meta-steps to make again."""

    def __init__(
        self,
        config: DiscoverConfig,
        start: Rule,
        parts: Sequence[Part],
        options: ClusterOptions,
        tell: Callable[[str], None],
    ):
        self._config, self._start, self._parts = config, start, parts
        self._options, self._tell = options, tell
        self._workforce: Workforce[PartStep] | None = None
        self._disconnect: Callable[[], None] = lambda: None

    def prepare(self) -> None:
        options, config = self._options, self._config
        assert options.cluster is not None
        self._disconnect = connect(options.cluster, options.cpus)
        threads = options.threads(config.memory_limit is not None)
        rule = pickle.dumps(jax.device_get(self._start))
        here = Surroundings.of_this_process(gpus=bool(options.worker_gpus))
        setup = Setup(config, rule, here, versions(), threads)
        self._workforce = Workforce(
            RayActors(Worker, (setup,), options),
            [part.name for part in self._parts],
            [float(part.place.agents) for part in self._parts],
            workers=options.workers,
            timeout=options.worker_timeout,
            tell=self._said,
        )
        self._workforce.prepare()

    def _said(self, what: str) -> None:
        outside = any(map(is_outside, self._parts)) and "take over" in what
        self._tell(f"{what} Simulators begin new episodes there." if outside else what)

    @property
    def _working(self) -> Workforce[PartStep]:
        assert self._workforce is not None, "prepare() comes first"
        return self._workforce

    def step(self, rule: Rule, seats: Seats) -> PopulationStep:
        if seats:  # of the start, or of a checkpoint
            self._working.settle([to_arrays(own) for own in seats])
        leaves, structure = jax.tree.flatten(rule)
        total, played = Sum(), []
        for found in self._working.step(jax.device_get(leaves)):
            update = jax.tree.unflatten(structure, [jnp.asarray(x) for x in found.update])
            total.add(RuleUpdate(update, jnp.asarray(found.agents)))
            played.append(found.played)
        return PopulationStep(total.whole, (), by_environment(self._parts, played))

    def gathered(self, seats: Seats) -> Seats:
        return seats or tuple(self._fetched())

    def _fetched(self) -> Iterator:
        for part, arrays in zip(self._parts, self._working.fetch(), strict=True):
            yield from_arrays(part.shapes(self._start), arrays, part.name)

    @property
    def standing(self) -> str:
        return self._workforce.standing if self._workforce is not None else ""

    def close(self) -> None:
        if self._workforce is not None:
            self._workforce.close()
            self._workforce = None
        self._disconnect()
        self._disconnect = lambda: None
