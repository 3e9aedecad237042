"""Trees of arrays in files: exact round trips, clear refusals, and no code run on opening."""

import io
import os
import pickle
import zipfile
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from etude.core.nn import Linear
from etude.errors import UserError
from etude.runs.arrays import read_arrays, write_arrays, write_atomically
from etude.runs.storage import from_arrays, named_leaves, sha256_of, to_arrays


class Pair(NamedTuple):
    left: jax.Array
    right: jax.Array


def make_tree(fill: float = 1.5):
    """Every kind of leaf that a run keeps; made under x64, it has 64-bit leaves too."""
    return {
        "layer": Linear(2, 3, key=jax.random.key(0)),
        "list": [jnp.full((2, 3), fill, jnp.float32), jnp.asarray([fill, -0.0, jnp.nan, jnp.inf])],
        "pair": Pair(jnp.asarray(7, jnp.int32), jnp.asarray([True, False])),
        "empty": jnp.zeros((0, 3)),
        "key": jax.random.key(3),
        "keys": jax.random.split(jax.random.key(4), 2),
    }


@pytest.fixture
def path(tmp_path) -> Path:
    return tmp_path / "tree.npz"


# --- Round trips ---------------------------------------------------------------------------------


@pytest.mark.usefixtures("x64")
def test_round_trip(path):
    """Every leaf comes back with its type, shape and bits; so does the header."""
    tree, header = make_tree(), {"step": 3, "name": "η", "nested": {"list": [1, None]}}
    write_arrays(path, to_arrays(tree), header)
    arrays, read_header = read_arrays(path)
    like = jax.tree.map(lambda x: jnp.zeros_like(x), tree)
    restored = from_arrays(like, arrays, "The file")
    assert read_header == header
    assert jax.tree.structure(restored) == jax.tree.structure(tree)
    assert {x.dtype.name for x in jax.tree.leaves(restored)} == {
        "float32", "float64", "int32", "bool", "key<fry>"
    }  # fmt: skip
    for (name, a), b in zip(named_leaves(tree).items(), jax.tree.leaves(restored), strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape), name
    assert sha256_of(restored) == sha256_of(tree) != sha256_of(like)


def test_a_restored_key_draws_the_same_numbers(path):
    key = jax.random.key(3)
    write_arrays(path, to_arrays(key), {})
    restored = from_arrays(jax.random.key(0), read_arrays(path)[0], "The file")
    np.testing.assert_array_equal(jax.random.bits(restored), jax.random.bits(key))


def test_shapes_are_enough_to_restore(path):
    """`jax.eval_shape` of the tree stands for it, random keys included."""
    tree = make_tree()
    write_arrays(path, to_arrays(tree), {})
    restored = from_arrays(jax.eval_shape(make_tree), read_arrays(path)[0], "The file")
    assert sha256_of(restored) == sha256_of(tree)


def test_the_leaf_decides_the_float_type():
    """A file written in 64 bits can be read by a 32-bit run."""
    restored = from_arrays({"x": jnp.zeros(2)}, {"x": np.array([0.1, 0.2])}, "The file")
    assert restored["x"].dtype == jnp.float32


def test_a_file_without_header_has_an_empty_one(path):
    np.savez(path, x=np.ones(2))
    arrays, header = read_arrays(path)
    assert header == {}
    assert arrays.keys() == {"x"}


def test_fortran_order_does_not_matter(path):
    x = np.arange(6.0, dtype=np.float32).reshape(2, 3)
    np.savez(path, x=np.asfortranarray(x))
    restored = from_arrays({"x": jnp.zeros((2, 3))}, read_arrays(path)[0], "The file")
    np.testing.assert_array_equal(restored["x"], x)
    assert sha256_of({"x": np.asfortranarray(x)}) == sha256_of({"x": x})


def test_names_are_dotted_paths():
    assert list(named_leaves(make_tree())) == [
        "empty",
        "key",
        "keys",
        "layer.w",
        "layer.b",
        "list.0",
        "list.1",
        "pair.left",
        "pair.right",
    ]


# --- Files that do not fit -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arrays", "sentence"),
    [
        ({"a": np.ones(2)}, "The file does not fit: it lacks b."),
        (
            {"a": np.ones(2), "b": np.ones(3), "c": np.ones(1)},
            "The file does not fit: it also holds c.",
        ),
        (
            {"a": np.ones(2), "b": np.ones((1, 3))},
            "The file does not fit: b has shape (1, 3) where (3,) is needed.",
        ),
    ],
    ids=["missing", "extra", "shape"],
)
def test_a_file_that_does_not_fit(arrays, sentence):
    with pytest.raises(UserError) as error:
        from_arrays({"a": jnp.zeros(2), "b": jnp.zeros(3)}, arrays, "The file")
    assert str(error.value) == sentence


def test_a_key_of_the_wrong_shape_does_not_fit():
    with pytest.raises(UserError, match=r"key has shape \(3,\) where \(2,\) is needed"):
        from_arrays({"key": jax.random.key(0)}, {"key": np.zeros(3, np.uint32)}, "The file")


# --- Files that are not sound --------------------------------------------------------------------


def npz_bytes(save=np.savez) -> bytes:
    buffer = io.BytesIO()
    save(buffer, x=np.arange(64.0), y=np.ones(3, np.int32))
    return buffer.getvalue()


def npy_bytes() -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, np.ones(3))
    return buffer.getvalue()


def zip_bytes(name: str, contents: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr(name, contents)
    return buffer.getvalue()


def huge_array() -> bytes:
    """A few bytes that claim to be an array of 800 terabytes."""
    buffer = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        buffer, {"descr": "<f8", "fortran_order": False, "shape": (10**14,)}
    )
    return buffer.getvalue()


