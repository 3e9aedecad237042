"""Mistakes a user can mend: one clear sentence, exit code 2, no traceback."""


class UserError(Exception):
    """The message is a whole sentence that says what is wrong and, if it can, what to do."""


def reason(error: BaseException) -> str:
    """The first line of what an exception says, or its name if it says nothing."""
    return (str(error).splitlines() or [""])[0].strip() or type(error).__name__
