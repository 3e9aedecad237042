"""`etude discover --estimate`: how long a discovery would take, here and on a cluster."""

from collections.abc import Iterator
from itertools import groupby

from rich.markup import escape

from etude.cli.terminal import print_table, say
from etude.meta.discovery.config import DiscoverConfig
from etude.meta.discovery.cost import NETWORK, Costs, PartCost, Prediction, measure
from etude.meta.discovery.run import DiscoveryRun
from etude.placing.cluster import ClusterOptions
from etude.placing.rays import connected, room_in_all
from etude.runs import estimates
from etude.text import count, duration, size

MANY = 1_000_000
"""Meta-steps of a long discovery."""


def estimate(config: DiscoverConfig, cluster: ClusterOptions, force: bool) -> None:
    """Measures each program and prints what all would take. Nothing is written.

    Args:
        config: The settings of the discovery.
        cluster: Machines to measure the exchange with, if there are any. Its workers, or those
            that it has room for, are looked at, too.
        force: Whether to run even what would take more memory than there is.
    """
    with connected(cluster):
        with estimates.forcing(force):
            run = DiscoveryRun.create(config)
        say("Measuring each program for a few seconds …")
        exchange, workers = 0.0, cluster.workers
        if cluster.cluster is not None:
            from etude.meta.discovery.cluster.exchange import exchange_seconds

            exchange = exchange_seconds(run.start, cluster)
            workers = workers or room_in_all(cluster)
        costs = measure(run.parts, run.start, run.programs, config.seed, exchange)
    threads = cluster.threads(config.memory_limit is not None)
    print_costs(costs, config, workers, threads)
    if exchange:
        say(f"In Ray, a rule and an update were on their way for {exchange:.2g} s.")
    else:
        say("What Ray adds to that is measured with --cluster only.")


def print_costs(costs: Costs, config: DiscoverConfig, workers: int | None, threads: int) -> None:
    print_table((_part_row(*kind) for kind in _kinds(costs)), *PART_COLUMNS)
    say(f"\nA rule of {size(costs.rule_bytes)}; the driver takes {costs.adding:.2g} s per part.")
    say(f"On workers with {count(threads, 'core')} like these:")
    print_table(
        (_row(x, costs.steps, config.meta_steps) for x in _predictions(costs, workers, threads)),
        "workers",
        "per meta-step",
        "steps/s",
        "memory, at most",
        "sent per meta-step",
        f"{config.meta_steps:,} meta-steps",
        f"{MANY:,} meta-steps",
    )
    end, parts = costs.end_of_scaling(threads), len(costs.parts)
    most = f"There can be {count(parts, 'worker')}, one per part"
    say(f"{most}." if end == parts else f"{most}; beyond {end:,} it is hardly faster.")
    say(
        f"Checks and checkpoints come on top. A network of {size(NETWORK)}/s is assumed, and "
        "parts that last equally long every time."
    )


PART_COLUMNS = ("part", "per meta-step", "steps/s", "agents", "beside them", "compile")


def _kinds(costs: Costs) -> Iterator[tuple[PartCost, int]]:
    """The first of parts that were measured together, and how many they are."""
    for _, alike in groupby(costs.parts, lambda part: part._replace(name="")):
        first, *others = alike
        yield first, 1 + len(others)


def _part_row(part: PartCost, number: int) -> tuple[str, ...]:
    others = f", and {number - 1:,} alike" if number > 1 else ""
    return (
        f"{escape(part.name)}{others}",
        f"{part.seconds:.3g} s",
        f"{part.steps / part.seconds:,.0f}",
        size(part.states),
        size(part.extra),
        f"{part.compile_seconds:.3g} s",
    )


def _row(found: Prediction, steps: int, meta_steps: int) -> tuple[str, ...]:
    return (
        f"{found.workers:,}",
        f"{found.seconds:.3g} s",
        f"{steps / found.seconds:,.0f}",
        size(found.memory),
        size(found.moved),
        duration(meta_steps * found.seconds),
        duration(MANY * found.seconds),
    )


def _predictions(costs: Costs, workers: int | None, threads: int) -> Iterator[Prediction]:
    """On one, two, four workers and so on, and on those that there are."""
    parts = len(costs.parts)
    doubled = {2**i for i in range(parts.bit_length())}
    known = {costs.end_of_scaling(threads), parts, min(workers or parts, parts)}
    for number in sorted(doubled | known):
        yield costs.on(number, threads)
