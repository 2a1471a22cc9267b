"""How fast is `holdfast serve`, does learning slow predictions down, and what does it survive?

    python benchmarks/serve.py [--rounds 5] [--seconds 4] [--kills 100] [--only speed|kills|faults]

The server is a process of its own, this load generator another, the client that observes a third. All traffic stays on
127.0.0.1, and every part is bounded in time and number. The model is an MLP 20-256-256-10 that learns batches of 10 by
experience replay.

| part | what is done |
|---|---|
| speed | predictions of one vector while nothing is learned and while a client observes without pause, in turns |
| kills | four clients observe with idempotency keys; the server is killed at random instants and started again |
| faults | a slow client, a flood, a large body, invalid JSON, a wrong token, a full disk |

After the kills the learner's memory, which is large enough for everything, says what was learned and in which order. A
plain learner that observes the same batches in that order has to have the same bits.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import itertools
import json
import os
import random
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch

from holdfast import Learner, load_learner
from holdfast.core.checkpoint import checksum_of

SETTINGS = {"method": "er", "backbone": "mlp", "memory": 1000, "n_classes": 10, "lr": 0.05}
WIDTH, BATCH = 20, 10
TOKEN = "benchmark-0123456789"
Answer = tuple[int, dict[str, Any]]


class Client:
    """One connection that stays open; a small part of HTTP, so that the client costs little."""

    def __init__(self, port: int, token: str | None = None) -> None:
        self.port, self.token = port, token
        self.writer: asyncio.StreamWriter | None = None

    def packed(self, method: str, path: str, content: Any = None, **headers: str) -> bytes:
        body = b"" if content is None else content if isinstance(content, bytes) else json.dumps(content).encode()
        given = {"host": "127.0.0.1", "content-type": "application/json", "content-length": str(len(body)), **headers}
        if self.token is not None:
            given.setdefault("authorization", f"Bearer {self.token}")
        lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in given.items()), "", ""]
        return "\r\n".join(lines).encode() + body

    async def send(self, packed: bytes) -> Answer:
        if self.writer is None:
            self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.port)
        self.writer.write(packed)
        head = await self.reader.readuntil(b"\r\n\r\n")
        found = re.search(rb"content-length: (\d+)", head.lower())
        body = await self.reader.readexactly(int(found[1])) if found else b""
        if b"connection: close" in head.lower():
            self.close()
        is_json = b"application/json" in head
        return int(head[9:12]), json.loads(body) if is_json and body else {"text": body}

    async def ask(self, method: str, path: str, content: Any = None, **headers: str) -> Answer:
        return await self.send(self.packed(method, path, content, **headers))

    def close(self) -> None:
        if self.writer is not None:
            self.writer.close()
            self.writer = None


@contextmanager
def server(folder: Path, *options: str) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """Context manager: a server and its port; it is killed at the end."""
    command = [sys.executable, "-m", "holdfast", "serve", str(folder), "--port", "0", *options]
    environment = {**os.environ, "COLUMNS": "300"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        try:
            assert process.stdout is not None
            for line in process.stdout:
                if found := re.search(r"http://127\.0\.0\.1:(\d+)", line):
                    yield process, int(found[1])
                    return
            raise RuntimeError("the server did not start")
        finally:
            process.kill()


def batch(seed: int, n: int = BATCH) -> tuple[list[list[float]], list[int]]:
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 10, n)
    x = rng.normal(size=(n, WIDTH)) + np.eye(10, WIDTH)[y] * 3
    return x.astype(np.float32).tolist(), y.tolist()


def observation(seed: int) -> dict[str, Any]:
    x, y = batch(seed)
    return {"x": x, "y": y}


async def made(port: int, **settings: Any) -> Client:
    """A client, and a model that has learned one batch."""
    client = Client(port)
    await client.ask("PUT", "/models/bench?replace=true", {**SETTINGS, **settings})
    status, answer = await client.ask("POST", "/models/bench/observe", observation(0))
    assert status == 200, answer
    return client


async def timed(port: int, clients: int, seconds: float, per_second: float | None) -> list[float]:
    """Seconds of each prediction; at a rate the clock begins when a request is due."""
    ends = time.perf_counter() + seconds
    durations: list[float] = []

    async def predict(place: int) -> None:
        client = Client(port)
        requests = [client.packed("POST", "/models/bench/predict", {"x": batch(seed, 1)[0]}) for seed in range(50)]
        n, started = 0, time.perf_counter() + place / (per_second or 1)
        while time.perf_counter() < ends:
            due = time.perf_counter() if per_second is None else started + n * clients / per_second
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            status, _ = await client.send(requests[n % 50])
            assert status == 200
            durations.append(time.perf_counter() - due)
            n += 1
        client.close()

    await asyncio.gather(*(predict(place) for place in range(clients)))
    return durations


async def observe_without_end(port: int) -> None:
    """Observe without pause, and print a line for each batch; in a process of its own, which is killed."""
    client = Client(port)
    requests = [client.packed("POST", "/models/bench/observe", observation(seed)) for seed in range(100)]
    for n in itertools.count():
        status, _ = await client.send(requests[n % 100])
        assert status == 200
        print(n, flush=True)


@asynccontextmanager
async def learning(port: int) -> AsyncIterator[list[int]]:
    """Context manager: a process observes without pause; gives how many batches it has, at the end."""
    learned = [0]
    command = (sys.executable, __file__, "--observe", str(port))
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE, limit=2**20)
    assert process.stdout is not None
    await process.stdout.readline()  # it has begun
    try:
        yield learned
    finally:
        process.kill()
        learned[0] = len((await process.stdout.read()).splitlines())
        await process.wait()


async def speed(rounds: int, seconds: float) -> None:
    print("predictions of one vector over HTTP, one MLP, milliseconds; medians over rounds")
    print(f"{'clients':<26}{'learning':>9}{'a second':>10}{'p50':>8}{'p99':>8}{'batches/s':>11}")
    with tempfile.TemporaryDirectory() as folder, server(Path(folder), "--rate", "1000000") as (_, port):
        (await made(port)).close()
        await timed(port, 4, 2, None)
        for name, clients, rate in (("1, no pause", 1, None), ("8, no pause", 8, None), ("8, 200 a second", 8, 200.0)):
            quiet, busy = [], []
            for _ in range(rounds):  # in turns, so that a busy machine slows both alike
                quiet.append((await timed(port, clients, seconds, rate), 0.0))
                async with learning(port) as learned:
                    busy.append((await timed(port, clients, seconds, rate), 0.0))
                busy[-1] = busy[-1][0], learned[0] / seconds
            p99 = []
            for learns, found in (("no", quiet), ("yes", busy)):
                numbers = [
                    (len(each) / seconds, 1e3 * statistics.median(each), 1e3 * float(np.quantile(each, 0.99)), batches)
                    for each, batches in found
                ]
                per_second, p50, p, batches = (statistics.median(column) for column in zip(*numbers, strict=True))
                p99.append(p)
                print(f"{name:<26}{learns:>9}{per_second:>10.0f}{p50:>8.2f}{p:>8.2f}{batches:>11.0f}")
            print(f"{'':<26}p99 while learning / p99 without: {p99[1] / p99[0]:.2f}")


def marked(number: int) -> dict[str, Any]:
    """A batch of two whose first column says its number."""
    x, y = batch(number, 2)
    for row in x:
        row[0] = float(number)
    return {"x": x, "y": y}


async def observe_all(port: int, todo: list[int], answered: set[int], again: list[int]) -> None:
    """Observe batches with their numbers as keys until the server dies; then the others are still to do."""
    client = Client(port)
    while todo:
        number = todo.pop(0)
        try:
            status, answer = await client.ask(
                "POST", "/models/bench/observe", marked(number), **{"idempotency-key": f"batch-{number}"}
            )
        except (OSError, asyncio.IncompleteReadError):
            again.append(number)
            return
        assert status == 200, answer
        answered.add(number)


async def kills(n_kills: int) -> None:
    rng = random.Random(0)
    big = {"memory": 1_000_000, "lr": 1e-3}
    todo, answered, n_made, doubtful = [0], set[int](), 1, 0
    with tempfile.TemporaryDirectory() as folder:
        with server(Path(folder)) as (_, port):
            client = Client(port)
            await client.ask("PUT", "/models/bench", {**SETTINGS, **big})
            client.close()
        for _ in range(n_kills):
            with server(Path(folder), "--max-journal", "1 MB") as (process, port):
                todo += range(n_made, n_made + 5000)  # more than can be learned until the kill
                again: list[int] = []
                tasks = [asyncio.create_task(observe_all(port, todo, answered, again)) for _ in range(4)]
                await asyncio.sleep(rng.uniform(0.0, 1.5))
                process.kill()
                await asyncio.gather(*tasks)
                n_made = max(n_made, max(answered, default=0) + 1, max(again, default=0) + 1)
                doubtful += len(again)
                todo[:] = sorted(again)  # with the same keys
        with server(Path(folder)) as (_, port):
            await observe_all(port, todo, answered, [])
            client = Client(port)
            _, file = await client.ask("GET", "/models/bench/file")
            client.close()
        path = Path(folder) / "downloaded"
        path.write_bytes(file["text"])
        report_kills(load_learner(path), n_kills, answered, doubtful, big)


def report_kills(found: Learner, n_kills: int, answered: set[int], doubtful: int, big: dict[str, Any]) -> None:
    assert found.memory is not None
    order = [int(number) for number in found.memory.x[::2, 0].tolist()]
    again = Learner(**{**SETTINGS, **big})
    for number in order:
        again.observe(torch.tensor(marked(number)["x"]), marked(number)["y"])
    same = checksum_of(again.state_dict()) == checksum_of(found.state_dict())
    print(f"{n_kills} SIGKILLs under load by 4 clients; {len(answered):,} batches answered")
    print(f"  sent when the server died, and sent again with the same key: {doubtful}")
    print(f"  answered and lost: {len(answered - set(order))}")
    print(f"  learned twice: {len(order) - len(set(order))}")
    print(f"  learned and never answered: {len(set(order) - answered)}")
    print(f"  bits as those of a plain learner that observes the same batches in the same order: {same}")


async def lives(port: int) -> str:
    """Say if another client is served as before."""
    client = Client(port, TOKEN)
    found = await client.ask("POST", "/models/bench/predict", {"x": batch(3, 1)[0]})
    client.close()
    return "the server lives" if found[0] == 200 else f"the server answers {found}"


async def slow_client(port: int) -> str:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"POST /models/bench/observe HTTP/1.1\r\nhost: 127.0.0.1\r\n")
    started = time.perf_counter()
    for byte in b"x-slow: " + b"a" * 1000:
        try:
            writer.write(bytes([byte]))
            await asyncio.wait_for(writer.drain(), 1)
            line = await asyncio.wait_for(reader.readline(), 0.1)
        except TimeoutError:
            continue
        writer.close()
        return f"{line.decode().strip()} after {time.perf_counter() - started:.1f} s"
    return "still connected"


async def flood(port: int) -> str:
    """Send 5,000 requests of one client at once, over 100 connections."""
    statuses: dict[int, int] = {}

    async def many() -> None:
        client = Client(port, TOKEN)
        for _ in range(50):
            status, _ = await client.ask("GET", "/models")
            statuses[status] = statuses.get(status, 0) + 1
        client.close()

    started = time.perf_counter()
    await asyncio.gather(*(many() for _ in range(100)))
    return f"{dict(sorted(statuses.items()))} in {time.perf_counter() - started:.1f} s"


def sent(method: str, path: str, content: Any, token: str = TOKEN) -> Callable[[int], Awaitable[str]]:
    async def send(port: int) -> str:
        client = Client(port, token)
        status, answer = await client.ask(method, path, content)
        client.close()
        return f"{status} {answer.get('detail', '')}"

    return send


async def full_disk(port: int, process: subprocess.Popen[str]) -> None:
    """Fill the disk, observe on it, and make room, without a restart."""
    client = Client(port, TOKEN)
    statuses = []
    for seed in range(300):
        status, answer = await client.ask("POST", "/models/bench/observe", observation(seed))
        statuses.append(status)
        if status != 200:
            break
    _, before = await client.ask("GET", "/models/bench")
    print(
        f"full disk: {statuses.count(200)} batches learned, then {status} {answer.get('detail')}; {await lives(port)}"
    )
    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    status, answer = await client.ask("POST", "/models/bench/observe", observation(999))
    learned = answer.get("n_observed", 0) - before["n_observed"]
    print(f"full disk, room again: {status} {answer.get('detail', '')}, {learned} more batch learned")
    client.close()


async def faults() -> None:
    with tempfile.TemporaryDirectory() as folder:
        tokens = Path(folder) / "tokens"
        tokens.write_text(f"admin {TOKEN}\n")
        options = ("--tokens", str(tokens), "--body-seconds", "2", "--rate", "500")
        with server(Path(folder) / "models", *options) as (process, port):
            client = Client(port, TOKEN)
            await client.ask("PUT", "/models/bench", SETTINGS)
            await client.ask("POST", "/models/bench/observe", observation(0))
            client.close()
            for name, fault in {
                "slow client": slow_client,
                "10 MB body": sent("POST", "/models/bench/observe", b"[" + b"1," * 5_000_000 + b"1]"),
                "invalid JSON": sent("POST", "/models/bench/observe", b'{"x": [[1, 2'),
                "wrong token": sent("GET", "/models", None, "wrong-0123456789"),
                "flood": flood,
            }.items():
                said = await fault(port)
                await asyncio.sleep(2.1 if name == "flood" else 0)  # until the client may ask again
                print(f"{name}: {said}; {await lives(port)}")
            resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (100_000, resource.RLIM_INFINITY))
            await full_disk(port, process)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--only", choices=["speed", "kills", "faults"])
    parser.add_argument("--observe", type=int, help=argparse.SUPPRESS)  # a port
    given = parser.parse_args()
    if given.observe is not None:
        asyncio.run(observe_without_end(given.observe))
        return
    torch.set_num_threads(1)  # as the server, since the last bits depend on it
    gc.freeze()  # a collection here would look like a slow answer
    if given.only in (None, "speed"):
        asyncio.run(speed(given.rounds, given.seconds))
    if given.only in (None, "faults"):
        asyncio.run(faults())
    if given.only in (None, "kills"):
        asyncio.run(kills(given.kills))


if __name__ == "__main__":
    main()
