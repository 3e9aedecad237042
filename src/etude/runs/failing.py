"""What ends a run that is no mistake in its settings: memory that runs out, and code of the user's
that raises while JAX calls it."""

import logging
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from jax.errors import JaxRuntimeError

from etude.errors import UserError, reason
from etude.runs import estimates

if TYPE_CHECKING:
    from etude.runs.run import Run

TRACED = "Traceback (most recent call last):"
FRAME = re.compile(r'^  File "(.*)", line (\d+), in .*$', re.M)


@contextmanager
def explained(run: "Run", done: int = 0, number: int = 0, kept: str = "") -> Iterator[None]:
    """Around work of a run, the updates after those that are `done`: what goes wrong is a sentence,
    followed by what is `kept`."""
    callbacks = logging.getLogger("jax._src.callback")
    level = callbacks.level
    if not os.environ.get("ETUDE_TRACEBACK"):
        callbacks.setLevel(logging.CRITICAL)  # they print what will be said in the sentence
    try:
        yield
    except UserError as error:
        raise UserError(f"{error}{kept}") from error
    except (MemoryError, JaxRuntimeError) as error:
        raise UserError(f"{_sentence(run, error, done, number)}{kept}") from error
    finally:
        callbacks.setLevel(level)


def _sentence(run: "Run", error: Exception, done: int, number: int) -> str:
    text = str(error)
    if TRACED in text:
        return f"{_named(run)} failed {run.whereabouts(done, number)}: {_cause(text)}."
    if isinstance(error, MemoryError) or "RESOURCE_EXHAUSTED" in text or "out of memory" in text:
        costly = estimates.costliest(run)
        most = f" What costs most of it is {costly}." if costly else ""
        return f"Memory has run out: {reason(error)}.{most}"
    return f"JAX could not go on {run.whereabouts(done, number)}: {reason(error)}"


def _named(run: "Run") -> str:
    """The environments, and the rule if it is not Etude's."""
    settings = run.settings()
    places = [settings[name] for name in ("env", "tasks", "envs") if settings.get(name)]
    rule = settings.get("rule")
    return " or ".join(places + [rule] * (isinstance(rule, str) and ":" in rule.partition("=")[0]))


def _cause(text: str) -> str:
    """The last lines of a traceback: the exception, and where it was raised."""
    trace = text[text.rindex(TRACED) :]
    frames = list(FRAME.finditer(trace))
    said = trace[frames[-1].end() :] if frames else trace.removeprefix(TRACED)
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    where = f" ({os.path.basename(frames[-1][1])}, line {frames[-1][2]})" if frames else ""
    return f"{lines[0] if lines else 'it raised an exception'}{where}"
