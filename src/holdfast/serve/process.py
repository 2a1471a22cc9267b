"""The server as a process: its sockets, its timeouts, and its end."""

from __future__ import annotations

import asyncio
import gc
import ipaddress
import socket
from collections.abc import Callable

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from holdfast.serve.app import create_app
from holdfast.serve.limits import Limits
from holdfast.serve.shelf import Shelf
from holdfast.serve.tokens import Tokens

MOST_CONNECTIONS = 1000  # more are answered with 503
GRACE_SECONDS = 30  # for requests that are under way at the end
TOO_SLOW = b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"


def is_loopback(host: str) -> bool:
    """Tell if only this machine can reach an address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def serve(
    shelf: Shelf,
    *,
    host: str = "127.0.0.1",
    port: int = 8765,
    tokens: Tokens | None = None,
    limits: Limits | None = None,
    say: Callable[[str], None] = print,
) -> None:
    """Serve the models of a shelf until SIGTERM or Ctrl-C; then answer what is under way, save and close them.

    Args:
        port: 0 takes a free one.
        say: gets the address, once requests are taken.
    """
    try:
        checked_reach(host, tokens)
    except ValueError:
        shelf.close()
        raise
    limits = limits or Limits()
    app = create_app(shelf, tokens=tokens, limits=limits, local=not tokens, on_stop=shelf.close)
    try:
        bound = _bound(host, port)
    except OSError:
        shelf.close()
        raise
    config = uvicorn.Config(
        app,
        http=_timed_protocol(limits.body_seconds),
        ws="none",
        lifespan="on",
        access_log=False,
        log_level="warning",
        server_header=False,
        limit_concurrency=MOST_CONNECTIONS,
        timeout_graceful_shutdown=GRACE_SECONDS,
    )
    gc.collect()
    gc.freeze()  # what is there stays: else each collection looks at all of torch, and answers wait for it
    shown = f"[{host}]" if ":" in host else host
    say(f"http://{shown}:{bound.getsockname()[1]}")
    with asyncio.Runner(loop_factory=shelf.turns.loop) as runner:
        runner.run(uvicorn.Server(config).serve(sockets=[bound]))


def checked_reach(host: str, tokens: Tokens | None) -> None:
    """Raise ValueError if other machines can reach an address, and there are no tokens."""
    if not tokens and not is_loopback(host):
        raise ValueError(f"{host} can be reached from other machines: give --tokens FILE, or serve on 127.0.0.1")


def free_port(host: str) -> int:
    """Return a port that nobody listens on now."""
    with _bound(host, 0) as bound:
        port: int = bound.getsockname()[1]
    return port


def _bound(host: str, port: int) -> socket.socket:
    """Return a socket that listens. It says that it is of TCP: else asyncio leaves Nagle's delay of 40 ms on."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((host, port))
        bound.listen(2048)
    except OSError as error:
        bound.close()
        raise OSError(error.errno, f"cannot listen on {host}, port {port}: {error.strerror}") from error
    return bound


def _timed_protocol(seconds: float) -> type[asyncio.Protocol]:
    """Return uvicorn's protocol with a time for the headers of a request, which it has not itself."""

    class TimedProtocol(H11Protocol):
        deadline: asyncio.TimerHandle | None = None

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self._time_headers()

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            self._time_headers()

        def connection_lost(self, exc: Exception | None) -> None:
            self._stop_timing()
            super().connection_lost(exc)

        def _time_headers(self) -> None:
            """Begin to count with the first byte of a request, and end with the last one of its headers."""
            if self.conn.their_state is not h11.IDLE:
                self._stop_timing()
            elif self.deadline is None:
                self.deadline = self.loop.call_later(seconds, self._give_up)

        def _stop_timing(self) -> None:
            if self.deadline is not None:
                self.deadline.cancel()
                self.deadline = None

        def _give_up(self) -> None:
            self.deadline = None
            if self.conn.their_state is h11.IDLE and not self.transport.is_closing():
                self.transport.write(TOO_SLOW)
                self.transport.close()

    return TimedProtocol
