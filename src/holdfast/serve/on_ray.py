"""The application on Ray Serve: a front that takes requests, and an actor for each learner with its journal.

A front checks tokens and limits and passes each request to the actor of its model. The actor has the same application
over this one model. Ray starts an actor again that died; it comes back from its journal. The folder of the models has
to be at the same path on every host.
"""

from __future__ import annotations

import gc
import hashlib
import importlib
import logging
import re
import signal
import sys
import threading
from collections.abc import Callable, MutableMapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.responses import JSONResponse, Response

from holdfast.core.extras import how_to_install
from holdfast.experiments.ray_sweep import connected
from holdfast.serve.app import create_app
from holdfast.serve.hosted import JOURNAL_BYTES, MODEL, Hosted
from holdfast.serve.limits import App, Limits, Message, Receive, Send
from holdfast.serve.process import checked_reach, free_port
from holdfast.serve.shelf import ModelFails, Shelf, clear_aside, names_in, no_model, too_many
from holdfast.serve.state import ModelState
from holdfast.serve.tokens import Tokens
from holdfast.serve.turns import SWITCH_SECONDS
from holdfast.serve.wire import NAME

NAMESPACE = "holdfast"
OF_A_MODEL = re.compile(rf"/models/(?P<name>{NAME[1:-1]})(?P<rest>/[a-z_]+)?")
RESTS = frozenset({"", "/file", "/page", "/observe", "/end_task", "/label", "/predict"})
STATE_SECONDS = 10  # an actor that does not say how it is by then counts as failing
MOST_AT_ONCE = 1000  # requests of a front, and of a learner
NO_RATE = 1e9  # of requests: the front has counted them
CARRIED = ("type", "asgi", "http_version", "method", "scheme", "path", "raw_path", "query_string", "headers", "client")
QUIET = {"log_level": "ERROR", "enable_access_log": False}


@dataclass(frozen=True)
class Served:
    """Everything that fronts and actors are made with."""

    folder: Path
    tokens: Tokens = field(default_factory=Tokens)
    limits: Limits = field(default_factory=Limits)
    local: bool = False
    max_models: int = 100
    max_journal_bytes: int = JOURNAL_BYTES
    threads: int = 1


@dataclass(frozen=True)
class Asked:
    """A request, whole, as it goes from a front to an actor."""

    scope: dict[str, Any]
    body: bytes


@dataclass(frozen=True)
class Answered:
    status: int
    headers: list[tuple[bytes, bytes]]
    body: bytes


class LearnerActor:
    """One model with its journal, and the application over it; Ray makes an actor of it."""

    def __init__(self, served: Served, name: str) -> None:
        torch.set_num_threads(served.threads)
        sys.setswitchinterval(SWITCH_SECONDS)
        limits = replace(served.limits, requests_per_second=NO_RATE)
        self.name = name
        self.shelf = Shelf(served.folder, only=name, max_journal_bytes=served.max_journal_bytes)
        self.app = create_app(self.shelf, tokens=served.tokens, limits=limits)
        gc.freeze()

    async def ask(self, asked: Asked) -> Answered:
        """Answer a request, as over HTTP."""
        start: Message = {}
        parts: list[bytes] = []

        async def receive() -> Message:
            return {"type": "http.request", "body": asked.body, "more_body": False}

        async def send(message: Message) -> None:
            if message["type"] == "http.response.start":
                start.update(message)
            else:
                parts.append(message["body"])

        await self.app(dict(asked.scope), receive, send)
        return Answered(start["status"], [tuple(each) for each in start["headers"]], b"".join(parts))

    async def state(self) -> ModelState | None:
        """Return how the model is now; None if it could not be loaded, or there is none."""
        return (await run_in_threadpool(self.shelf.states)).get(self.name)

    async def close(self) -> None:
        """Make the calls that wait, and save."""
        await run_in_threadpool(self.shelf.close)


class RayShelf:
    """Models by name, each in an actor; stands in for a `Shelf` in a front."""

    def __init__(self, served: Served) -> None:
        self.ray = importlib.import_module("ray")
        self.served = served
        self._actors: dict[str, Any] = {}
        self._id = hashlib.sha256(str(served.folder).encode()).hexdigest()[:16]

    def names(self) -> list[str]:
        """Return the names of all models."""
        return names_in(self.served.folder)

    def has(self, name: str) -> bool:
        """Tell if a model is in the folder."""
        return (self.served.folder / name / MODEL).exists()

    def actor(self, name: str) -> Any:
        """Return the actor of a model; it is made if it is not there."""
        found = self._actors.get(name)
        if found is None:
            options: dict[str, Any] = {
                "name": f"{self._id} {name}",
                "namespace": NAMESPACE,
                "lifetime": "detached",
                "get_if_exists": True,
                "max_restarts": -1,
                "max_task_retries": 0,  # a client that sends its key again decides about that
                "max_concurrency": MOST_AT_ONCE,
                "num_cpus": 0,
                "scheduling_strategy": "SPREAD",
            }
            found = self.ray.remote(**options)(LearnerActor).remote(self.served, name)
            self._actors[name] = found
        return found

    def drop(self, name: str) -> None:
        """End the actor of a model."""
        actor = self._actors.pop(name, None)
        if actor is not None:
            self.ray.kill(actor)

    def forget(self, name: str) -> None:
        """Look an actor up again at the next request: this one has ended."""
        self._actors.pop(name, None)

    def states(self) -> dict[str, ModelState | None]:
        """Return the state of each model by name; None for one that fails or is being started again."""
        asked = {name: self.actor(name).state.remote() for name in self.names()}
        if asked:
            self.ray.wait(list(asked.values()), num_returns=len(asked), timeout=STATE_SECONDS)
        return {name: self._state(name, reference) for name, reference in asked.items()}

    def get(self, name: str) -> Hosted:
        """Raise NoModel, or ModelFails: requests for a model that is there go to its actor."""
        if self.has(name):
            raise ModelFails(f"the model '{name}' is elsewhere")
        raise no_model(name)

    def close(self) -> None:
        """Save all models and end their actors."""
        closing = {name: self.actor(name).close.remote() for name in self.names()}
        for name, reference in closing.items():
            with suppress(self.ray.exceptions.RayError):
                self.ray.get(reference)
            self.drop(name)

    def _state(self, name: str, reference: Any) -> ModelState | None:
        try:
            state: ModelState | None = self.ray.get(reference, timeout=0)
        except self.ray.exceptions.ActorDiedError:
            self.forget(name)
            return None
        except self.ray.exceptions.RayError:
            return None
        return state


