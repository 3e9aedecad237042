"""Mistakes a user can mend: one clear sentence, exit code 2, no traceback."""


class UserError(Exception):
    """The message is a whole sentence that says what is wrong and, if it can, what to do."""
