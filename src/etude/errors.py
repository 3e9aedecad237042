"""Mistakes a user can mend: one clear sentence, exit code 2, no traceback."""

import difflib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager


class UserError(Exception):
    """The message is a whole sentence that says what is wrong and, if it can, what to do."""


def reason(error: BaseException) -> str:
    """The first line of what an exception says, or its name if it says nothing."""
    return (str(error).splitlines() or [""])[0].strip() or type(error).__name__


@contextmanager
def disk_errors(what: str) -> Iterator[None]:
    """Says what the system could not do, and why."""
    try:
        yield
    except OSError as error:
        raise UserError(f"{what}: {error.strerror or error}.") from None


@contextmanager
def foreign_code(what: str) -> Iterator[None]:
    """Around code of the user's or of others, which may raise anything, or exit: then `what` it was
    asked for could not be had, and why is said."""
    try:
        yield
    except UserError:
        raise
    except SystemExit as end:
        raise UserError(f"{what}: it calls sys.exit({end.code!r}).") from end
    except Exception as error:
        raise UserError(f"{what}: {reason(error)}") from error


def did_you_mean(name: str, names: Iterable[str], otherwise: str, cutoff: float = 0.6) -> str:
    """A hint at the one of the names that was probably meant, if there is one."""
    close = difflib.get_close_matches(name, list(names), n=1, cutoff=cutoff)
    return f"did you mean {close[0]!r}?" if close else otherwise
