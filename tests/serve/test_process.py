"""The server as a process of its own: addresses, signals, kills and slow clients."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch

from holdfast.core.checkpoint import checksum_of
from holdfast.learner import Learner
from holdfast.serve.process import is_loopback
from tests.support.serving import SMALL, bits_of, server, toy_batch


def observe(client: httpx.Client, seed: int) -> dict[str, Any]:
    x, y = toy_batch(seed)
    answer = client.post("/models/toy/observe", json={"x": x, "y": y}, headers={"Idempotency-Key": str(seed)})
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


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
