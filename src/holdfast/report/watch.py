"""The page of a report, served on this machine alone and kept up to date."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from holdfast.report.html_page import html_page
from holdfast.report.page_data import Data

HOST = "127.0.0.1"


class WatchedPage:
    """The page and a name of its content, made anew when the results have changed.

    Args:
        make: gives the data of the page.
        state: a value that changes when results do; it is asked at every look, so it has to be cheap.
    """

    def __init__(self, make: Callable[[], Data], state: Callable[[], object]) -> None:
        self._make, self._state = make, state
        self._lock = threading.Lock()
        self._seen: object = None
        self._page, self._name = b"", ""

    def look(self) -> tuple[bytes, str]:
        """Return the page as it is now, and its name."""
        with self._lock:
            state = self._state()
            if not self._page or state != self._seen:
                data = self._make() | {"watched": True}
                self._name = hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()[:16]
                self._page = html_page(data | {"name": self._name}).encode()
                self._seen = state
            return self._page, self._name


def make_server(page: WatchedPage, port: int) -> ThreadingHTTPServer:
    """Make a server of the page at / and of its name at /name, on the loopback address; port 0 takes a free one."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if not self._is_own_host():
                self.send_error(403, "ask for 127.0.0.1 or localhost")
            elif self.path == "/":
                self._answer(page.look()[0], "text/html; charset=utf-8")
            elif self.path == "/name":
                self._answer(page.look()[1].encode(), "text/plain; charset=utf-8")
            else:
                self.send_error(404, "there is / and /name")

        def _is_own_host(self) -> bool:
            """Tell whether the browser was asked for this machine: another site's name may lead here too."""
            host = (self.headers.get("Host") or "").rpartition(":")[0] or self.headers.get("Host", "")
            return host in (HOST, "localhost")

        def _answer(self, content: bytes, kind: str) -> None:
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(content)))
            self.send_header("Cache-Control", "no-store")
            self.send_header("X-Content-Type-Options", "nosniff")
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:
            """Print nothing."""

    return ThreadingHTTPServer((HOST, port), Handler)
