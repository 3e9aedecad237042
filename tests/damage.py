"""Files, damaged by chance or with malice."""

import io
import json
import random
import zipfile
from collections.abc import Iterator
from typing import Any

import numpy as np

from tests.sound import EVIL

CODE = f"{EVIL}:Env", f"gym/{EVIL}:Env-v0", f"trials/{EVIL}:Env:a=1", "os:system:command=touch x"
HOSTILE: list[Any] = [
    None, True, -1, 0, 2**62, 10**19, 10**400, -(10**30), 1e308, 0.5, "", "x" * 70_000, "\0", "nan",
    [], {}, [[]], [1, "a", None], {"a": {}}, float("nan"), float("inf"), -float("inf"), *CODE,
    "\ud800", "\x1b[2J\r", "<script>$\\frac", "a" * 300, {CODE[0]: [0, 1]},
]  # fmt: skip


def damage_bytes(data: bytes, chance: random.Random) -> bytes:
    for _ in range(chance.choice((1, 1, 1, 3, 10))):
        at, end = sorted(chance.randrange(len(data) + 1) for _ in range(2))
        data = damaged_between(data, at, min(end, at + 64), chance)
    return data


def damaged_between(data: bytes, at: int, end: int, chance: random.Random) -> bytes:
    before, part, after = data[:at], data[at:end], data[end:]
    ways = [
        before,
        before + after,
        before + chance.randbytes(len(part)) + after,
        before + part * 3 + after,
        before + bytes([chance.randrange(256)]) + data[at + 1 :],
        before + chance.choice((b"[", b"{", b'"', b"9", b"\0", b",")) + data[at:],
        before + b"\xff" * len(part) + after,
    ]
    return chance.choice(ways)


def damage_json(data: bytes, chance: random.Random) -> bytes:
    """One value somewhere is another, is gone, or is nested deep."""
    value = json.loads(data)
    spots = list(places(value))
    where, name = chance.choice(spots)
    what = chance.randrange(8)
    if what == 0:
        del where[name]
    elif what == 2 and isinstance(where, dict):
        where[str(chance.choice(HOSTILE))] = where.pop(name)
    elif what == 1:
        where[name] = [where[name]]
    else:
        where[name] = chance.choice(HOSTILE)
    if chance.random() < 0.02:
        depth = chance.choice((20, 2_000, 100_000))
        return b'{"env": ' + b"[" * depth + b"]" * depth + b"}"
    if chance.random() < 0.01:
        return b'{"env": [' + b"[]," * 200_000 + b"0]}"
    return json.dumps(value).encode()


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    pairs = value.items() if isinstance(value, dict) else enumerate(value)
    for name, part in pairs:
        yield value, name
        if isinstance(part, (dict, list)):
            yield from places(part)


def damage_lines(data: bytes, chance: random.Random) -> bytes:
    lines = data.splitlines()
    at = chance.randrange(len(lines))
    lines[at] = damage_json(lines[at], chance)
    return b"\n".join(lines) + b"\n"


def damage_npz(data: bytes, chance: random.Random) -> bytes:
    """Another header, other arrays, other packing."""
    with np.load(io.BytesIO(data)) as file:
        arrays = dict(file)
    what = chance.randrange(6)
    if what <= 2:
        text = damage_json(arrays["__header__"].tobytes(), chance)
        arrays["__header__"] = np.frombuffer(text, np.uint8)
    else:
        name = chance.choice([*arrays, "new"])
        arrays[name] = hostile_array(chance)
    if what == 5:
        return bomb(chance)
    buffer = io.BytesIO()
    chance.choice((np.savez, np.savez_compressed))(buffer, **arrays)
    return buffer.getvalue()


def hostile_array(chance: random.Random) -> np.ndarray:
    dtype = chance.choice(["f4", "f8", "i8", "u4", "b1", "c8", "U9", "S5", "V3", "M8[s]", "f2"])
    shape = chance.choice([(), (6,), (2, 2), (0,), (0, 9), (1, 0, 3), (1,) * 20, (3000,)])
    return np.zeros(shape, np.dtype(dtype))


def bomb(chance: random.Random) -> bytes:
    """Entries that claim, or hold, far more than they weigh."""
    buffer = io.BytesIO()
    packing = chance.choice((zipfile.ZIP_DEFLATED, zipfile.ZIP_LZMA, zipfile.ZIP_BZIP2))
    with zipfile.ZipFile(buffer, "w", packing) as archive:
        number = chance.choice((10, 10**6, 10**14))
        head = io.BytesIO()
        form = {"descr": "<f8", "fortran_order": False, "shape": (number,)}
        np.lib.format.write_array_header_1_0(head, form)
        archive.writestr("x.npy", head.getvalue() + bytes(chance.choice((80, 80_000))))
    data = bytearray(buffer.getvalue())
    at = data.rfind(b"PK\x01\x02")
    data[at + 24 : at + 28] = chance.choice((b"\xff\xff\xff\x7f", b"\x00\x00\x00\x10", b"\1\0\0\0"))
    return bytes(data)


def damage_text(data: bytes, chance: random.Random) -> bytes:
    """One word is another."""
    words = data.decode().split(" ")
    words[chance.randrange(len(words))] = str(chance.choice(HOSTILE))
    return " ".join(words).encode(errors="replace")
