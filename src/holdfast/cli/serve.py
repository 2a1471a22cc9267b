"""`holdfast serve`: learners over HTTP."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import torch
import typer

from holdfast.cli.options import Threads, err, out
from holdfast.core.extras import how_to_install
from holdfast.memory.storage import parse_bytes

if TYPE_CHECKING:
    from holdfast.serve.limits import Limits
    from holdfast.serve.state import ModelState
    from holdfast.serve.tokens import Tokens

Size = Annotated[str, typer.Option(help="Bytes, as '8 MB'.")]


def serve_command(
    folder: Annotated[Path, typer.Argument(metavar="MODEL_DIR", help="Folder of the models; may be empty.")],
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 takes a free one.")] = 8765,
    tokens: Annotated[
        Path | None,
        typer.Option(help="A file with lines 'observe,predict TOKEN' or 'admin TOKEN'; needed beyond this machine."),
    ] = None,
    max_models: Annotated[int, typer.Option(min=1, help="Largest number of models.")] = 100,
    max_body: Size = "8 MB",
    max_model: Size = "1 GB",
    max_journal: Size = "1 GB",
    rate: Annotated[float, typer.Option(min=0.1, help="Largest number of requests a second of one client.")] = 2000.0,
    body_seconds: Annotated[float, typer.Option(min=0.1, help="Seconds until a request has to be there.")] = 20.0,
    answer_seconds: Annotated[float, typer.Option(min=0.1, help="Seconds until a batch has to be learned.")] = 30.0,
    threads: Threads = 1,
    ray: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS",
            help="Serve on a Ray cluster, each learner an actor: auto, local, or the address of a cluster.",
        ),
    ] = None,
    fronts: Annotated[int, typer.Option(min=1, help="Processes that take requests, with --ray.")] = 1,
) -> None:
    """Serve named learners over HTTP: they learn while they predict, and survive a crash."""
    try:
        from holdfast.serve.limits import Limits
        from holdfast.serve.process import serve
        from holdfast.serve.shelf import Shelf
        from holdfast.serve.tokens import Tokens, read_tokens
    except ImportError as error:
        raise ValueError(f"serving needs {error.name}: {how_to_install('serve')}") from error

    known = Tokens() if tokens is None else read_tokens(tokens)
    limits = Limits(
        body_bytes=parse_bytes(max_body),
        model_bytes=parse_bytes(max_model),
        requests_per_second=rate,
        body_seconds=body_seconds,
        answer_seconds=answer_seconds,
    )
    if ray is not None:
        bounds = {"max_models": max_models, "max_journal_bytes": parse_bytes(max_journal), "threads": threads}
        _serve_on_ray(folder, known, limits, bounds, address=ray, host=host, port=port, fronts=fronts)
        return
    torch.set_num_threads(threads)  # before anything is replayed: the last bits depend on it
    shelf = Shelf(folder, max_models=max_models, max_journal_bytes=parse_bytes(max_journal))
    for name, reason in shelf.failed.items():
        err.print(f"warning: the model '{name}' is not served: {reason}")
    replayed = sum(hosted.n_replayed for hosted in shelf.models().values())

    def say(address: str) -> None:
        count = f"{len(shelf.names())} models, {replayed:,} calls replayed"
        guard = "" if known else "; no tokens: only for this machine"
        out.print(f"serving {folder} at {address} ({count}{guard})")

    serve(shelf, host=host, port=port, tokens=known, limits=limits, say=say)


def _serve_on_ray(
    folder: Path, tokens: Tokens, limits: Limits, bounds: dict[str, int], *, address: str, **where: Any
) -> None:
    from holdfast.serve.on_ray import Served, serve_on_ray

    def say(at: str, states: dict[str, ModelState | None]) -> None:
        for name in (name for name, state in states.items() if state is None):
            err.print(f"warning: the model '{name}' is not served: GET /models/{name} says why")
        guard = "" if tokens else "; no tokens: only for this machine"
        out.print(f"serving {folder} at {at} ({len(states)} models, on Ray{guard})")

    served = Served(folder.resolve(), tokens, limits, local=not tokens, **bounds)
    serve_on_ray(served, address=address, say=say, **where)
