"""`etude discover --estimate`: how long a discovery would take, here and on a cluster."""

from collections.abc import Iterator

from rich.markup import escape

from etude.cli.terminal import print_table, say
from etude.meta.discovery.config import DiscoverConfig
from etude.meta.discovery.cost import NETWORK, Costs, Prediction, measure
from etude.meta.discovery.run import DiscoveryRun
from etude.runs import estimates
from etude.text import count, duration, size

MANY = 1_000_000
"""Meta-steps of a long discovery."""


def estimate(config: DiscoverConfig, workers: int | None, force: bool) -> None:
    """Measures each program and prints what all would take. Nothing is written.

    Args:
        config: The settings of the discovery.
        workers: Those of a cluster; by default all numbers that make a difference.
        force: Whether to run even what would take more memory than there is.
    """
    with estimates.forcing(force):
        run = DiscoveryRun.create(config)
    say("Measuring each program for a few seconds …")
    print_costs(measure(run.parts, run.start, run.programs, config.seed), config, workers)


def print_costs(costs: Costs, config: DiscoverConfig, workers: int | None) -> None:
    rows = (
        (
            escape(part.name),
            f"{part.seconds:.3g} s",
            f"{part.steps / part.seconds:,.0f}",
            size(part.memory),
            f"{part.compile_seconds:.3g} s",
        )
        for part in costs.parts
    )
    print_table(rows, "part", "per meta-step", "steps/s", "memory", "compile")
    say(f"\nA rule of {size(costs.rule_bytes)}; the driver takes {costs.adding:.2g} s per part.")
    say("On workers of one core like these:")
    print_table(
        (_row(x, costs.steps, config.meta_steps) for x in _predictions(costs, workers)),
        "workers",
        "per meta-step",
        "steps/s",
        "memory, at most",
        "sent per meta-step",
        f"{config.meta_steps:,} meta-steps",
        f"{MANY:,} meta-steps",
    )
    end, parts = costs.end_of_scaling, len(costs.parts)
    say(f"More than {count(end, 'worker')} make it hardly faster, for {count(parts, 'part')}.")
    say(
        f"Checks and checkpoints come on top. A network of {size(NETWORK)}/s is assumed, and "
        "parts that last equally long every time."
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


def _predictions(costs: Costs, workers: int | None) -> Iterator[Prediction]:
    """On the workers that are asked for, or on one, two, four and so on."""
    parts = len(costs.parts)
    doubled = {2**i for i in range(parts.bit_length())}
    numbers = {workers} if workers else doubled | {costs.end_of_scaling, parts}
    for number in sorted(numbers):
        yield costs.on(number)
