"""The application on a real Ray Serve, which is started here; a learner and a front are killed."""

from __future__ import annotations

import importlib.util
import os
import re
import signal
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch
from filelock import FileLock

from holdfast.core.checkpoint import checksum_of
from holdfast.learner import Learner
from tests.support.serving import SMALL, bits_of, server, toy_batch

# Ray decides about its tokens when it is imported, so it is not imported here: other tests begin Ray in this process.
if importlib.util.find_spec("ray") is None or importlib.util.find_spec("aiohttp_cors") is None:
    pytest.skip("ray[serve] is not installed: pip install '.[serve-ray]'", allow_module_level=True)

ROOT = Path(__file__).parents[2]
MARK = "HOLDFAST_TEST_MARK"
TOKEN = "an-admin-of-the-test"


@pytest.fixture
def environment(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Keep Ray out of the user's folders, one worker at a time; gives the mark of its processes."""
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    mark = uuid.uuid4().hex
    with FileLock(shared / "ray.lock"), tempfile.TemporaryDirectory(prefix="ray") as folder:
        monkeypatch.setenv("RAY_TMPDIR", folder)
        monkeypatch.setenv("RAY_AUTH_MODE", "token")
        monkeypatch.setenv("RAY_AUTH_TOKEN", uuid.uuid4().hex)
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT / "src"), str(ROOT)]))
        monkeypatch.setenv(MARK, mark)
        monkeypatch.delenv("RAY_ADDRESS", raising=False)
        yield mark


def process_of(mark: str, title: str) -> int:
    """Return the process of our cluster with this title; it may have to be started first."""
    wanted = f"{MARK}={mark}".encode()
    until = time.monotonic() + 60
    while time.monotonic() < until:
        for place in Path("/proc").glob("[0-9]*"):
            try:
                if title.encode() in (place / "cmdline").read_bytes() and wanted in (place / "environ").read_bytes():
                    return int(place.name)
            except OSError:  # it has ended
                continue
        threading.Event().wait(0.05)
    raise AssertionError(f"no process {title}")


def until_answered(client: httpx.Client, path: str, content: dict[str, Any], key: str | None = None) -> dict[str, Any]:
    """Ask until there is an answer, as a client does that waits for a learner to come back."""
    until = time.monotonic() + 120
    while time.monotonic() < until:
        try:
            found = client.post(path, json=content, headers={} if key is None else {"Idempotency-Key": key})
        except httpx.TransportError:
            continue
        if found.status_code == 200:
            answer: dict[str, Any] = found.json()
            return answer
        assert found.status_code in (500, 503), found.text
        threading.Event().wait(0.05)
    raise AssertionError("no answer")


@contextmanager
def on_ray(folder: Path, *options: str) -> Iterator[tuple[Any, httpx.Client]]:
    threads = str(torch.get_num_threads())
    with server(folder, "--ray", "local", "--threads", threads, *options) as (process, client):
        yield process, client
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=120) == 0


def test_a_killed_learner_and_a_killed_front_lose_nothing_and_learn_nothing_twice(environment: str, tmp_path: Path):
    tokens, n_batches = tmp_path / "tokens", 60
    tokens.write_text(f"admin {TOKEN}\npredict only-predicts-12345\n")
    content = {"x": toy_batch(1)[0]}
    with on_ray(tmp_path / "models", "--tokens", str(tokens)) as (_, client):
        assert client.get("/models").status_code == 401
        weak = {"authorization": "Bearer only-predicts-12345"}
        assert client.put("/models/other", json=SMALL, headers=weak).status_code in (403, 404)
        client.headers["authorization"] = f"Bearer {TOKEN}"
        assert client.put("/models/toy", json=SMALL).status_code == 201
        assert client.post("/models/none/predict", json=content).status_code == 404
        assert client.put("/models/bad", json={"method": "none"}).status_code == 409
        answers = {}
        for seed in range(n_batches):
            if seed == n_batches // 3:
                os.kill(process_of(environment, "ray::LearnerActor"), signal.SIGKILL)
            if seed == 2 * n_batches // 3:
                os.kill(process_of(environment, "ray::ServeReplica:holdfast"), signal.SIGKILL)
            x, y = toy_batch(seed)
            answers[seed] = until_answered(client, "/models/toy/observe", {"x": x, "y": y}, str(seed))
            assert until_answered(client, "/models/toy/predict", content)["n_observed"] == seed + 1
        for seed in (0, n_batches // 3, n_batches - 1):  # sent again, the same answer
            x, y = toy_batch(seed)
            assert until_answered(client, "/models/toy/observe", {"x": x, "y": y}, str(seed)) == answers[seed]
        assert client.get("/models").json()["models"][0]["n_observed"] == n_batches
        assert client.get("/health").json() == {"status": "ok", "models": 1, "failing": []}
        assert re.search(r'holdfast_batches_total{model="toy"} 60\.0', client.get("/metrics").text)
        assert client.put("/models/gone", json=SMALL).status_code == 201
        assert client.delete("/models/gone").status_code == 204
        assert client.get("/models/gone").status_code == 404
    learner = Learner(**SMALL)
    for seed in range(n_batches):
        learner.observe(*toy_batch(seed))
    assert bits_of(tmp_path / "models") == (0, checksum_of(learner.state_dict()))
