"""Counts and durations of requests, and the state of each model, as text that Prometheus reads."""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator

from holdfast.serve.hosted import Hosted

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

    def text(self, models: Iterable[tuple[str, Hosted]], failed: Iterable[str]) -> str:
        """Return everything as text."""
        with self._lock:
            requests, seconds = dict(self._requests), dict(self._seconds)
            buckets = {key: list(counts) for key, counts in self._buckets.items()}
        lines = list(_requests(requests, buckets, seconds))
        lines += _gauges(list(models), list(failed))
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


def _gauges(models: list[tuple[str, Hosted]], failed: list[str]) -> Iterator[str]:
    table: list[tuple[str, str, str, dict[str, float]]] = [
        ("holdfast_batches_total", "counter", "Batches observed.", {n: m.learner.n_observed for n, m in models}),
        ("holdfast_samples_total", "counter", "Samples observed.", {n: m.record.n_samples for n, m in models}),
        ("holdfast_accuracy", "gauge", "Share of right predictions, of the last samples before they were learned.",
         {n: m.record.accuracy.window for n, m in models if m.record.accuracy.n}),
        ("holdfast_alarms_total", "counter", "Rises of the error rate (ADWIN).",
         {n: len(m.record.accuracy.alarms) for n, m in models}),
        ("holdfast_waiting_calls", "gauge", "Calls that wait to be learned.", {n: m.n_waiting for n, m in models}),
        ("holdfast_kept_inputs", "gauge", "Inputs that wait for their labels.", {n: len(m.waiting) for n, m in models}),
        ("holdfast_expired_inputs_total", "counter", "Inputs whose labels came too late, or never.",
         {n: m.waiting.n_expired for n, m in models}),
        ("holdfast_journal_bytes", "gauge", "Bytes of the journal.", {n: m.journal.nbytes for n, m in models}),
        ("holdfast_model_up", "gauge", "1 if the model learns and is saved, 0 if not.",
         {n: float(m.failure is None and m.save_failure is None) for n, m in models} | dict.fromkeys(failed, 0.0)),
    ]  # fmt: skip
    for name, kind, about, values in table:
        yield from _head(name, kind, about)
        for model, value in sorted(values.items()):
            yield f"{name}{_labels(model=model)} {float(value)}"


def _head(name: str, kind: str, about: str) -> Iterator[str]:
    yield f"# HELP {name} {about}"
    yield f"# TYPE {name} {kind}"


def _labels(**labels: str) -> str:
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items()) + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
