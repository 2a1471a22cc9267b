"""A client of the application in this process, a server in another one, and toy samples."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import torch

from holdfast.core.checkpoint import checksum_of
from holdfast.serve.app import create_app
from holdfast.serve.hosted import Hosted, open_hosted
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


@contextmanager
def server(folder: Path, *options: str) -> Iterator[tuple[subprocess.Popen[str], httpx.Client]]:
    """Context manager: a server process on a free port, and a client; it is killed if it still runs."""
    command = [sys.executable, "-m", "holdfast", "serve", str(folder), "--port", "0", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        try:
            lines = []
            for line in process.stdout:
                lines.append(line)
                if found := re.search(r"http://127\.0\.0\.1:\d+", "".join(lines).replace("\n", "")):
                    break
            else:
                raise AssertionError(f"the server did not start: {lines}")
            with httpx.Client(base_url=found[0], timeout=60, trust_env=False) as client:
                yield process, client
        finally:
            process.kill()


def bits_of(folder: Path) -> tuple[int, str]:
    """Return the number of calls that opening the model replayed, and the bits of its learner."""
    hosted = open_hosted(folder / "toy")
    hosted.close()
    return hosted.n_replayed, checksum_of(hosted.learner.state_dict())
