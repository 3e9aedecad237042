"""Mistakes a user can mend: one clear sentence, exit code 2, no traceback."""

import difflib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager


class UserError(Exception):
    """The message is a whole sentence that says what is wrong and, if it can, what to do."""


def reason(error: BaseException) -> str:
    """The first line of what an exception says, or its name if it says nothing."""
    if isinstance(error, OSError) and error.strerror and error.filename is None:
        return error.strerror  # without its number
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
        if is_callers(error):
            raise
        raise UserError(f"{what}: {reason(error)}") from error


_alone = False


def take_over() -> None:
    """From now on this process is ours alone: one of our commands, or a worker of one."""
    global _alone
    _alone = True


def is_callers(error: BaseException) -> bool:
    """Whether whoever called us asks for an end by it: Ctrl-C, or a cancelled task. In a process of
    ours nobody does so by an exception: then foreign code has raised it."""
    mistakes = (Exception, SystemExit, GeneratorExit)
    return not _alone and not isinstance(error, mistakes)


def did_you_mean(name: str, names: Iterable[str], otherwise: str, cutoff: float = 0.6) -> str:
    """A hint at the one of the names that was probably meant, if there is one."""
    close = difflib.get_close_matches(name, list(names), n=1, cutoff=cutoff)
    return f"did you mean {close[0]!r}?" if close else otherwise
