"""The published weights: found, downloaded whole or not at all, and put in their places."""

import contextlib
import gc
import hashlib
import http.server
import io
import socket
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from etude.errors import UserError
from etude.rules.disco import weights
from etude.runs.storage import named_leaves
from tests import parity

REAL_SHA256 = weights.SHA256
REAL_FILE = parity.ROOT / "../shared/weights" / weights.FILE_NAME
needs_real_file = pytest.mark.skipif(not REAL_FILE.is_file(), reason=f"no {REAL_FILE}")


def npz(**arrays: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


SMALL = npz(x=np.arange(40_000.0))
"""A made-up file, larger than one chunk of the download."""


class Bomb:
    """Unpickling this makes a file."""

    def __init__(self, path: Path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


class Server:
    """An HTTP server on this machine that gives `body` to everyone who asks."""

    def __init__(self):
        self.body, self.status, self.sent_share, self.requests = SMALL, 200, 1.0, 0
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                outer.requests += 1
                self.send_response(outer.status)
                self.send_header("Content-Length", str(len(outer.body)))
                self.end_headers()
                self.wfile.write(outer.body[: int(len(outer.body) * outer.sent_share)])

            def log_message(self, *_):
                """Silence."""

        self.http = http.server.HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_port}/{weights.FILE_NAME}"
        self.thread = threading.Thread(target=self.http.serve_forever, args=(0.01,))
        self.thread.start()

    def stop(self) -> None:
        self.http.shutdown()
        self.http.server_close()
        self.thread.join()


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch) -> Path:
    """An empty cache, no folder of weights, no proxy, and `SMALL` as the published file."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("ETUDE_WEIGHTS_DIR", raising=False)
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setattr(weights, "SHA256", hashlib.sha256(SMALL).hexdigest())
    return tmp_path / "cache"


@pytest.fixture
def server(monkeypatch):
    server = Server()
    monkeypatch.setenv("ETUDE_WEIGHTS_URL", server.url)
    yield server
    server.stop()


def files_in(folder: Path) -> list[str]:
    return [path.name for path in folder.rglob("*") if path.is_file()]


ADVICE = "ETUDE_WEIGHTS_DIR"
"""The word in a message that says where to put the file instead."""


def assert_no_download(cache: Path, *words: str) -> None:
    """The failure is a sentence with these words, and the cache stays empty."""
    with pytest.raises(UserError) as error:
        weights.find_weights()
    message = str(error.value)
    for word in words:
        assert word in message
    assert files_in(cache) == []


# --- Downloads -----------------------------------------------------------------------------------


def test_a_good_download_is_cached_and_used_without_the_server(server, cache, monkeypatch, capsys):
    path = weights.find_weights()
    assert path == cache / "etude" / weights.FILE_NAME
    assert path.read_bytes() == SMALL
    assert files_in(cache) == [weights.FILE_NAME]
    assert "Downloading Disco103: 0.3 of 0.3 MB" in capsys.readouterr().err
    monkeypatch.setenv("ETUDE_WEIGHTS_URL", closed_port())
    assert weights.find_weights() == path
    assert server.requests == 1


def test_a_connection_that_breaks_half_way(server, cache):
    server.sent_share = 0.5
    reason = f"cut off after {len(SMALL) // 2} of {len(SMALL)} bytes"
    assert_no_download(cache, reason, server.url, ADVICE)


def test_after_a_broken_connection_the_next_try_succeeds(server, cache):
    server.sent_share = 0.5
    assert_no_download(cache)
    server.sent_share = 1.0
    assert weights.find_weights().read_bytes() == SMALL


def test_wrong_bytes_are_thrown_away(server, cache):
    server.body = SMALL[:-1] + b"!"
    assert_no_download(cache, server.url, "is not the published Disco103 file")


def test_wrong_bytes_come_with_advice(server, cache):
    server.body = SMALL[:-1] + b"!"
    assert_no_download(cache, ADVICE)


def test_an_empty_answer(server, cache):
    server.body = b""
    assert_no_download(cache, "is not the published Disco103 file")


def test_a_refused_connection_is_closed(server, cache):
    """Left open, it warns when it is collected, and warnings are errors here."""
    server.status = 404
    assert_no_download(cache)
    gc.collect()


def test_a_missing_page(server, cache):
    server.status = 404
    assert_no_download(cache, server.url, "Not Found", ADVICE)
    gc.collect()


def closed_port() -> str:
    """The address of a port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{probe.getsockname()[1]}/{weights.FILE_NAME}"


