from __future__ import annotations

import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from http.server import ThreadingHTTPServer
from pathlib import Path

import pytest

from holdfast.report.page_data import page_data
from holdfast.report.watch import WatchedPage, make_server
from tests.support.made_up_results import store

DIRECTLY = urllib.request.build_opener(urllib.request.ProxyHandler({}))


@pytest.fixture
def served(tmp_path: Path) -> Iterator[ThreadingHTTPServer]:
    store(tmp_path, "permuted_digits", "er", {1: 0.5})
    page = WatchedPage(lambda: page_data(tmp_path, base=tmp_path), lambda: sorted(map(str, tmp_path.rglob("*.json"))))
    with make_server(page, 0) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def ask(server: ThreadingHTTPServer, path: str, host: str | None = None) -> str:
    request = urllib.request.Request(f"http://127.0.0.1:{server.server_port}{path}")
    if host:
        request.add_header("Host", host)
    with DIRECTLY.open(request, timeout=60) as answer:
        return str(answer.read().decode())


def test_the_page_follows_new_results(served: ThreadingHTTPServer, tmp_path: Path):
    first = ask(served, "/name")
    assert first == ask(served, "/name")
    assert '"watched":true' in ask(served, "/")
    assert f'"name":"{first}"' in ask(served, "/")
    store(tmp_path, "permuted_digits", "agem", {1: 0.4})
    assert ask(served, "/name") != first
    assert '"agem"' in ask(served, "/")


def test_it_listens_on_this_machine_and_answers_to_its_own_name_only(served: ThreadingHTTPServer):
    assert served.server_address[0] == "127.0.0.1"
    with pytest.raises(urllib.error.HTTPError, match="403"):
        ask(served, "/", host="evil.example:80")
    with pytest.raises(urllib.error.HTTPError, match="404"):
        ask(served, "/../secret")
