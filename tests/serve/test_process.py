"""The server as a process of its own: addresses, signals, kills and slow clients."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch

from holdfast.core.checkpoint import checksum_of
from holdfast.learner import Learner
from holdfast.serve.hosted import open_hosted
from holdfast.serve.process import is_loopback
from tests.support.serving import SMALL, toy_batch


@contextmanager
def server(folder: Path, *options: str) -> Iterator[tuple[subprocess.Popen[str], httpx.Client]]:
    """Context manager: a server on a free port, and a client; the server is killed if it still runs."""
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


def observe(client: httpx.Client, seed: int) -> dict[str, Any]:
    x, y = toy_batch(seed)
    answer = client.post("/models/toy/observe", json={"x": x, "y": y}, headers={"Idempotency-Key": str(seed)})
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def bits_of(folder: Path) -> tuple[int, str]:
    """How many calls opening the model replayed, and the bits of its learner."""
    hosted = open_hosted(folder / "toy")
    hosted.close()
    return hosted.n_replayed, checksum_of(hosted.learner.state_dict())


def test_what_was_answered_survives_sigkill_and_sigterm_saves(tmp_path: Path):
    learner = Learner(**SMALL)
    threads = ("--threads", str(torch.get_num_threads()))  # which the last bits depend on
    with server(tmp_path, *threads) as (process, client):
        client.put("/models/toy", json=SMALL)
        answers = [observe(client, seed) for seed in range(4)]
        process.kill()
    for seed in range(4):
        learner.observe(*toy_batch(seed))
    with server(tmp_path, *threads) as (process, client):
        assert observe(client, 3) == answers[3]  # its key is known
        assert client.get("/models/toy").json()["n_observed"] == 4
        observe(client, 4)
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=60)
    learner.observe(*toy_batch(4))
    assert bits_of(tmp_path) == (0, checksum_of(learner.state_dict()))


def test_slow_and_broken_clients_are_let_go_while_others_are_served(tmp_path: Path):
    with server(tmp_path, "--body-seconds", "0.3", "--max-body", "100 KB") as (_, client):
        address = (client.base_url.host, client.base_url.port or 0)
        answers = []
        for sent in (
            b"",
            b"GET /health HTTP/1.1\r\nhost: 127.0.0.1\r\nx-slow: ",
            b"POST /models/toy/observe HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 50\r\n\r\n{",
            b"\x00\x01\x02\r\n\r\n",
        ):
            with socket.create_connection(address, timeout=60) as slow:
                slow.sendall(sent)
                answers.append(slow.makefile("rb").readline().decode())
            assert client.get("/health").status_code == 200
        assert [line.split()[1] for line in answers] == ["408", "408", "408", "400"]


def test_beyond_this_machine_tokens_are_needed(tmp_path: Path):
    command = [sys.executable, "-m", "holdfast", "serve", str(tmp_path), "--host", "0.0.0.0", "--port", "0"]
    found = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert found.returncode == 1
    assert "give --tokens FILE" in " ".join(found.stderr.split())


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("::", False),
        ("10.0.0.1", False),
        ("example.org", False),
    ],
)
def test_addresses_of_this_machine_are_told_from_others(host: str, expected: bool):
    assert is_loopback(host) is expected
