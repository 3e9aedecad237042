"""The published rule Disco103: where its weights are found, and how they fit our network."""

import hashlib
import http.client
import os
import re
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from queue import Empty, Queue

import jax
import numpy as np

from etude.cache import cache_dir
from etude.errors import UserError
from etude.rules.disco.rule import Disco, DiscoConfig
from etude.runs.arrays import read_arrays, write_atomically
from etude.runs.reading import is_file, read_bytes
from etude.runs.storage import from_arrays

FILE_NAME = "disco_103.npz"
SHA256 = "dac840a15b81e8805326363458c33979626172618f620d9e6e170315388530aa"
URL = (
    "https://raw.githubusercontent.com/google-deepmind/disco_rl/main/"
    "disco_rl/update_rules/weights/disco_103.npz"
)

MOST_BYTES = 64 << 20
"""The published file has three million."""
DOWNLOAD_SECONDS = 600.0
"""For the whole of a download."""

_RNN = "~/meta_lstm/~unroll/"
_ENCODER = {
    "mlp/~/linear_0": "y_net.layers.0",
    "mlp/~/linear_1": "y_net.layers.1",
    "mlp_1/~/linear_0": "z_net.layers.0",
    "mlp_1/~/linear_1": "z_net.layers.1",
    "sequential/conv1_d": "blocks.0",
    "sequential/conv1_d_1": "blocks.1",
}
_MODULES = {
    "linear": "modulation",
    "linear_1": "extra",
    "linear_2": "y_out",
    "linear_3": "z_out",
    "linear_4": "pi_out",
    "lstm/linear": "lstm",
    "sequential_1/conv1_d": "pi_block",
    f"{_RNN}lstm/linear": "rnn.lstm",
    f"{_RNN}mlp_2/~/linear_0": "rnn.embed",
    **{theirs: f"encoder.{ours}" for theirs, ours in _ENCODER.items()},
    **{f"{_RNN}{theirs}": f"rnn.encoder.{ours}" for theirs, ours in _ENCODER.items()},
}


def our_name(published: str) -> str:
    """The leaf of `Disco` that an array of the published file belongs to."""
    match = re.fullmatch(r"lstm/(.+)/([wb])", published)
    if match is None or match[1] not in _MODULES:
        raise UserError(f"{published!r} is not the name of an array of the published weights.")
    return f"network.{_MODULES[match[1]]}.{match[2]}"


def from_published(
    arrays: dict[str, np.ndarray],
    config: DiscoConfig = DiscoConfig(),
    source: str = "The file of published weights",
) -> Disco:
    """The rule with the given arrays, named and laid out as in the published file."""
    like = jax.eval_shape(lambda: Disco(config, key=jax.random.key(0)))
    # Convolutions of width one carry a leading axis of size one.
    is_wide = {name: x.ndim == 3 and len(x) == 1 for name, x in arrays.items()}
    ours = {our_name(name): x[0] if is_wide[name] else x for name, x in arrays.items()}
    return from_arrays(like, ours, source)


def load_disco103(config: DiscoConfig = DiscoConfig()) -> Disco:
    arrays, _ = read_arrays(find_weights())
    return from_published(arrays, config)


def find_weights() -> Path:
    """The published file: `$ETUDE_WEIGHTS_DIR`, then the user's cache, then a download."""
    folder = os.environ.get("ETUDE_WEIGHTS_DIR")
    cached = cache_dir() / FILE_NAME
    for path in (Path(folder) / FILE_NAME, cached) if folder else (cached,):
        if is_file(path):
            if wrong := mismatch(read_bytes(path, MOST_BYTES)):
                raise UserError(f"{path} {wrong}: delete it to have it downloaded again.")
            return path
    return download(cached)


def mismatch(data: bytes) -> str:
    """What is wrong with the data if it is not the published file; empty if it is."""
    digest = hashlib.sha256(data).hexdigest()
    if digest == SHA256:
        return ""
    return f"is not the published Disco103 file (its SHA-256 is {digest[:12]}…, not {SHA256[:12]}…)"


def download(path: Path) -> Path:
    """Fetches the published file into `path`, whole and verified or not at all."""
    url = os.environ.get("ETUDE_WEIGHTS_URL", URL)
    advice = f"put {FILE_NAME} into {path.parent}, or into a folder named by ETUDE_WEIGHTS_DIR"
    weights = "The Disco103 weights could not be"
    try:
        data = fetch(url, progress=_print_progress, seconds=DOWNLOAD_SECONDS)
    except (OSError, ValueError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", None) or error
        if isinstance(error, urllib.error.HTTPError):
            error.close()
        raise UserError(f"{weights} downloaded from {url} ({reason}): {advice}.") from None
    if wrong := mismatch(data):
        raise UserError(f"What came from {url} {wrong}, so it was thrown away: {advice}.")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, lambda file: file.write(data))
    except OSError as error:
        reason = error.strerror
        raise UserError(f"{weights} saved in {path.parent} ({reason}): {advice}.") from None
    return path


def fetch(
    url: str,
    progress: Callable[[int, int], None],
    chunk: int = 1 << 16,
    seconds: float = DOWNLOAD_SECONDS,
) -> bytes:
    """The bytes behind `url`; an answer that ends before its announced length is an error, as is
    one that has more than `MOST_BYTES` or takes more than `seconds` altogether."""
    found: Queue[bytes | Exception] = Queue()
    deadline = time.monotonic() + seconds

    def work() -> None:
        try:
            found.put(_fetch(url, progress, chunk, deadline))
        except Exception as error:
            found.put(error)

    # In a thread, which is left where it is: while an answer's first lines come in drop by drop,
    # nothing else can tell the time.
    threading.Thread(target=work, daemon=True).start()
    try:
        answer = found.get(timeout=seconds)
    except Empty:
        raise _took_too_long() from None
    if isinstance(answer, Exception):
        raise answer
    return answer


def _fetch(url: str, progress: Callable[[int, int], None], chunk: int, deadline: float) -> bytes:
    with urllib.request.urlopen(url, timeout=30) as answer:
        total = int(answer.headers.get("Content-Length") or 0)
        data = bytearray()
        while part := answer.read1(chunk):  # `read` would wait for a whole chunk
            data += part
            if max(total, len(data)) > MOST_BYTES:
                raise OSError(f"it has more than {MOST_BYTES:,} bytes")
            if time.monotonic() > deadline:
                raise _took_too_long()
            progress(len(data), total)
    if total and len(data) != total:
        raise OSError(f"cut off after {len(data)} of {total} bytes")
    return bytes(data)


def _took_too_long() -> OSError:
    return OSError("it took too long")


def _print_progress(done: int, total: int) -> None:
    share = f" of {total / 1e6:.1f}" if total else ""
    text = f"\rDownloading Disco103: {done / 1e6:.1f}{share} MB"
    print(text, end="\n" if done == total else "", file=sys.stderr, flush=True)
