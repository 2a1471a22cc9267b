"""The contract of every probe: it changes nothing that is learned, and a killed run leaves the same part."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from holdfast.checks.methods import check_predicting
from holdfast.checks.probes import check_probe_changes_nothing, check_probe_result, check_probe_resumes
from holdfast.experiments.probes._logger import Logger
from holdfast.experiments.probing import find_probe, probe_names
from holdfast.parts import names
from holdfast.settings import Part
from tests.support.toy import settings_of

OPTIONS: dict[str, dict[str, Any]] = {"curve": {"every": 5}, "prequential": {"every": 5, "window": 20}}
PACKAGES = {"tensorboard": "tensorboard", "mlflow": "mlflow", "wandb": "wandb"}


def part_of(name: str, folder: Path) -> Part:
    if name in PACKAGES and find_spec(PACKAGES[name]) is None:
        pytest.skip(f"{PACKAGES[name]} is not installed: pip install 'holdfast[{name}]'")
    found = find_probe(name)
    to = {"to": str(folder / "log")} if issubclass(found, Logger) and found.needs_place else {}
    return Part(name=name, options={**to, **OPTIONS.get(name, {})})


@pytest.mark.parametrize("name", probe_names())
def test_a_probe_changes_nothing_that_is_learned_and_a_run_that_was_stopped_leaves_the_same(
    name: str, tmp_path: Path
) -> None:
    part = part_of(name, tmp_path)
    check_probe_changes_nothing(part, tmp_path)
    check_probe_resumes(part, tmp_path)
    check_probe_result(part, tmp_path / "read")


@pytest.mark.parametrize("method", names("methods"))
def test_a_method_that_is_asked_all_the_time_learns_the_same(method: str) -> None:
    check_predicting(settings_of(method, "reservoir", "class"))
