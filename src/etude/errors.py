"""Mistakes a user can mend: one clear sentence, exit code 2, no traceback."""

import difflib
import signal
from collections.abc import Iterable, Iterator
from contextlib import contextmanager


class UserError(Exception):
    """The message is a whole sentence that says what is wrong and, if it can, what to do."""


def reason(error: BaseException) -> str:
    """The first line of what an exception says, or its name if it says nothing."""
    if isinstance(error, OSError) and error.strerror:  # without its number
        return error.strerror if error.filename is None else f"{error.strerror}: {error.filename}"
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
    except BaseException as error:
        if is_ctrl_c(error):
            raise
        raise UserError(f"{what}: {reason(error)}") from error


def is_ctrl_c(error: BaseException) -> bool:
    """Whether the user asks for an end by it. Where something else than Python itself hears Ctrl-C,
    as in our commands, no exception comes of it: then foreign code has raised this one."""
    heard_by_python = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    return isinstance(error, KeyboardInterrupt) and heard_by_python


def did_you_mean(name: str, names: Iterable[str], otherwise: str, cutoff: float = 0.6) -> str:
    """A hint at the one of the names that was probably meant, if there is one."""
    close = difflib.get_close_matches(name, list(names), n=1, cutoff=cutoff)
    return f"did you mean {close[0]!r}?" if close else otherwise