class ForwardedApp:
    """An ASGI application that passes requests for a model to its actor, and all others on."""

    def __init__(self, app: App, shelf: RayShelf) -> None:
        self.app, self.shelf = app, shelf

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        found = OF_A_MODEL.fullmatch(scope.get("path", ""))
        rest = found["rest"] or "" if found else None
        if found is None or rest not in RESTS or not self._is_for_an_actor(scope, found["name"]):
            await self.app(scope, receive, send)
            return
        scope["route"] = SimpleNamespace(path=f"/models/{{name}}{rest}")  # as the metrics name it
        body = (await receive()).get("body", b"")
        answer = await self._answer(scope, found["name"], body)
        await answer(scope, receive, send)

    def _is_for_an_actor(self, scope: MutableMapping[str, Any], name: str) -> bool:
        return self.shelf.has(name) or (scope["method"] == "PUT" and _may_make(scope))

    async def _answer(self, scope: MutableMapping[str, Any], name: str, body: bytes) -> Response:
        shelf, errors = self.shelf, self.shelf.ray.exceptions
        is_new = not shelf.has(name)
        if is_new and len(shelf.names()) >= shelf.served.max_models:
            return JSONResponse({"detail": str(too_many(shelf.served.max_models))}, status_code=409)
        asked = Asked({name: scope[name] for name in CARRIED if name in scope}, body)
        try:
            answered: Answered = await shelf.actor(name).ask.remote(asked)
        except errors.ActorDiedError:
            shelf.forget(name)
            return _again(name)
        except errors.RayError:  # it is being started again
            return _again(name)
        if not shelf.has(name) and (is_new or scope["method"] == "DELETE"):
            shelf.drop(name)
        response = Response(answered.body, answered.status)
        response.raw_headers = answered.headers
        return response


def front_of(served: Served) -> App:
    """Return the application of a front."""
    shelf = RayShelf(served)
    inside = [Middleware(ForwardedApp, shelf=shelf)]
    return create_app(
        shelf,  # type: ignore[arg-type]  # as far as a front asks it
        tokens=served.tokens,
        limits=served.limits,
        local=served.local,
        inside=inside,
    )


def serve_on_ray(
    served: Served,
    *,
    address: str,
    host: str = "127.0.0.1",
    port: int = 8765,
    fronts: int = 1,
    say: Callable[[str, dict[str, ModelState | None]], None],
) -> None:
    """Serve the models of a folder on a Ray cluster until SIGTERM or Ctrl-C; then save them and end their actors.

    Args:
        address: of the cluster; 'auto' for the one of this host, 'local' for one that ends with the server.
        port: 0 takes a free one.
        fronts: processes that take requests.
        say: gets the address and the state of each model, once requests are taken.
    """
    checked_reach(host, served.tokens)
    with connected(address, None):
        serve = _imported()
        served.folder.mkdir(parents=True, exist_ok=True)
        clear_aside(served.folder)
        shelf = RayShelf(served)
        shelf.ray.get([shelf.actor(name).state.remote() for name in shelf.names()])
        logging.getLogger("ray.serve").setLevel(logging.ERROR)
        port = port or free_port(host)
        serve.start(http_options={"host": host, "port": port}, logging_config=QUIET)
        deployed = serve.deployment(
            name="front",
            num_replicas=fronts,
            max_ongoing_requests=MOST_AT_ONCE,
            ray_actor_options={"num_cpus": 0},
            logging_config=QUIET,
        )(serve.ingress(lambda: front_of(served))())
        serve.run(deployed.bind(), name="holdfast", route_prefix="/")
        try:
            shown = f"[{host}]" if ":" in host else host
            say(f"http://{shown}:{port}", shelf.states())
            _wait_for_a_signal()
        finally:
            serve.delete("holdfast")
            shelf.close()
            if address == "local":
                serve.shutdown()


def _imported() -> Any:
    try:
        return importlib.import_module("ray.serve")
    except ImportError as error:
        raise ValueError(f"serving on Ray needs {error.name}: {how_to_install('serve-ray')}") from error


def _wait_for_a_signal() -> None:
    ended = threading.Event()
    before = {number: signal.signal(number, lambda *_: ended.set()) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        while not ended.wait(1):  # a wait without end would not see the signal
            pass
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _may_make(scope: MutableMapping[str, Any]) -> bool:
    scopes = scope["state"]["scopes"]
    return scopes is None or "admin" in scopes


def _again(name: str) -> Response:
    detail = f"the model '{name}' is being started again: come back with the same key"
    return JSONResponse({"detail": detail}, status_code=503, headers={"retry-after": "1"})