def header_only(text: bytes) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, __header__=np.frombuffer(text, np.uint8))
    return buffer.getvalue()


@pytest.mark.parametrize(
    "contents",
    [
        pytest.param(npz_bytes()[:-30], id="end cut off"),
        pytest.param(npz_bytes()[:100], id="most cut off"),
        pytest.param(b"", id="empty"),
        pytest.param(b"Not an npz at all.\n", id="text"),
        pytest.param(zip_bytes("x.npy", b"\x93NUMPY\x01\x00 rubbish"), id="rubbish array"),
        pytest.param(header_only(b"{"), id="header cut off"),
        pytest.param(header_only(b"\xff\xfe\xff"), id="header not text"),
        pytest.param(npy_bytes(), id="npy"),
        pytest.param(
            zip_bytes("x.npy", huge_array()),
            id="absurd shape",
        ),
        pytest.param(
            zip_bytes("notes.txt", b"hello"),
            id="zip of something else",
        ),
    ],
)
def test_an_unsound_file_is_a_clear_error(path, contents):
    path.write_bytes(contents)
    with pytest.raises(UserError, match=r"tree\.npz"):
        read_arrays(path)


def test_a_missing_file_or_a_folder_is_a_clear_error(path, tmp_path):
    with pytest.raises(UserError, match=r"There is no file .*tree\.npz"):
        read_arrays(path)
    with pytest.raises(UserError):
        read_arrays(tmp_path)


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_a_damaged_byte_anywhere_is_noticed_or_harmless(path, save):
    """Each byte set to 255 in turn: the file is refused in a sentence, or reads as it was."""
    sound = npz_bytes(save)
    path.write_bytes(sound)
    expected, _ = read_arrays(path)
    for position in range(0, len(sound), 3):
        path.write_bytes(sound[:position] + b"\xff" + sound[position + 1 :])
        try:
            arrays, _ = read_arrays(path)
        except UserError:
            continue
        for name in arrays.keys() & expected.keys():  # a damaged name is another name
            np.testing.assert_array_equal(arrays[name], expected[name])


class Bomb:
    """Unpickling this makes a file."""

    def __init__(self, path: Path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


@pytest.mark.parametrize("form", ["npz", "npy", "pickle"])
def test_a_pickle_is_refused_without_running_it(path, tmp_path, form):
    trap, bomb = tmp_path / "trap", np.array([Bomb(tmp_path / "trap")], dtype=object)
    with open(path, "wb") as file:
        if form == "npz":
            np.savez(file, x=bomb)
        elif form == "npy":
            np.save(file, bomb)
        else:
            pickle.dump(bomb, file)
    with pytest.raises(UserError):
        read_arrays(path)
    assert not trap.exists()
    loaded = np.load(path, allow_pickle=True)
    if form == "npz":
        loaded["x"]
    assert trap.exists(), "the bomb itself is a dud: this test proves nothing"


# --- Writing -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["file", "allow_pickle", "args", "a/b", "x.y"])
def test_a_leaf_may_have_any_name(path, name):
    write_arrays(path, {name: np.ones(2)}, {})
    arrays, _ = read_arrays(path)
    assert list(arrays) == [name]


@pytest.mark.parametrize("failure", [RuntimeError, KeyboardInterrupt])
@pytest.mark.parametrize("old", [b"old contents", None])
def test_a_write_that_fails_half_way_changes_nothing(path, failure, old):
    """The old file (or its absence) stays, and no temporary file is left."""

    def write_half(file):
        file.write(b"half of the ne")
        file.flush()
        raise failure

    if old is not None:
        path.write_bytes(old)
    with pytest.raises(failure):
        write_atomically(path, write_half)
    left = {file.name: file.read_bytes() for file in path.parent.iterdir()}
    assert left == ({} if old is None else {path.name: old})


def test_a_write_replaces_the_old_file(path):
    path.write_bytes(b"old contents, longer than the new")
    write_atomically(path, lambda file: file.write(b"new"))
    assert {file.name: file.read_bytes() for file in path.parent.iterdir()} == {path.name: b"new"}


def test_a_pipe_or_device_is_not_replaced_by_a_file(tmp_path):
    pipe = tmp_path / "out.html"
    os.mkfifo(pipe)
    with pytest.raises(OSError, match="a device, a pipe or a socket"):
        write_atomically(pipe, lambda file: file.write(b"new"))
    assert pipe.is_fifo() and list(tmp_path.iterdir()) == [pipe]


# --- Digests -------------------------------------------------------------------------------------


def test_the_digest_of_equal_trees_is_equal():
    assert sha256_of(make_tree()) == sha256_of(make_tree())


def test_the_digest_changes_with_one_bit():
    x = np.linspace(0.0, 1.0, 5, dtype=np.float32)
    flipped = x.copy()
    flipped.view(np.uint32)[3] ^= 1
    assert sha256_of({"x": x}) != sha256_of({"x": flipped})
    assert sha256_of({"x": np.float32(0.0)}) != sha256_of({"x": np.float32(-0.0)})


def test_the_digest_sees_names_types_shapes_and_keys():
    x = np.zeros(4, np.int32)
    trees = [
        {"x": x},
        {"y": x},
        {"x": x.astype(np.float32)},
        {"x": x.reshape(2, 2)},
        {"x": jax.random.key(0)},
        {"x": jax.random.key(1)},
    ]
    assert len({sha256_of(tree) for tree in trees}) == len(trees)
