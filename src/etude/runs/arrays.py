"""Plain arrays in files: npz with a JSON header, written atomically, never pickled. No JAX here."""

import json
import os
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import IO

import numpy as np

from etude.errors import UserError, reason
from etude.settings import Settings

HEADER = "__header__"


def write_atomically(path: Path, write: Callable[[IO[bytes]], object]) -> None:
    """Calls `write(file)` on a temporary neighbour and renames it into place once it is on disk.

    Whatever happens in between, `path` holds either its old contents or the new ones in full.
    """
    temporary = path.with_name(f".{path.name}.partial")
    try:
        with open(temporary, "wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def write_arrays(path: Path, arrays: dict[str, np.ndarray], header: Settings) -> None:
    """Writes an npz file, uncompressed: NumPy's own format, entry by entry."""
    text = np.frombuffer(json.dumps(header).encode(), np.uint8)

    def write(file: IO[bytes]) -> None:
        with zipfile.ZipFile(file, "w", allowZip64=True) as archive:
            for name, value in {HEADER: text, **arrays}.items():
                with archive.open(f"{name}.npy", "w", force_zip64=True) as entry:
                    np.lib.format.write_array(entry, np.asarray(value), allow_pickle=False)

    write_atomically(path, write)


def read_arrays(path: Path) -> tuple[dict[str, np.ndarray], Settings]:
    """The arrays and the header (empty if there is none). Refuses anything that needs pickle."""
    try:
        with zipfile.ZipFile(path) as archive:
            arrays = {x.removesuffix(".npy"): _entry(archive, x) for x in archive.namelist()}
        header = arrays.pop(HEADER, None)
        fields = {} if header is None else json.loads(header.tobytes())
    except FileNotFoundError:
        raise UserError(f"There is no file {path}.") from None
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror or error}.") from None
    except Exception as error:  # a damaged file can fail in any way, all with the same meaning
        told = f"{path} is not a sound file of plain arrays (npz): {reason(error)}."
        raise UserError(told) from None
    if not isinstance(fields, dict):
        raise UserError(f"{path} has a header that cannot be read.")
    return arrays, fields


def _entry(archive: zipfile.ZipFile, name: str) -> np.ndarray:
    with archive.open(name) as file:
        version = np.lib.format.read_magic(file)
        read_header = {
            (1, 0): np.lib.format.read_array_header_1_0,
            (2, 0): np.lib.format.read_array_header_2_0,
        }[version]
        shape, _, dtype = read_header(file)
        if dtype.hasobject:
            raise ValueError(f"{name} holds Python objects, which are never loaded")
        claimed = int(np.prod(shape, dtype=object)) * dtype.itemsize
        if claimed > archive.getinfo(name).file_size:
            raise ValueError(f"{name} is shorter than it says")
    with archive.open(name) as file:
        return np.lib.format.read_array(file, allow_pickle=False)
