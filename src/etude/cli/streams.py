"""What is printed must not end what is computed: a reader that goes away (`| head -1`), a full disk
or a terminal that knows only ASCII cost words, never a run."""

import codecs
import errno
import io
import os
import sys
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager, suppress

PLAIN = {
    "…": "...", "·": "-", "–": "-", "—": "-", "→": "->", "←": "<-", "×": "x", "±": "+-",
    "≥": ">=", "≤": "<=", "²": "^2", "▀": "#", "‘": "'", "’": "'", "“": '"', "”": '"',
    "−": "-", "⁄": "/", "√": "sqrt ", "∂": "d", "∇": "grad ", "Σ": "sum ", "‖": "|",
    "⌊": "[", "⌋": "]", "�": "?", "γ": "gamma", "ε": "epsilon", "λ": "lambda", "μ": "mu",
    "η": "eta", "θ": "theta", "π": "pi", "ρ": "rho", "τ": "tau",
    "│": "|", "─": "-", "╭": "+", "╮": "+", "╰": "+", "╯": "+", "━": "-", "╸": "-", "╺": "-",
}  # fmt: skip
"""What stands for characters that the terminal does not have."""


def _plain(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(map(in_ascii, error.object[error.start : error.end])), error.end


def in_ascii(character: str) -> str:
    """What comes nearest to it: `1/2` for ½, `y` for ŷ, nothing for an accent alone."""
    if character in PLAIN or unicodedata.combining(character):
        return PLAIN.get(character, "")
    parts = unicodedata.normalize("NFKD", character)
    return "".join(x if x.isascii() else PLAIN.get(x, "") for x in parts) or "?"


class Stream:
    """A standard stream that goes on, into nothing, when it can no longer be written to."""

    def __init__(self, inner: io.TextIOWrapper):
        self._inner = inner
        self.lost: Exception | None = None
        """Why, once it cannot."""

    def write(self, text: str) -> int:
        try:
            return self._inner.write(text)
        except (OSError, ValueError) as error:
            self._lose(error)
            return len(text)

    def flush(self) -> None:
        try:
            self._inner.flush()
        except (OSError, ValueError) as error:
            self._lose(error)

    def _lose(self, error: Exception) -> None:
        """From here on all goes to the null device, what is still in a buffer, too."""
        self.lost = self.lost or error
        with suppress(OSError, ValueError):
            nothing = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nothing, self._inner.fileno())
            os.close(nothing)

    def __getattr__(self, name: str):
        return getattr(self._inner, name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._inner)


_leaves_files = False


def files_matter() -> None:
    """Tells that the command's result is what it writes to files: what it prints may be lost."""
    global _leaves_files
    _leaves_files = True


@contextmanager
def forgiving() -> Iterator[None]:
    """Within it, standard output and error never raise. A command that does nothing but print ends
    with exit code 1 if that was lost."""
    codecs.register_error("etude.plain", _plain)
    for name in ("stdout", "stderr"):
        setattr(sys, name, Stream(_usable(getattr(sys, name))))
    code: object = 0
    try:
        yield
    except SystemExit as end:
        code = end.code
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    lost = getattr(sys.stdout, "lost", None)
    if lost is not None and not code and not _leaves_files:
        code = 1
        # Whoever read it has gone, which is no mistake of theirs; all else is worth a sentence.
        if getattr(lost, "errno", None) != errno.EPIPE:
            why = getattr(lost, "strerror", None) or lost
            print(f"etude: Standard output cannot be written: {why}.", file=sys.stderr)
    sys.exit(code)  # type: ignore[arg-type]


def _usable(stream: io.TextIOWrapper | None) -> io.TextIOWrapper:
    if stream is None:  # it was closed before we started
        stream = open(os.devnull, "w")  # noqa: SIM115
    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(errors="etude.plain")
    return stream
