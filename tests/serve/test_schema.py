"""Requests made of the application's own description: every answer is one that the description names."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import GenerationMode

from tests.support.serving import SMALL, serving, toy_batch

N_EXAMPLES = 12  # of each operation and kind
OPERATIONS = [
    "GET /health",
    "GET /metrics",
    "GET /models",
    "GET /models/{name}",
    "GET /models/{name}/page",
    "PUT /models/{name}",
    "PUT /models/{name}/file",
    "GET /models/{name}/file",
    "DELETE /models/{name}",
    "POST /models/{name}/observe",
    "POST /models/{name}/end_task",
    "POST /models/{name}/label",
    "POST /models/{name}/predict",
]


@pytest.fixture(scope="module")
def described(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with serving(tmp_path_factory.mktemp("models")) as ask:
        ask("PUT", "/models/toy", SMALL)
        x, y = toy_batch(1)
        ask("POST", "/models/toy/observe", {"x": x, "y": y})
        yield schemathesis.openapi.from_asgi("/openapi.json", ask.app)


def test_every_operation_is_tried(described):
    assert {operation.ok().label for operation in described.get_all_operations()} == set(OPERATIONS)


@pytest.mark.parametrize("wanted", OPERATIONS)
@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE], ids=["good", "bad"])
def test_schemathesis_finds_no_fault(described, wanted: str, mode: GenerationMode):
    (operation,) = [each.ok() for each in described.get_all_operations() if each.ok().label == wanted]
    has_input = "{name}" in wanted
    if mode is GenerationMode.NEGATIVE and not has_input:
        pytest.skip("nothing in this request can be wrong")

    @settings(
        max_examples=N_EXAMPLES,
        deadline=None,
        database=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate],
    )
    @given(case=operation.as_strategy(generation_mode=mode))
    def check(case: Any) -> None:
        if mode is GenerationMode.POSITIVE and has_input and case.body is not None and wanted.startswith("POST"):
            case.path_parameters = {"name": "toy"}  # which is there; else nearly all are answered with 404
        case.validate_response(case.call())

    check()


def test_the_folder_holds_only_models_afterwards(described):
    folder = described.app.state.shelf.folder
    assert {path.name for path in folder.iterdir()} == set(described.app.state.shelf.names())