def test_no_server_at_all(cache, monkeypatch):
    monkeypatch.setenv("ETUDE_WEIGHTS_URL", closed_port())
    assert_no_download(cache, "Connection refused", ADVICE)


@pytest.mark.parametrize(
    "url",
    [
        "disco.npz",
        "gopher://x/y",
        "http://127.0.0.1:port/x",
        "http://a b",
    ],
)
def test_an_address_that_is_none(cache, monkeypatch, url):
    monkeypatch.setenv("ETUDE_WEIGHTS_URL", url)
    assert_no_download(cache, url, ADVICE)


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(b"SSH-2.0-OpenSSH_9.6\r\n", id="not http"),
        pytest.param(
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nff\r\nonly this", id="cut chunk"
        ),
        pytest.param(b"HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\nonly this", id="odd length"),
        pytest.param(b"", id="nothing"),
    ],
)
def test_an_answer_that_is_not_sound_http(cache, monkeypatch, answer):
    """Whatever listens at the address answers with these bytes and hangs up."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(10)

        def serve():
            connection, _ = listener.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/x"
        monkeypatch.setenv("ETUDE_WEIGHTS_URL", url)
        try:
            assert_no_download(cache, url, ADVICE)
        finally:
            thread.join()


HEAD = b"HTTP/1.1 200 OK\r\n"


@pytest.mark.parametrize(
    ("head", "drop", "says"),
    [
        pytest.param(HEAD + b"\r\n", bytes(1 << 16), "more than 1,000,000 bytes", id="no end"),
        pytest.param(
            HEAD + b"Content-Length: 99999999999\r\n\r\n",
            bytes(1 << 16),
            "more than 1,000,000",
            id="huge",
        ),
        pytest.param(HEAD + b"Content-Length: 9999\r\n\r\n", b"x", "too long", id="slow body"),
        pytest.param(HEAD, b"X: y\r\n", "too long", id="slow head"),
    ],
)
def test_an_answer_without_end_is_given_up(head, drop, says, monkeypatch):
    monkeypatch.setattr(weights, "MOST_BYTES", 1_000_000)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(10)

        def serve():
            connection, _ = listener.accept()
            with connection, contextlib.suppress(OSError):  # until the other side hangs up
                connection.recv(4096)
                connection.sendall(head)
                until = time.monotonic() + 3.0
                while drop and time.monotonic() < until:
                    connection.sendall(drop)
                    time.sleep(0.02 if len(drop) < 100 else 0.0)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        url, started = f"http://127.0.0.1:{listener.getsockname()[1]}/x", time.monotonic()
        with pytest.raises(OSError, match=says):
            weights.fetch(url, lambda done, total: None, seconds=0.5)
        assert time.monotonic() - started < 2.5


def test_a_pickle_is_never_run(server, cache, tmp_path, monkeypatch):
    """A download with a pickle in it is thrown away; were its digest right, it would be refused."""
    trap = tmp_path / "trap"
    server.body = npz(x=np.array([Bomb(trap)], dtype=object))
    assert_no_download(cache, "is not the published Disco103 file")
    monkeypatch.setattr(weights, "SHA256", hashlib.sha256(server.body).hexdigest())
    with pytest.raises(UserError, match="not a sound file of plain arrays"):
        weights.load_disco103()
    assert not trap.exists()
    np.load(weights.find_weights(), allow_pickle=True)["x"]
    assert trap.exists(), "the bomb itself is a dud: this test proves nothing"


def test_a_cache_that_cannot_be_written(server, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(UserError, match="ETUDE_WEIGHTS_DIR"):
        weights.find_weights()


# --- Files already there -------------------------------------------------------------------------


def test_a_folder_of_weights_comes_first(server, tmp_path, monkeypatch):
    folder = tmp_path / "weights"
    folder.mkdir()
    (folder / weights.FILE_NAME).write_bytes(SMALL)
    monkeypatch.setenv("ETUDE_WEIGHTS_DIR", str(folder))
    assert weights.find_weights() == folder / weights.FILE_NAME
    assert server.requests == 0


@pytest.mark.parametrize("where", ["folder", "cache"])
def test_a_corrupt_file_is_named_and_left_alone(server, cache, tmp_path, monkeypatch, where):
    """It is the user's: we say what to do with it, and neither use nor replace it."""
    folder = tmp_path / "weights" if where == "folder" else cache / "etude"
    folder.mkdir(parents=True)
    if where == "folder":
        monkeypatch.setenv("ETUDE_WEIGHTS_DIR", str(folder))
    corrupt = bytearray(SMALL)
    corrupt[1000] ^= 1
    path = folder / weights.FILE_NAME
    path.write_bytes(corrupt)
    with pytest.raises(UserError, match="delete it to have it downloaded again") as error:
        weights.find_weights()
    assert str(path) in str(error.value)
    assert path.read_bytes() == corrupt
    assert server.requests == 0
    assert files_in(tmp_path) == [weights.FILE_NAME]


