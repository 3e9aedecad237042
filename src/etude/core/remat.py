"""What a backward pass keeps when it computes everything else again."""

from typing import TypeVar

import jax
from jax.ad_checkpoint import checkpoint_name

Tree = TypeVar("Tree")

_KEPT = "kept"


def keep(tree: Tree) -> Tree:
    """Marks values that cost more to compute again than to keep; without `remat` it does nothing.

    A gradient through many agent updates cannot hold all that was computed on the way. Marked are
    the few things that stand for most of the work: the agent's gradient, and a rule's summaries of
    wide predictions.
    """
    return jax.tree.map(lambda x: checkpoint_name(x, _KEPT), tree)


def remat(function):
    """`function`, of which a backward pass holds the arguments and what was marked by `keep`.

    For the bodies of scans only: elsewhere the compiler may merge the two computations again.
    """
    policy = jax.checkpoint_policies.save_only_these_names(_KEPT)
    return jax.checkpoint(function, policy=policy, prevent_cse=False)
