"""A client of the application in this process, and toy samples."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import torch

from holdfast.serve.app import create_app
from holdfast.serve.hosted import Hosted
from holdfast.serve.limits import Limits
from holdfast.serve.shelf import Shelf
from holdfast.serve.tokens import Tokens

SMALL = {"method": "er", "memory": 20, "n_classes": 3, "lr": 0.05}


def toy_batch(seed: int, n: int = 4) -> tuple[list[list[float]], list[int]]:
    """Samples of three classes that lie apart."""
    rng = torch.Generator().manual_seed(seed)
    y = torch.randint(3, (n,), generator=rng)
    x = torch.randn(n, 5, generator=rng) + 3 * torch.eye(3, 5)[y]
    return x.tolist(), y.tolist()


class Client:
    """Asks an application in this process, one request after the other or several at once."""

    def __init__(self, app: Any, **options: Any) -> None:
        self.app = app
        self.options = {"base_url": "http://127.0.0.1", "transport": httpx.ASGITransport(app), **options}

    def __call__(self, method: str, path: str, json: Any = None, **options: Any) -> httpx.Response:
        return self.together([(method, path, json)], **options)[0]

    def together(self, requests: list[tuple[str, str, Any]], **options: Any) -> list[httpx.Response]:
        async def ask() -> list[httpx.Response]:
            async with httpx.AsyncClient(**self.options) as client:
                asked = [client.request(method, path, json=json, **options) for method, path, json in requests]
                return list(await asyncio.gather(*asked))

        return asyncio.run(ask())


@contextmanager
def serving(
    folder: Path, *, tokens: Tokens | None = None, limits: Limits | None = None, local: bool = False, **options: Any
) -> Iterator[Client]:
    """Context manager: a client of the application over a folder of models."""
    shelf = Shelf(folder, **options)
    try:
        yield Client(create_app(shelf, tokens=tokens, limits=limits, local=local))
    finally:
        shelf.close()


@contextmanager
def busy(hosted: Hosted) -> Iterator[None]:
    """Context manager: the learning thread does nothing else."""
    free, begun = threading.Event(), threading.Event()

    def wait(_: Hosted) -> None:
        begun.set()
        free.wait()

    hosted.ask(wait)
    begun.wait()
    try:
        yield
    finally:
        free.set()