# --- The real file -------------------------------------------------------------------------------


@pytest.fixture
def published(monkeypatch) -> dict[str, np.ndarray]:
    """The arrays of the real file, in the order and layout they are stored in."""
    monkeypatch.setattr(weights, "SHA256", REAL_SHA256)
    monkeypatch.setenv("ETUDE_WEIGHTS_DIR", str(REAL_FILE.parent))
    with np.load(REAL_FILE) as file:
        return {name: file[name] for name in file.files}


@needs_real_file
def test_the_rule_has_42_arrays_and_754778_parameters(published):
    leaves = named_leaves(weights.load_disco103())
    assert len(leaves) == 42
    assert sum(leaf.size for leaf in leaves.values()) == 754_778


@needs_real_file
def test_every_published_name_has_a_leaf_of_its_own(published):
    rule = named_leaves(weights.load_disco103())
    assert sorted(map(weights.our_name, published)) == sorted(rule)


@needs_real_file
def test_every_array_arrives_with_its_values_and_in_c_order(published):
    """Twelve of them are stored in Fortran order."""
    rule = named_leaves(weights.load_disco103())
    fortran = [name for name, x in published.items() if not x.flags.c_contiguous]
    assert len(fortran) == 12
    for name, value in published.items():
        ours = np.asarray(rule[weights.our_name(name)])
        assert ours.flags.c_contiguous, name
        np.testing.assert_array_equal(ours, value.reshape(ours.shape), err_msg=name)


@needs_real_file
def test_the_real_file_can_be_downloaded(published, server, monkeypatch):
    monkeypatch.delenv("ETUDE_WEIGHTS_DIR")
    server.body = REAL_FILE.read_bytes()
    assert weights.find_weights().read_bytes() == server.body


# --- Files that do not fit -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        "x",
        "lstm/linear/v",
        "lstm/nonsense/w",
    ],
)
def test_an_unknown_array_is_a_clear_error(name):
    with pytest.raises(UserError, match=name):
        weights.from_published({name: np.zeros(1)})


def test_a_missing_array_is_a_clear_error():
    with pytest.raises(UserError, match="published weights does not fit: it lacks"):
        weights.from_published({"lstm/linear/b": np.zeros(256)})
