"""Files of a folder that are changed in place: never one that lies elsewhere under a name there."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from etude.errors import UserError, disk_errors

try:
    import fcntl
except ImportError:  # not a Unix system
    fcntl = None


def open_inside(path: Path, flags: int) -> IO[bytes]:
    """A file, made if it is not there; links are refused."""
    refuse_link(path)
    flags |= os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    file = os.open(path, flags, 0o666)
    if os.fstat(file).st_nlink > 1:
        os.close(file)
        raise UserError(
            f"{path} is a file that lies elsewhere, too (a hard link), and would change there: "
            "copy the folder first."
        )
    return os.fdopen(file, "ab" if flags & os.O_APPEND else "r+b")


def mark(path: Path) -> None:
    """Leaves an empty file."""
    open_inside(path, os.O_WRONLY).close()


def refuse_link(path: Path) -> None:
    if path.is_symlink():
        where = os.readlink(path)
        raise UserError(f"{path} is a link to {where}: in a run folder, no link is written to.")


def refuse_linked_folders(path: Path) -> None:
    """Refuses a folder with others in it, which are written to as well, if one lies elsewhere."""
    for where, names, _ in os.walk(path):
        for name in names:
            refuse_link(Path(where) / name)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Keeps other processes from holding the same lock, a file, at the same time."""
    if fcntl is None:  # not a Unix system
        yield
        return
    with disk_errors(f"Cannot write to {path.parent}"):
        lock = open_inside(path, os.O_RDWR)
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise UserError(f"Another process is working on {path.parent}.") from None
        yield


def is_locked(path: Path) -> bool:
    """Whether another process holds a lock, as far as one can tell."""
    if fcntl is None or not path.exists():
        return False
    try:
        with locked(path):
            return False
    except UserError:
        return True
