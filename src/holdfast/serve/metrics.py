"""Counts and durations of requests, and the state of each model, as text that Prometheus reads."""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping

from holdfast.serve.state import GAUGES, ModelState

BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)  # seconds
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Metrics:
    """Counters of requests by route, method and status, and histograms of their durations by route and method."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._requests: Counter[tuple[str, str, int]] = Counter()
        self._buckets: dict[tuple[str, str], list[int]] = {}
        self._seconds: Counter[tuple[str, str]] = Counter()

    def count(self, route: str, method: str, status: int, seconds: float) -> None:
        """Count a request that was answered."""
        with self._lock:
            self._requests[route, method, status] += 1
            buckets = self._buckets.setdefault((route, method), [0] * (len(BUCKETS) + 1))
            buckets[bisect_left(BUCKETS, seconds)] += 1
            self._seconds[route, method] += seconds  # type: ignore[assignment]  # a sum of seconds

    def text(self, states: Mapping[str, ModelState | None]) -> str:
        """Return everything as text; the state of a model that could not be loaded is None."""
        with self._lock:
            requests, seconds = dict(self._requests), dict(self._seconds)
            buckets = {key: list(counts) for key, counts in self._buckets.items()}
        lines = list(_requests(requests, buckets, seconds))
        lines += _gauges(states)
        return "\n".join(lines) + "\n"


def _requests(
    requests: dict[tuple[str, str, int], int],
    buckets: dict[tuple[str, str], list[int]],
    seconds: dict[tuple[str, str], int],
) -> Iterator[str]:
    yield from _head("holdfast_requests_total", "counter", "Requests that were answered.")
    for (route, method, status), n in sorted(requests.items()):
        yield f"holdfast_requests_total{_labels(route=route, method=method, status=str(status))} {n}"
    yield from _head("holdfast_request_seconds", "histogram", "Seconds from a request to its answer.")
    for (route, method), counts in sorted(buckets.items()):
        below = 0
        for bound, n in zip([*map(str, BUCKETS), "+Inf"], counts, strict=True):
            below += n
            yield f"holdfast_request_seconds_bucket{_labels(route=route, method=method, le=bound)} {below}"
        yield f"holdfast_request_seconds_sum{_labels(route=route, method=method)} {float(seconds[route, method])}"
        yield f"holdfast_request_seconds_count{_labels(route=route, method=method)} {below}"


def _gauges(states: Mapping[str, ModelState | None]) -> Iterator[str]:
    for name, (kind, about) in GAUGES.items():
        yield from _head(name, kind, about)
        for model, state in sorted(states.items()):
            if state is not None and name in state.gauges:
                yield f"{name}{_labels(model=model)} {float(state.gauges[name])}"
    yield from _head("holdfast_model_up", "gauge", "1 if the model learns and is saved, 0 if not.")
    for model, state in sorted(states.items()):
        yield f"holdfast_model_up{_labels(model=model)} {float(state is not None and not state.is_failing)}"


def _head(name: str, kind: str, about: str) -> Iterator[str]:
    yield f"# HELP {name} {about}"
    yield f"# TYPE {name} {kind}"


def _labels(**labels: str) -> str:
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items()) + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
