"""Values that are computed once and used again when the same computation is differentiated later.

A gradient through many agent updates goes through each of them a second time, long after it was
made. What stands for most of its work is marked by `keep`: the agent's gradient, and a rule's
summaries of wide predictions. `recorded` gives these values out, `replayed` takes them in.
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
    """Marks real numbers that cost more to compute again than to keep. Not for use inside `scan`,
    `cond` or `vmap`, from which a value cannot be given out."""
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
        values = iter(kept)

        def replay(tree: PyTree) -> PyTree:
            return jax.tree.map(_known, tree, next(values))

        with _visiting(replay):
            return function(*args, **kwargs)

    return call


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
    return primals[1], tangents[0]
