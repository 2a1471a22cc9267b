"""Learn from a topic of Kafka through `holdfast serve`, each record once, whatever dies in between.

    holdfast serve models &
    python examples/kafka_consumer.py localhost:9092 samples   # needs 'pip install kafka-python'

Without arguments no Kafka is needed: a server is started, and a list of records stands in for the topic. Some come
twice, as they do when a consumer dies before it has said how far it read.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

DIRECTLY = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # whatever proxy the shell names


class Record(NamedTuple):
    topic: str
    partition: int
    offset: int
    value: bytes


def ask(method: str, address: str, body: bytes, **headers: str) -> tuple[dict[str, Any], bool]:
    """Return the answer, and whether the request came before."""
    headers = {"content-type": "application/json", **headers}
    request = urllib.request.Request(address, body, headers, method=method)
    with DIRECTLY.open(request, timeout=60) as answer:
        return json.loads(answer.read()), answer.headers.get("Idempotency-Replayed") == "true"


def learn(records: Iterable[Any], model: str) -> tuple[int, int]:
    """Learn each record once; returns how many were learned, and how many had come before.

    The place of a record in its topic is the key. Say how far you read only after this has returned.
    """
    learned = repeated = 0
    for record in records:
        key = f"{record.topic}-{record.partition}-{record.offset}"
        _, again = ask("POST", f"{model}/observe", record.value, **{"Idempotency-Key": key})
        learned, repeated = learned + (not again), repeated + again
    return learned, repeated


@contextmanager
def server() -> Iterator[str]:
    """Context manager: the address of a server with an empty folder."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "holdfast", "serve", folder, "--port", "0"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            said = ""
            while not (found := re.search(r"http://[\d.]+:\d+", said.replace("\n", ""))):
                line = process.stdout.readline()
                assert line, "the server did not start"
                said += line
            try:
                yield found[0]
            finally:
                process.terminate()


def stand_in() -> list[Record]:
    """Ten records, of which three come again."""
    samples = [json.dumps({"x": [[i % 2, 1 - i % 2]], "y": [i % 2]}).encode() for i in range(10)]
    records = [Record("samples", 0, offset, value) for offset, value in enumerate(samples)]
    return records[:6] + records[3:]


def main() -> None:
    if len(sys.argv) == 3:
        from kafka import KafkaConsumer

        consumer = KafkaConsumer(
            sys.argv[2], bootstrap_servers=sys.argv[1], group_id="holdfast", enable_auto_commit=False
        )
        for record in consumer:
            learn([record], "http://127.0.0.1:8765/models/samples")
            consumer.commit()
        return
    with server() as address:
        model = f"{address}/models/samples"
        ask("PUT", model, b'{"method": "er", "n_classes": 2}')
        learned, repeated = learn(stand_in(), model)
        print(f"{learned} records learned, {repeated} had come before")


if __name__ == "__main__":
    main()
