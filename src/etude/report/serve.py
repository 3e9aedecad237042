"""A page that is served while its folders change: to this machine alone."""

import hashlib
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

from etude.errors import UserError, disk_errors
from etude.report.build import build
from etude.report.folders import stamp
from etude.report.page import Page
from etude.report.render import render, render_main

LOOPBACK = "127.0.0.1"
OWN_NAMES = (LOOPBACK, "localhost")
"""Any other name that leads here is not ours: a page from elsewhere may have had its own name point
to this machine, to read what only its user should (DNS rebinding). Ports may differ, as those of
tunnels do."""


class Live:
    """The page as its folders are now."""

    def __init__(self, paths: Sequence[str]):
        self._paths, self._lock = paths, threading.Lock()
        self._stamp = self._stamp_now()
        self._page = build(paths)

    def _stamp_now(self) -> tuple[object, ...]:
        return tuple(map(stamp, self._paths))

    def page(self) -> Page:
        with self._lock:
            if (now := self._stamp_now()) != self._stamp:
                with suppress(UserError):  # a file is just being written: the page stays as it was
                    self._page, self._stamp = build(self._paths), now
            return self._page

    def main(self) -> tuple[bytes, str]:
        """What changes, and its tag."""
        body = render_main(self.page()).encode()
        return body, f'"{hashlib.sha256(body).hexdigest()[:32]}"'


class _Handler(BaseHTTPRequestHandler):
    live: Live
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "etude", ""

    def do_GET(self) -> None:
        if not is_own_name(self.headers.get("Host", "")):
            return self._answer(HTTPStatus.FORBIDDEN, b"Ask for 127.0.0.1.", "text/plain")
        if self.path == "/":
            return self._answer(HTTPStatus.OK, render(self.live.page(), live=True).encode())
        if self.path == "/main":
            return self._answer_if_new(*self.live.main())
        return self._answer(HTTPStatus.NOT_FOUND, b"There is only one page.", "text/plain")

    def _answer_if_new(self, body: bytes, tag: str) -> None:
        known = self.headers.get("If-None-Match") == tag
        status = HTTPStatus.NOT_MODIFIED if known else HTTPStatus.OK
        self._answer(status, b"" if known else body, tag=tag)

    def _answer(
        self, status: HTTPStatus, body: bytes, kind: str = "text/html", tag: str = ""
    ) -> None:
        self.send_response(status)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Content-Security-Policy", "frame-ancestors 'none'")
        if tag:
            self.send_header("ETag", tag)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: the terminal belongs to the user."""


def is_own_name(host: str) -> bool:
    try:
        return urlsplit(f"//{host}").hostname in OWN_NAMES
    except ValueError:
        return False


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """A browser that goes away in the middle of an answer is no one's mistake."""


def serve(paths: Sequence[str], port: int, begin: Callable[[str], None]) -> None:
    """Serves the page on loopback until the process ends; `begin` is told its address."""
    live = Live(paths)  # mistakes come before anything is served
    handler = type("Handler", (_Handler,), {"live": live})
    with disk_errors(f"Port {port} cannot be listened on; choose another --port"):
        server = _Server((LOOPBACK, port), handler)
    with server:
        begin(f"http://{LOOPBACK}:{server.server_port}/")
        server.serve_forever()
