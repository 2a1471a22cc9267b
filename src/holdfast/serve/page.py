"""The live page: its three files, and the numbers and pictures that it asks for."""

from __future__ import annotations

import base64
import io
from collections import Counter
from pathlib import Path
from typing import Any

import torch
from fastapi import FastAPI, Response
from torch import Tensor

from holdfast.serve.hosted import Hosted

HERE = Path(__file__).parent
FILES = {
    "/": ("page.html", "text/html"),
    "/page.js": ("page.js", "text/javascript"),
    "/page.css": ("page.css", "text/css"),
}
HEADERS = {
    "content-security-policy": "default-src 'none'; style-src 'self'; script-src 'self'; img-src data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "cache-control": "no-store",
    "referrer-policy": "no-referrer",
}
MOST_CLASSES = 50  # in the table and among the pictures
PER_CLASS = 12  # pictures
MOST_SIDE = 96  # pixels; larger pictures are made smaller


def add_page(app: FastAPI) -> None:
    """Add the routes of the page, which need no token: it holds no data."""
    for path, (name, kind) in FILES.items():
        content = (HERE / name).read_bytes()

        async def file(content: bytes = content, kind: str = kind) -> Response:
            return Response(content, media_type=kind, headers=HEADERS)

        app.add_api_route(path, file, include_in_schema=False)


def data_of(hosted: Hosted) -> dict[str, Any]:
    """Return what the page shows of a model, between two calls."""
    learner, record = hosted.learner, hosted.record
    found, labels = record.accuracy, [str(label) for label in record.labels.known]
    memory = learner.memory if learner.n_observed else None
    stored = _stored_by_class(memory.y) if memory is not None and len(memory) else {}
    newest = dict(record.drift[-1][1]) if record.drift else {}
    return {
        "method": learner.settings.method.name,
        "n_observed": learner.n_observed,
        "n_samples": record.n_samples,
        "samples_per_second": record.samples_per_second,
        "accuracy": {"window": found.window, "faded": found.faded, "whole": found.whole} if found.n else None,
        "curve": found.curve,
        "alarms": found.alarms[-50:],
        "n_alarms": len(found.alarms),
        "classes": [
            {"label": labels[c], "n": n, "right": right, "stored": stored.get(c, 0), "moved": newest.get(c)}
            for c, (right, n) in sorted(enumerate(found.by_class), key=lambda each: -each[1][1])[:MOST_CLASSES]
        ],
        "n_classes": len(labels),
        "drift": [[n, {labels[c]: value for c, value in pairs}] for n, pairs in record.drift],
        "memory": None if memory is None else {"n": len(memory), "bytes": memory.nbytes, "capacity": memory.capacity},
        "pictures": _pictures(memory.x, memory.y, labels) if memory is not None and len(memory) else [],
        "n_waiting": hosted.n_waiting,
        "journal_bytes": hosted.journal.nbytes,
        "failure": hosted.failure or hosted.save_failure,
    }


def _stored_by_class(y: Tensor) -> dict[int, int]:
    return dict(Counter(y.tolist()))


def _pictures(x: Tensor, y: Tensor, labels: list[str]) -> list[dict[str, Any]]:
    """Return the newest pictures of each class in memory; none where samples are no pictures."""
    if x.ndim != 4 or x.shape[1] not in (1, 3) or min(x.shape[2:]) < 4:
        return []
    groups = []
    for c in sorted(set(y.tolist()))[:MOST_CLASSES]:
        slots = (y == c).nonzero().flatten()[-PER_CLASS:]
        groups.append({"label": labels[c] if c < len(labels) else str(c), "png": [_png(x[slot]) for slot in slots]})
    return groups


def _png(picture: Tensor) -> str:
    """Return a picture (channels, height, width) as base64 of a PNG; numbers that are no bytes are spread over them."""
    from PIL import Image

    if picture.dtype != torch.uint8:
        low, high = picture.float().aminmax()
        picture = ((picture.float() - low) / (high - low).clamp(min=1e-12) * 255).to(torch.uint8)
    array = picture.permute(1, 2, 0).cpu().numpy()
    image = Image.fromarray(array[:, :, 0] if array.shape[2] == 1 else array)
    image.thumbnail((MOST_SIDE, MOST_SIDE))
    file = io.BytesIO()
    image.save(file, "PNG")
    return base64.b64encode(file.getvalue()).decode()
