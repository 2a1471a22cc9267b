"""The application: routes over a shelf of models."""

from __future__ import annotations

import asyncio
import errno
import hashlib
import secrets
import time
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import Future
from contextlib import asynccontextmanager
from dataclasses import asdict
from functools import partial
from typing import Annotated, Any

import torch
from fastapi import Depends, FastAPI, Header, HTTPException, Path, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from fastapi.responses import JSONResponse
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException as StarletteHTTPException
from starlette.middleware import Middleware

from holdfast import __version__
from holdfast.build import fitting_parts, make
from holdfast.core.checkpoint import CorruptCheckpoint
from holdfast.learner import Learner
from holdfast.loading import load_learner
from holdfast.methods._sums import SumsMethod
from holdfast.parts import Unknown, find
from holdfast.serve import metrics, page
from holdfast.serve.hosted import Busy, Hosted, KeyTaken, NotDurable
from holdfast.serve.limits import LimitedApp, Limits
from holdfast.serve.metrics import Metrics
from holdfast.serve.shelf import ModelExists, ModelFails, NoModel, Shelf, TooMany
from holdfast.serve.state import described
from holdfast.serve.tokens import Scope, Tokens
from holdfast.serve.wire import (
    KEY,
    NAME,
    ROWS_SCHEMA,
    Described,
    Failed,
    Health,
    Inputs,
    Labels,
    Models,
    Observation,
    Observed,
    Predicted,
    Question,
    Settings,
    TaskEnded,
    Unfit,
    plain_scores,
    ranked,
    tensor_of,
)

