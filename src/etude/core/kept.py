"""Values that are computed once and used again when the same computation is differentiated later.

A gradient through many agent updates goes through each of them a second time, long after it was
made. The results of its most expensive parts are marked by `keep`: the agent's gradient, and a
rule's summaries of wide predictions. `recorded` gives these values out, `replayed` takes them in.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import ParamSpec, TypeVar

import jax
from jaxtyping import Array, PyTree

Tree = TypeVar("Tree")
Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")

Kept = list[PyTree[Array]]
"""What was marked, in the order of the computation."""

_visit: ContextVar[Callable[[PyTree], PyTree] | None] = ContextVar("visit", default=None)


def keep(tree: Tree) -> Tree:
    """Marks real numbers that cost more to compute again than to keep. Not for use inside `jit`,
    `checkpoint`, `vmap`, `scan` or `cond`, from which a value cannot be given out."""
    visit = _visit.get()
    return tree if visit is None else visit(tree)


def recorded(
    function: Callable[Arguments, Result],
) -> Callable[Arguments, tuple[Result, Kept]]:
    """`function`, which also returns what it marked."""

    def call(*args: Arguments.args, **kwargs: Arguments.kwargs) -> tuple[Result, Kept]:
        kept: Kept = []

        def record(tree: PyTree) -> PyTree:
            kept.append(jax.lax.stop_gradient(tree))
            return tree

        with _visiting(record):
            return function(*args, **kwargs), kept

    return call


def replayed(function: Callable[Arguments, Result], kept: Kept) -> Callable[Arguments, Result]:
    """`function`, for which the values that it marks are known. How they depend on its arguments
    is still computed where a derivative needs it; where none does, nothing of it is left."""

    def call(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        left = list(kept)

        def replay(tree: PyTree) -> PyTree:
            if not left or _form(tree) != _form(left[0]):
                raise ValueError("a replayed computation does not keep what the recorded one kept")
            return jax.tree.map(_known, tree, left.pop(0))

        with _visiting(replay):
            result = function(*args, **kwargs)
        if left:
            raise ValueError("a replayed computation keeps less than the recorded one kept")
        return result

    return call


def _form(tree: PyTree[Array]) -> object:
    leaves, structure = jax.tree.flatten(tree)
    return structure, [(x.shape, x.dtype) for x in leaves]


@contextmanager
def _visiting(visit: Callable[[PyTree], PyTree]) -> Iterator[None]:
    token = _visit.set(visit)
    try:
        yield
    finally:
        _visit.reset(token)


@jax.custom_jvp
def _known(computed: Array, value: Array) -> Array:
    """The value, as a function of whatever it was computed from."""
    return value


@_known.defjvp
def _known_jvp(primals, tangents):
    return _known(*primals), tangents[0]  # so that further derivatives are right as well
