"""Plain arrays in files: npz with a JSON header, written atomically, never pickled. No JAX here."""

import errno
import json
import os
import stat
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, BinaryIO

import numpy as np

from etude.errors import UserError, reason
from etude.runs.reading import HEADER_LIMITS, JSON, damaged, open_regular, parse_json, shortened
from etude.settings import Settings

HEADER = "__header__"
UNPACKED_BYTES = 256 << 20
"""What a file may unpack to if its reader does not know better: all published rules together have
few megabytes."""
FILE_BYTES = 1 << 40
ENTRY_BYTES = 1 << 10
"""What an entry has beside its numbers: their type and shape."""
DIRECTORY_BYTES = 1 << 20
"""Of the archive's list of entries, 46 bytes for each and its name."""


# --- Writing --------------------------------------------------------------------------------------


def as_json(value: object, indent: int | None = None) -> bytes:
    """The text of a JSON file. A folder may have any bytes for a name: those that are no Unicode
    become question marks, since no reader takes them."""
    return json.dumps(value, indent=indent, ensure_ascii=False).encode(errors="replace")


def write_atomically(path: Path, write: Callable[[IO[bytes]], object]) -> None:
    """Calls `write(file)` on a temporary neighbour and renames it into place once it is on disk.

    Whatever happens in between, `path` holds either its old contents or the new ones in full.
    A link, there or in place of the neighbour, is replaced and not followed. A device or a pipe,
    such as `/dev/null`, is not replaced: whoever else uses it would then write to a plain file.
    """
    _require_replaceable(path)
    temporary = path.with_name(f".{path.name}.partial")
    temporary.unlink(missing_ok=True)
    try:
        with open(temporary, "xb") as file:  # a new file: if there is a link, this fails
            write(file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _require_replaceable(path: Path) -> None:
    with suppress(FileNotFoundError):
        mode = path.lstat().st_mode
        if not (stat.S_ISREG(mode) or stat.S_ISLNK(mode) or stat.S_ISDIR(mode)):
            raise OSError(errno.EINVAL, "it is a device, a pipe or a socket")


def write_arrays(path: Path, arrays: dict[str, np.ndarray], header: Settings) -> None:
    """Writes an npz file, uncompressed: NumPy's own format, entry by entry."""
    text = np.frombuffer(as_json(header), np.uint8)

    def write(file: IO[bytes]) -> None:
        with zipfile.ZipFile(file, "w", allowZip64=True) as archive:
            for name, value in {HEADER: text, **arrays}.items():
                with archive.open(f"{name}.npy", "w", force_zip64=True) as entry:
                    np.lib.format.write_array(entry, np.asarray(value), allow_pickle=False)

    write_atomically(path, write)


# --- Reading --------------------------------------------------------------------------------------


def read_arrays(
    path: Path, *, start: str = "", most: int = UNPACKED_BYTES, form: object = JSON
) -> tuple[dict[str, np.ndarray], JSON]:
    """The arrays whose names have this start, and the header (empty if there is none), which must
    be of the type `form`. Refuses anything that needs pickle, and more than `most` bytes."""
    with _opened(path) as archive:
        header = _header(archive, path, form)
        names = [x for x in _names(archive) if x.startswith(start) and x != HEADER]
        declared = sum(archive.getinfo(_entry_of(archive, name)).file_size for name in names)
        if declared > most + ENTRY_BYTES * len(names):
            raise UserError(
                f"{shortened(path)} unpacks to {declared:,} bytes, where {most:,} is the most that "
                "is read."
            )
        return {name: _array(archive, _entry_of(archive, name)) for name in names}, header


def read_header(path: Path, form: object = JSON) -> tuple[list[str], JSON]:
    """The names of the arrays, and the header; no array is read."""
    with _opened(path) as archive:
        return [x for x in _names(archive) if x != HEADER], _header(archive, path, form)


@contextmanager
def _opened(path: Path) -> Iterator[zipfile.ZipFile]:
    """The archive; all that goes wrong in it has one kind of sentence."""
    file, size = open_regular(path, FILE_BYTES)
    with file:
        try:
            with zipfile.ZipFile(_Pieces(file)) as archive:  # type: ignore[arg-type]
                for entry in archive.infolist():
                    _require_plain(entry, size)
                yield archive
        except UserError:
            raise
        except OSError as error:
            told = f"{shortened(path)} cannot be read: {error.strerror or error}."
            raise UserError(told) from None
        except Exception as error:  # a damaged file can fail in any way, all with the same meaning
            why = reason(error)[:200]
            told = f"{shortened(path)} is not a sound file of plain arrays (npz): {why}."
            raise UserError(told) from None


class _Pieces:
    """A file that is read in pieces of a limited size, so that no length that a file claims to have
    becomes memory before it is checked."""

    def __init__(self, file: BinaryIO):
        self.seek, self.tell, self.seekable = file.seek, file.tell, file.seekable
        self._file = file

    def read(self, size: int = -1) -> bytes:
        found = self._file.read(DIRECTORY_BYTES + 1 if size < 0 else min(size, DIRECTORY_BYTES + 1))
        if len(found) > DIRECTORY_BYTES:
            raise ValueError("its list of entries is too long")
        return found


def _require_plain(entry: zipfile.ZipInfo, size: int) -> None:
    if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise ValueError(f"{entry.filename[:50]} is compressed in a way that is not read")
    if entry.compress_type == zipfile.ZIP_STORED and entry.file_size > size:
        raise ValueError(f"{entry.filename[:50]} claims to be larger than the file")


def _names(archive: zipfile.ZipFile) -> list[str]:
    return [name.removesuffix(".npy") for name in archive.namelist()]


def _entry_of(archive: zipfile.ZipFile, name: str) -> str:
    return f"{name}.npy" if f"{name}.npy" in archive.NameToInfo else name


def _header(archive: zipfile.ZipFile, path: Path, form: object) -> JSON:
    if HEADER not in _names(archive):
        return {}
    entry = _entry_of(archive, HEADER)
    if archive.getinfo(entry).file_size > HEADER_LIMITS.bytes + ENTRY_BYTES:
        raise damaged(path, "its header is too long")
    data = _array(archive, entry).tobytes()
    # A rule's settings may be infinite; where a number must be finite, its type says so.
    return parse_json(data, f"The header of {shortened(path)}", HEADER_LIMITS, form, finite=False)


def _array(archive: zipfile.ZipFile, name: str) -> np.ndarray:
    with archive.open(name) as file:
        version = np.lib.format.read_magic(file)
        if version not in ((1, 0), (2, 0)):
            raise ValueError(f"{name[:50]} is of an unknown version of NumPy's format")
        one = version == (1, 0)
        read = np.lib.format.read_array_header_1_0 if one else np.lib.format.read_array_header_2_0
        shape, _, dtype = read(file)
        if dtype.hasobject:
            raise ValueError(f"{name[:50]} holds Python objects, which are never loaded")
        claimed = int(np.prod(shape, dtype=object)) * dtype.itemsize
        if dtype.itemsize > 16 or any(n < 0 for n in shape):
            raise ValueError(f"{name[:50]} does not hold plain numbers")
        if claimed != archive.getinfo(name).file_size - file.tell():
            raise ValueError(f"{name[:50]} is not as long as it says")
    with archive.open(name) as file:
        return np.lib.format.read_array(file, allow_pickle=False)