MAX_DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
QUICK_SECONDS = 0.002  # a prediction that takes less holds up nobody
ModelName = Annotated[str, Path(pattern=NAME, description="The name of a model.")]
Key = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        pattern=KEY,
        description="A name of this request. Sent again, also after a restart, it is not learned twice.",
    ),
]
EVERYWHERE: dict[int | str, dict[str, Any]] = {
    400: {"model": Failed, "description": "The request is no HTTP or no JSON."},
    408: {"model": Failed, "description": "The request was not there in time."},
    413: {"model": Failed, "description": "The request is too large."},
    429: {"model": Failed, "description": "Too many requests; see Retry-After."},
}
GUARDED: dict[int | str, dict[str, Any]] = {
    401: {"model": Failed, "description": "No known token."},
    403: {"model": Failed, "description": "The token does not allow it, or the host is another."},
}
OF_A_MODEL: dict[int | str, dict[str, Any]] = {
    404: {"model": Failed, "description": "No model has this name."},
    422: {"model": Failed, "description": "The request is not as the schema says."},
    503: {"model": Failed, "description": "The model cannot answer now; see Retry-After."},
}
OF_LEARNING: dict[int | str, dict[str, Any]] = {
    409: {"model": Failed, "description": "Well formed, but it does not fit the model, or itself. Nothing changed."},
    507: {"model": Failed, "description": "The disk is full. Nothing was learned."},
}
OF_A_FILE: dict[int | str, dict[str, Any]] = {
    200: {"content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}}
}


def allowed(scope: Scope) -> Any:
    """Return a dependency: the token of the request has to allow `scope`."""

    async def check(request: Request) -> None:
        scopes = request.state.scopes
        if scopes is not None and scope not in scopes:
            raise HTTPException(403, f"this token does not allow '{scope}'")

    return Depends(check)


def create_app(
    shelf: Shelf,
    *,
    tokens: Tokens | None = None,
    limits: Limits | None = None,
    local: bool = False,
    inside: Sequence[Middleware] = (),
    on_stop: Callable[[], None] | None = None,
) -> FastAPI:
    """Return the application over a shelf.

    Args:
        tokens: None, or none in it: everything is allowed to everyone.
        local: answer only requests for this machine's own names.
        inside: what takes a request that was admitted before a route does.
        on_stop: called when the server stops, after the last answer.
    """
    tokens, limits = tokens or Tokens(), limits or Limits()
    counted = Metrics()

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        if on_stop is not None:
            await run_in_threadpool(on_stop)

    app = FastAPI(title="Holdfast", version=__version__, lifespan=lifespan, docs_url=None, redoc_url=None)
    app.state.shelf, app.state.limits, app.state.metrics = shelf, limits, counted
    app.user_middleware.extend(inside)
    app.add_middleware(LimitedApp, tokens=tokens, limits=limits, metrics=counted, local=local)
    _add_errors(app)
    _add_looking(app)
    _add_models(app)
    _add_learning(app)
    page.add_page(app)
    app.openapi = lambda: _openapi(app, guarded=bool(tokens))  # type: ignore[method-assign]
    return app


def _add_errors(app: FastAPI) -> None:
    """Turn every error into one sentence under `detail`."""

    def answer(status: int, detail: str, **headers: str) -> JSONResponse:
        return JSONResponse({"detail": detail}, status_code=status, headers=headers)

    statuses: list[tuple[type[Exception], int]] = [
        (NoModel, 404),
        (ModelExists, 409),
        (TooMany, 409),
        (Unfit, 409),
        (KeyTaken, 409),
        (Unknown, 409),
        (CorruptCheckpoint, 409),
        (MemoryError, 409),
        (ModelFails, 503),
        (Busy, 503),
        (TimeoutError, 503),
    ]
    for kind, status in statuses:

        async def handle(_: Request, error: Exception, status: int = status) -> Response:
            text = str(error.args[0]) if error.args else type(error).__name__
            return answer(status, text, **({"retry-after": "1"} if status == 503 else {}))

        app.add_exception_handler(kind, handle)

    @app.exception_handler(OSError)
    async def disk_failed(_: Request, error: OSError) -> Response:
        full = error.errno in MAX_DISK_ERRORS or "may hold" in str(error)
        text = str(error.strerror or error) if isinstance(error, NotDurable) else str(error)
        return answer(507 if full else 503, text, **({} if full else {"retry-after": "1"}))

    @app.exception_handler(RequestValidationError)
    async def not_as_the_schema(_: Request, error: RequestValidationError) -> Response:
        problems = [f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors()[:5]]
        return answer(422, "; ".join(problems)[:1000])

    @app.exception_handler(StarletteHTTPException)
    async def http_error(_: Request, error: StarletteHTTPException) -> Response:
        return answer(error.status_code, str(error.detail), **dict(error.headers or {}))


def _add_looking(app: FastAPI) -> None:
    shelf: Shelf = app.state.shelf

    @app.get("/health", responses=EVERYWHERE, summary="Tell if every model learns and is saved.")
    async def health() -> Health:
        states = await run_in_threadpool(shelf.states)
        failing = sorted(name for name, state in states.items() if state is None or state.is_failing)
        return Health(status="failing" if failing else "ok", models=len(states), failing=failing)

    @app.get(
        "/metrics",
        response_class=Response,
        responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}} | EVERYWHERE | GUARDED,
        summary="Give counts, durations and the state of each model as text of Prometheus.",
    )
    async def metrics_text() -> Response:
        text = app.state.metrics.text(await run_in_threadpool(shelf.states))
        return Response(text, headers={"content-type": metrics.CONTENT_TYPE})

    @app.get("/models", responses=EVERYWHERE | GUARDED, summary="List the models.")
    async def list_models() -> Models:
        states = await run_in_threadpool(shelf.states)
        return Models(models=[state.described for state in states.values() if state is not None])

    @app.get("/models/{name}", responses=EVERYWHERE | GUARDED | OF_A_MODEL, summary="Describe a model.")
    async def describe(name: ModelName) -> Described:
        return described(name, shelf.get(name))

    @app.get(
        "/models/{name}/page",
        responses=EVERYWHERE | GUARDED | OF_A_MODEL,
        summary="Give what the page shows: curves, drift, samples in memory.",
    )
    async def page_data(name: ModelName) -> dict[str, Any]:
        found: dict[str, Any] = await _answer_of(shelf.get(name).ask(page.data_of), app.state.limits.answer_seconds)
        return found


def _add_models(app: FastAPI) -> None:
    shelf: Shelf = app.state.shelf
    responses = EVERYWHERE | GUARDED | OF_A_MODEL | OF_LEARNING
    created: dict[int | str, dict[str, Any]] = {201: {"model": Described, "description": "The model is new."}}

    @app.put(
        "/models/{name}",
        dependencies=[allowed("admin")],
        responses=responses | created,
        summary="Make a model with settings.",
    )
    async def put_model(
        name: ModelName,
        settings: Settings,
        response: Response,
        replace: Annotated[bool, Query(description="Take the place of a model with other settings.")] = False,
    ) -> Described:
        learner = await run_in_threadpool(learner_of, settings)
        known = shelf.models().get(name)
        if known is not None and known.learner.settings == learner.settings:
            return described(name, known)
        is_new = name not in shelf.names()
        hosted = await run_in_threadpool(shelf.put, name, learner, replace=replace)
        response.status_code = 201 if is_new else 200
        return described(name, hosted)

    @app.put(
        "/models/{name}/file",
        dependencies=[allowed("admin")],
        responses=responses | created,
        summary="Put a saved learner in the place of a model, or make one of it.",
        openapi_extra={
            "requestBody": {
                "required": True,
                "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
            }
        },
    )
    async def put_file(name: ModelName, request: Request, response: Response) -> Described:
        content = await request.body()
        learner = await run_in_threadpool(_uploaded, shelf, content)
        is_new = name not in shelf.names()
        hosted = await run_in_threadpool(shelf.put, name, learner, replace=True)
        response.status_code = 201 if is_new else 200
        return described(name, hosted)

    @app.get(
        "/models/{name}/file",
        dependencies=[allowed("admin")],
        response_class=Response,
        responses=responses | OF_A_FILE,
        summary="Save a model and give its file, which `load_learner` reads.",
    )
    async def get_file(name: ModelName) -> Response:
        content = await _answer_of(shelf.get(name).ask(Hosted.saved_bytes), app.state.limits.answer_seconds)
        return Response(content, media_type="application/octet-stream")

    @app.delete(
        "/models/{name}",
        status_code=204,
        dependencies=[allowed("admin")],
        responses=EVERYWHERE | GUARDED | OF_A_MODEL | {507: OF_LEARNING[507]},
        summary="Delete a model with everything that it has learned.",
    )
    async def delete_model(name: ModelName) -> None:
        await run_in_threadpool(shelf.delete, name)


