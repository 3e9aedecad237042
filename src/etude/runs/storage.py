"""Trees of arrays in files: npz with a JSON header, written atomically, never pickled.

JAX is imported by those functions that know trees: reading a file or a run folder needs none.
"""

import hashlib
import json
import os
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any, TypeVar

import numpy as np
from jaxtyping import PyTree

from etude.errors import UserError

Tree = TypeVar("Tree")
HEADER = "__header__"


def _is_key(leaf: Any) -> bool:
    import jax
    import jax.numpy as jnp

    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def named_leaves(tree: PyTree) -> dict[str, Any]:
    """The tree's array leaves by dotted path, such as `torso.mlp.layers.0.w`."""
    import jax

    leaves, _ = jax.tree.flatten_with_path(tree)
    return {jax.tree_util.keystr(path, simple=True, separator="."): x for path, x in leaves}


def to_arrays(tree: PyTree) -> dict[str, np.ndarray]:
    """The leaves as NumPy arrays; random keys (of the default generator) as their raw data."""
    import jax

    return {
        name: np.asarray(jax.random.key_data(x) if _is_key(x) else x)
        for name, x in jax.device_get(named_leaves(tree)).items()
    }


def from_arrays(like: Tree, arrays: dict[str, np.ndarray], source: str) -> Tree:
    """A tree of the form of `like` (arrays or shapes) with the leaves taken from `arrays`."""
    import jax
    import jax.numpy as jnp

    expected = named_leaves(like)
    missing, extra = expected.keys() - arrays.keys(), arrays.keys() - expected.keys()
    if missing or extra:
        names = ", ".join(sorted(missing or extra)[:3])
        raise UserError(
            f"{source} does not fit: it {'lacks' if missing else 'also holds'} {names}."
        )

    def restore(name: str, leaf: Any):
        value = arrays[name]
        is_key = _is_key(leaf)
        shape = jax.eval_shape(jax.random.key_data, leaf).shape if is_key else leaf.shape
        if value.shape != shape:
            raise UserError(
                f"{source} does not fit: {name} has shape {value.shape} where {shape} is needed."
            )
        if value.dtype.kind not in "biuf":
            raise UserError(f"{source} does not fit: {name} does not hold numbers.")
        if is_key:
            return jax.random.wrap_key_data(jnp.asarray(value))
        return jnp.asarray(np.ascontiguousarray(value).reshape(shape), dtype=leaf.dtype)

    leaves = [restore(name, leaf) for name, leaf in expected.items()]
    return jax.tree.unflatten(jax.tree.structure(like), leaves)


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


def write_arrays(path: Path, arrays: dict[str, np.ndarray], header: dict[str, Any]) -> None:
    """Writes an npz file, uncompressed: NumPy's own format, entry by entry."""
    text = np.frombuffer(json.dumps(header).encode(), np.uint8)

    def write(file: IO[bytes]) -> None:
        with zipfile.ZipFile(file, "w", allowZip64=True) as archive:
            for name, value in {HEADER: text, **arrays}.items():
                with archive.open(f"{name}.npy", "w", force_zip64=True) as entry:
                    np.lib.format.write_array(entry, np.asarray(value), allow_pickle=False)

    write_atomically(path, write)


def read_arrays(path: Path) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """The arrays and the header (empty if there is none). Refuses anything that needs pickle."""
    try:
        with zipfile.ZipFile(path) as archive:
            arrays = {
                entry.removesuffix(".npy"): _entry(archive, entry) for entry in archive.namelist()
            }
        header = arrays.pop(HEADER, None)
        fields = {} if header is None else json.loads(header.tobytes())
    except FileNotFoundError:
        raise UserError(f"There is no file {path}.") from None
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror or error}.") from None
    except Exception as error:  # a damaged file can fail in any way, all with the same meaning
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise UserError(f"{path} is not a sound file of plain arrays (npz): {reason}.") from None
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


def sha256_of(tree: PyTree) -> str:
    """A digest of names, types, shapes and values: equal digests mean equal bits."""
    digest = hashlib.sha256()
    for name, value in sorted(to_arrays(tree).items()):
        digest.update(f"{name}:{value.dtype}:{value.shape};".encode())
        digest.update(np.ascontiguousarray(value).tobytes())
    return digest.hexdigest()
