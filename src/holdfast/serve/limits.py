"""Limits before the application: who asks, how often, how much, how slowly."""

from __future__ import annotations

import asyncio
import json
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from typing import Any

from holdfast.serve.metrics import Metrics
from holdfast.serve.tokens import Tokens

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]

OPEN_PATHS = frozenset({"/health", "/", "/page.js", "/page.css", "/openapi.json"})  # which need no token
LOOPBACK = frozenset({"127.0.0.1", "localhost", "[::1]", "::1"})
MOST_CLIENTS = 10_000  # whose rate is followed
DRAINED = 8  # times the allowed size: so much of a body that is too large is read, so that its sender reads the answer


@dataclass(frozen=True)
class Limits:
    """Limits of one client and one request.

    Attributes:
        body_bytes: of a request.
        model_bytes: of an uploaded model, and of the weights of a new one.
        requests_per_second: of one token, or of one address where there are no tokens. Twice as many may come at once.
        body_seconds: until a request has to be there.
        answer_seconds: until a call has to be learned; after that it is withdrawn, or learned as it is under way.
    """

    body_bytes: int = 8 * 2**20
    model_bytes: int = 2**30
    requests_per_second: float = 2000.0
    body_seconds: float = 20.0
    answer_seconds: float = 30.0


class Rates:
    """A bucket of requests for each client, filled at a steady rate."""

    def __init__(self, per_second: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.per_second = per_second
        self.most = max(1.0, 2 * per_second)
        self._clock = clock
        self._clients: OrderedDict[str, tuple[float, float]] = OrderedDict()  # what is left, and since when

    def wait(self, client: str) -> float:
        """Take one request of a client; returns the seconds until it may ask again, 0 if it may now."""
        now = self._clock()
        left, since = self._clients.pop(client, (self.most, now))
        left = min(self.most, left + (now - since) * self.per_second)
        allowed = left >= 1
        self._clients[client] = left - allowed, now
        while len(self._clients) > MOST_CLIENTS:
            self._clients.popitem(last=False)
        return 0.0 if allowed else (1 - left) / self.per_second


class _Refused(Exception):
    def __init__(self, status: int, detail: str, **headers: str) -> None:
        super().__init__(detail)
        self.status, self.detail, self.headers = status, detail, headers


class LimitedApp:
    """An ASGI application that lets only good requests through to another.

    It finds the scopes of the token, puts them into `state`, and reads the body before it asks the application.

    Args:
        local: answer only requests for this machine's own names. A browser may be led here under another name.
    """

    def __init__(self, app: App, tokens: Tokens, limits: Limits, metrics: Metrics, *, local: bool = False) -> None:
        self.app, self.tokens, self.limits, self.metrics, self.local = app, tokens, limits, metrics, local
        self.rates = Rates(limits.requests_per_second)

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started, status = time.perf_counter(), 500

        async def noted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            body = await self._admitted(scope, receive)
            await self.app(scope, _given(body, receive), noted)
        except _Refused as refused:
            await _answer(noted, refused)
        finally:
            route = getattr(scope.get("route"), "path", "other")
            self.metrics.count(route, _method(scope), status, time.perf_counter() - started)

    async def _admitted(self, scope: MutableMapping[str, Any], receive: Receive) -> bytes:
        """Return the body of a request that may be answered."""
        headers = dict(scope["headers"])
        if self.local and _host(headers) not in LOOPBACK:
            raise _Refused(403, "ask for 127.0.0.1 or localhost: this server has no tokens")
        client = (scope.get("client") or ("unknown", 0))[0]
        scopes = None
        if self.tokens:
            kind, _, token = headers.get(b"authorization", b"").decode("latin-1").partition(" ")
            scopes = self.tokens.scopes_of(token.strip()) if kind.lower() == "bearer" else None
            client = token if scopes is not None else client
        if wait := self.rates.wait(client):
            seconds = str(max(1, round(wait + 0.5)))
            raise _Refused(429, f"too many requests: come back in {seconds} s", **{"retry-after": seconds})
        if self.tokens and scopes is None and scope["path"] not in OPEN_PATHS:
            raise _Refused(
                401, "give a known token, as 'Authorization: Bearer TOKEN'", **{"www-authenticate": "Bearer"}
            )
        scope.setdefault("state", {})["scopes"] = scopes
        uploads = scope["method"] == "PUT" and scope["path"].endswith("/file")
        may_upload = uploads and (scopes is None or "admin" in scopes)
        allowed = self.limits.model_bytes if may_upload else self.limits.body_bytes
        return await self._body(headers, receive, allowed)

    async def _body(self, headers: dict[bytes, bytes], receive: Receive, allowed: int) -> bytes:
        stated = headers.get(b"content-length", b"0")
        if not stated.isdigit():
            raise _Refused(400, "the Content-Length is no number")
        try:
            async with asyncio.timeout(self.limits.body_seconds):
                return await _read(receive, allowed, int(stated[:18]))
        except TimeoutError:
            raise _Refused(
                408, f"the request was not there after {self.limits.body_seconds:g} s", connection="close"
            ) from None


async def _read(receive: Receive, allowed: int, stated: int) -> bytes:
    parts, n_bytes = [], 0
    while stated <= DRAINED * allowed and n_bytes <= DRAINED * allowed:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise _Refused(400, "the connection ended before the request did")
        part = message.get("body", b"")
        n_bytes += len(part)
        if max(n_bytes, stated) <= allowed:
            parts.append(part)
        if not message.get("more_body", False):
            break
    if max(n_bytes, stated) > allowed:
        raise _Refused(413, f"the request has more than {allowed:,} bytes: send smaller batches", connection="close")
    return b"".join(parts)


def _given(body: bytes, receive: Receive) -> Receive:
    """Return a channel that gives a body that was read, and then what comes."""
    given = False

    async def receive_body() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return receive_body


async def _answer(send: Send, refused: _Refused) -> None:
    content = json.dumps({"detail": refused.detail}).encode()
    headers = {"content-type": "application/json", "content-length": str(len(content)), **refused.headers}
    encoded = [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": refused.status, "headers": encoded})
    await send({"type": "http.response.body", "body": content})


def _host(headers: dict[bytes, bytes]) -> str:
    host = headers.get(b"host", b"").decode("latin-1")
    return host if host.endswith("]") else host.rpartition(":")[0] or host


def _method(scope: MutableMapping[str, Any]) -> str:
    known = ("GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH")
    return scope["method"] if scope["method"] in known else "other"