def _add_learning(app: FastAPI) -> None:
    shelf: Shelf = app.state.shelf
    limits: Limits = app.state.limits
    responses = EVERYWHERE | GUARDED | OF_A_MODEL | OF_LEARNING

    async def made(
        hosted: Hosted, call: Callable[..., Any], response: Response, request: Request, key: str | None
    ) -> dict[str, Any]:
        """Make a call, unless one with the same key came before."""
        digest = hashlib.sha256(request.url.path.encode() + b"\n" + await request.body()).hexdigest() if key else ""
        try:
            answer, again = call(key=key, digest=digest)
        except KeyTaken:
            raise
        except ValueError as error:
            raise Unfit(str(error)) from error
        if again:
            response.headers["Idempotency-Replayed"] = "true"
        found: dict[str, Any] = await _answer_of(answer, limits.answer_seconds, hosted)
        return found

    @app.post(
        "/models/{name}/observe",
        dependencies=[allowed("observe")],
        responses=responses,
        summary="Learn a batch once. The answer comes when it is on disk and learned.",
    )
    async def observe(
        name: ModelName, given: Observation, request: Request, response: Response, key: Key = None
    ) -> Observed:
        hosted = shelf.get(name)
        x = _inputs(hosted, given)
        check_size(hosted.learner, tuple(x.shape[1:]), limits.model_bytes)
        call = partial(hosted.call, "observe", x, given.y, *_rest_of(given.task, given.sample_weight))
        return Observed(**await made(hosted, call, response, request, key))

    @app.post(
        "/models/{name}/end_task",
        dependencies=[allowed("observe")],
        responses=responses,
        summary="Say that the running task is over.",
    )
    async def end_task(name: ModelName, request: Request, response: Response, key: Key = None) -> TaskEnded:
        hosted = shelf.get(name)
        return TaskEnded(**await made(hosted, partial(hosted.call, "end_task"), response, request, key))

    @app.post(
        "/models/{name}/label",
        dependencies=[allowed("observe")],
        responses=responses,
        summary="Learn samples that were predicted with ids, now that their labels are known.",
    )
    async def label(name: ModelName, given: Labels, request: Request, response: Response, key: Key = None) -> Observed:
        hosted = shelf.get(name)
        call = partial(hosted.label, given.ids, given.y, *_rest_of(given.task, given.sample_weight))
        return Observed(**await made(hosted, call, response, request, key))

    @app.post(
        "/models/{name}/predict",
        dependencies=[allowed("predict")],
        response_model=Predicted,
        responses=responses,
        summary="Predict with the newest snapshot; this never waits for learning.",
    )
    async def predict(name: ModelName, given: Question) -> Response:
        hosted = shelf.get(name)
        hosted.turns.predicted()
        # A thread of its own costs more than a small prediction, above all while another thread learns.
        quick = hosted.seconds_to_predict * _n_samples(given) < QUICK_SECONDS
        return JSONResponse(predicted(hosted, given) if quick else await run_in_threadpool(predicted, hosted, given))


def predicted(hosted: Hosted, given: Question) -> dict[str, Any]:
    """Return the answer to a question."""
    snapshot = hosted.snapshot
    if snapshot is None:
        raise Unfit("the model has learned nothing yet: observe first")
    started = time.thread_time()
    try:
        x = _inputs(hosted, given)
        scores = snapshot.scores(x, given.task)
        hosted.seconds_to_predict = (time.thread_time() - started) / len(x)
        decisions = snapshot.decision(x, given.task) if given.decision else None
        if given.ids is not None:
            hosted.keep(given.ids, x)
    except Busy:
        raise
    except (ValueError, RuntimeError) as error:
        raise Unfit(str(error)) from error
    classes = snapshot.classes_
    labels = [classes[c] for c in scores.argmax(dim=1).tolist()]
    found: dict[str, Any] = {"labels": labels, "n_observed": snapshot.n_observed}
    if given.top is not None:
        found["top"] = ranked(scores, given.top, classes)
    if given.scores:
        found["scores"] = plain_scores(scores)
    if given.proba:
        found["proba"] = snapshot.answers.temperature.probabilities(scores).tolist()
    if given.scores or given.proba:
        found["classes"] = classes
    if decisions is not None:
        found["decisions"] = [asdict(decision) for decision in decisions]
    return found


