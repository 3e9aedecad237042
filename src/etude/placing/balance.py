"""Who does what: pieces of work of different size, shared out to workers."""

from collections.abc import Mapping, Sequence

Shares = dict[int, list[int]]
"""The pieces of each worker, both by number."""


def shared_out(pieces: Sequence[int], costs: Mapping[int, float], shares: Shares) -> Shares:
    """What each worker gets of more pieces, the largest first, each to whoever has least to do."""
    load = {worker: sum(costs[x] for x in own) for worker, own in shares.items()}
    found: Shares = {worker: [] for worker in shares}
    for piece in sorted(pieces, key=lambda x: (-costs[x], x)):
        least = min(load, key=lambda worker: (load[worker], worker))
        found[least].append(piece)
        load[least] += costs[piece]
    return {worker: sorted(own) for worker, own in found.items() if own}


def relieved(newcomer: int, costs: Mapping[int, float], shares: Shares) -> list[int]:
    """The pieces that a newcomer should take from others, so that the busiest has less to do."""
    left = {worker: list(own) for worker, own in shares.items() if worker != newcomer}
    load, coming = sum(costs[x] for x in shares.get(newcomer, [])), []
    while left:
        loads = {worker: sum(costs[x] for x in own) for worker, own in left.items()}
        busiest = max(loads, key=lambda worker: (loads[worker], -worker))
        lighter = [x for x in left[busiest] if load + costs[x] < loads[busiest]]
        if not lighter:
            break
        piece = max(lighter, key=lambda x: (costs[x], x))
        left[busiest].remove(piece)
        coming.append(piece)
        load += costs[piece]
    return sorted(coming)
