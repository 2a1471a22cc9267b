"""What tests of several folders share."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from filelock import FileLock
from hypothesis import settings

from tests.support.command import holdfast as holdfast  # a fixture of many tests
from tests.support.places import SHARED
from tests.support.processes import forked_workers as forked_workers  # another

# The same examples in every run of CI: a new one is found at a desk, not when something else lands.
settings.register_profile("ci", derandomize=True)
if os.environ.get("CI"):
    settings.load_profile("ci")


@pytest.fixture(scope="session")
def real_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The real data sets as their publishers lay them out: HOLDFAST_DATA, or made once from ../shared/data."""
    if folder := os.environ.get("HOLDFAST_DATA"):
        return Path(folder)
    maker = SHARED / "tools" / "make_datasets.py"
    if not maker.exists():
        pytest.skip(f"no real data: set HOLDFAST_DATA, or put it into {SHARED.name}/data beside the checkout")
    # The workers of one run share one copy, made by whichever comes first.
    session = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        session = session.parent
    folder = session / "data"
    with FileLock(session / "data.lock"):
        subprocess.run([sys.executable, str(maker), str(folder)], check=True, stdout=subprocess.DEVNULL)
    return folder


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Those that take minutes come first, so that no worker is left with them at the end."""
    items.sort(key=lambda item: "test_real_data.py" not in item.nodeid)