def learner_of(settings: Settings) -> Learner:
    """Make a learner; Unfit if the settings do not fit together, or name code of another package."""
    given = {name: value for name, value in settings.model_dump().items() if value is not None}
    for field in ("method", "backbone", "selection", "retrieval"):
        part = given.get(field, "")
        if ":" in (part if isinstance(part, str) else part["name"]):
            raise Unfit(f"{field} names code of another package, which the server does not import")
    try:
        return Learner(**given)
    except (ValueError, TypeError, OverflowError) as error:
        raise Unfit(str(error)) from error


def check_size(learner: Learner, shape: tuple[int, ...], most_bytes: int) -> None:
    """Raise Unfit if what the first samples need would be too large. Nothing is allocated for it."""
    if learner.n_observed or learner.input_shape is not None:
        return
    method, backbone = learner.settings.method.name, learner.settings.backbone
    if learner.is_open:  # the first batch decides
        chosen = fitting_parts(shape)
        method, backbone = chosen["method"], backbone.model_copy(update={"name": chosen["backbone"], "options": {}})
    with torch.device("meta"):
        try:
            network = make("backbones", backbone, shape)
        except (ValueError, RuntimeError, TypeError, IndexError, NotImplementedError) as error:
            raise Unfit(f"the backbone does not take samples of shape {shape}: {error}") from error
    n_bytes = sum(weights.nbytes for weights in network.parameters()) + sums_bytes(method, network.n_features)
    if n_bytes > most_bytes:
        raise Unfit(f"the network for samples of shape {shape} has {n_bytes:,} bytes, allowed are {most_bytes:,}")


def sums_bytes(method: str, n_features: int) -> int:
    """Return the bytes of sums of products of features, for a method that adds them up: two sums and a factor."""
    kind = find("methods", method)
    adds = issubclass(kind, SumsMethod) and kind.products and kind.n_summed is SumsMethod.n_summed
    return 3 * 8 * n_features**2 if adds else 0


def _n_samples(given: Inputs) -> int:
    return len(given.x) if isinstance(given.x, list) else given.x.shape[0]


def _rest_of(task: int | None, weights: list[float] | None) -> tuple[Any, ...]:
    """Return the arguments of an observation behind x and y: none, the task, or the task and weights."""
    return (task, weights) if weights is not None else (() if task is None else (task,))


def _inputs(hosted: Hosted, given: Inputs) -> torch.Tensor:
    return tensor_of(given.x, as_bytes=hosted.learner.input_dtype == torch.uint8)


def _uploaded(shelf: Shelf, content: bytes) -> Learner:
    """Load an uploaded file, which nobody has to trust."""
    path = shelf.folder / f".new-{secrets.token_hex(8)}"
    try:
        path.write_bytes(content)
        return load_learner(path)
    except ValueError as error:
        text = str(error).replace(str(path), "the file")
        raise Unfit(text) from error
    finally:
        path.unlink(missing_ok=True)


async def _answer_of(answer: Future[Any], seconds: float, hosted: Hosted | None = None) -> Any:
    """Wait for the answer of the learning thread; a call that was not begun in time is withdrawn."""
    waiting = asyncio.shield(asyncio.wrap_future(answer))
    try:
        return await asyncio.wait_for(waiting, seconds)
    except TimeoutError:
        if hosted is not None and not hosted.withdraw(answer):
            return await asyncio.wrap_future(answer)
        raise Busy(f"nothing was learned: other calls took more than {seconds:g} s") from None
    except (OSError, Busy):
        raise
    except (ValueError, RuntimeError) as error:
        raise Unfit(str(error)) from error


def _openapi(app: FastAPI, *, guarded: bool) -> dict[str, Any]:
    """Return the description, with the recursive schema of arrays, and with tokens where there are some."""
    if app.openapi_schema is not None:
        return app.openapi_schema
    found = get_openapi(title=app.title, version=app.version, routes=app.routes)
    schemas = found.setdefault("components", {}).setdefault("schemas", {})
    schemas["Rows"] = ROWS_SCHEMA
    for unused in ("HTTPValidationError", "ValidationError"):
        schemas.pop(unused, None)
    if guarded:
        found["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        for path, operations in found["paths"].items():
            for operation in operations.values():
                if path != "/health":
                    operation["security"] = [{"token": []}]
    app.openapi_schema = found
    return found
