"""The published rule Disco103: where its weights are found, and how they fit our network."""

import hashlib
import http.client
import os
import re
import sys
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

import jax
import numpy as np

from etude.cache import cache_dir
from etude.errors import UserError
from etude.rules.disco.rule import Disco, DiscoConfig
from etude.runs.arrays import read_arrays, write_atomically
from etude.runs.storage import from_arrays

FILE_NAME = "disco_103.npz"
SHA256 = "dac840a15b81e8805326363458c33979626172618f620d9e6e170315388530aa"
URL = (
    "https://raw.githubusercontent.com/google-deepmind/disco_rl/main/"
    "disco_rl/update_rules/weights/disco_103.npz"
)

_MODULES = {
    "linear": "modulation",
    "linear_1": "extra",
    "linear_2": "y_out",
    "linear_3": "z_out",
    "linear_4": "pi_out",
    "lstm/linear": "lstm",
    "sequential_1/conv1_d": "pi_block",
    "~/meta_lstm/~unroll/lstm/linear": "rnn.lstm",
    "~/meta_lstm/~unroll/mlp_2/~/linear_0": "rnn.embed",
}
_ENCODER_MODULES = {
    "mlp/~/linear_0": "y_net.layers.0",
    "mlp/~/linear_1": "y_net.layers.1",
    "mlp_1/~/linear_0": "z_net.layers.0",
    "mlp_1/~/linear_1": "z_net.layers.1",
    "sequential/conv1_d": "blocks.0",
    "sequential/conv1_d_1": "blocks.1",
}


def our_name(published: str) -> str:
    """The leaf of `Disco` that an array of the published file belongs to."""
    match = re.fullmatch(r"lstm/(~/meta_lstm/~unroll/)?(.+)/([wb])", published)
    if match is None:
        raise UserError(f"{published!r} is not the name of an array of the published weights.")
    inner, module, leaf = match.groups()
    whole = (inner or "") + module
    if whole in _MODULES:
        return f"network.{_MODULES[whole]}.{leaf}"
    if module not in _ENCODER_MODULES:
        raise UserError(f"{published!r} is not the name of an array of the published weights.")
    prefix = "rnn." if inner else ""
    return f"network.{prefix}encoder.{_ENCODER_MODULES[module]}.{leaf}"


def from_published(
    arrays: dict[str, np.ndarray],
    config: DiscoConfig = DiscoConfig(),
    source: str = "The file of published weights",
) -> Disco:
    """The rule with the given arrays, named and laid out as in the published file."""
    like = jax.eval_shape(lambda: Disco(config, key=jax.random.key(0)))
    ours = {}
    for name, value in arrays.items():
        # Convolutions of width one carry a leading axis of size one.
        ours[our_name(name)] = value[0] if value.ndim == 3 else value
    return from_arrays(like, ours, source)


def load_disco103(config: DiscoConfig = DiscoConfig()) -> Disco:
    arrays, _ = read_arrays(find_weights())
    return from_published(arrays, config)


def find_weights() -> Path:
    """The published file: `$ETUDE_WEIGHTS_DIR`, then the user's cache, then a download."""
    folder = os.environ.get("ETUDE_WEIGHTS_DIR")
    candidates = [Path(folder) / FILE_NAME] if folder else []
    candidates.append(cache_dir() / FILE_NAME)
    for path in candidates:
        if path.is_file():
            check_digest(path)
            return path
    return download(candidates[-1])


def check_digest(path: Path) -> None:
    try:
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise UserError(f"Cannot read {path}: {error.strerror}.") from None
    if digest != SHA256:
        raise UserError(
            f"{path} is not the published Disco103 file (its SHA-256 is {digest[:12]}…, "
            f"not {SHA256[:12]}…): delete it to have it downloaded again."
        )


def download(path: Path) -> Path:
    """Fetches the published file into `path`, whole and verified or not at all."""
    url = os.environ.get("ETUDE_WEIGHTS_URL", URL)
    advice = f"put {FILE_NAME} into {path.parent}, or into a folder named by ETUDE_WEIGHTS_DIR"
    try:
        data = fetch(url, progress=_print_progress)
    except (OSError, ValueError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", None) or error
        if isinstance(error, urllib.error.HTTPError):
            error.close()
        raise UserError(
            f"The Disco103 weights could not be downloaded from {url} ({reason}): {advice}."
        ) from None
    digest = hashlib.sha256(data).hexdigest()
    if digest != SHA256:
        raise UserError(
            f"What came from {url} is not the published Disco103 file (its SHA-256 is "
            f"{digest[:12]}…, not {SHA256[:12]}…), so it was thrown away: {advice}."
        )
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, lambda file: file.write(data))
    except OSError as error:
        raise UserError(
            f"The Disco103 weights could not be saved in {path.parent} ({error.strerror}): "
            f"{advice}."
        ) from None
    return path


def fetch(url: str, progress: Callable[[int, int], None], chunk: int = 1 << 16) -> bytes:
    """The bytes behind `url`; an answer that ends before its announced length is an error."""
    with urllib.request.urlopen(url, timeout=30) as answer:
        total = int(answer.headers.get("Content-Length") or 0)
        data = bytearray()
        while part := answer.read(chunk):
            data += part
            progress(len(data), total)
    if total and len(data) != total:
        raise OSError(f"cut off after {len(data)} of {total} bytes")
    return bytes(data)


def _print_progress(done: int, total: int) -> None:
    share = f" of {total / 1e6:.1f}" if total else ""
    end = "\n" if done == total else ""
    print(
        f"\rDownloading Disco103: {done / 1e6:.1f}{share} MB", end=end, file=sys.stderr, flush=True
    )
