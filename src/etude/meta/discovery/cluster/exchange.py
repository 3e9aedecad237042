"""How long a cluster takes to hand a rule to a worker and an update back."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from etude.core.rule import Rule
from etude.errors import UserError
from etude.meta.discovery.cost import median_seconds
from etude.meta.discovery.parts import Sum
from etude.meta.discovery.rule_optimiser import RuleUpdate
from etude.placing.actors import Lost
from etude.placing.cluster import ClusterOptions
from etude.placing.rays import RayActors
from etude.placing.workforce import STARTING, STEP


class Echo:
    """A worker that returns what it is sent."""

    def call(
        self, what: str, returns: int, pieces: Sequence[int], leaves: list[np.ndarray]
    ) -> object:
        return [np.array(x) for x in leaves]


def exchange_seconds(rule: Rule, options: ClusterOptions, seconds: float = 2.0) -> float:
    """From sending a rule until an update of its size has come back and is added up; this process
    is the driver of the cluster."""
    actors, total = RayActors(Echo, (), options), Sum()
    actor = actors.hire()
    leaves, structure = jax.tree.flatten(rule)

    def exchange() -> None:
        (ref,) = actors.call(actor, STEP, 1, [0], actors.put(jax.device_get(leaves)))
        if not actors.wait([ref], STARTING):
            raise UserError(f"No worker of the cluster has answered within {STARTING:g} seconds.")
        update = jax.tree.unflatten(structure, [jnp.asarray(x) for x in actors.get(ref)])
        total.add(RuleUpdate(update, jnp.zeros((), jnp.int32)))
        jax.block_until_ready(total.whole)

    try:
        for _ in range(2):  # the worker starts, and the sum is compiled
            exchange()
        return median_seconds(exchange, seconds)
    except Lost as loss:
        raise UserError(f"The worker that was measured is lost: {loss}.") from None
    finally:
        actors.kill(actor)
