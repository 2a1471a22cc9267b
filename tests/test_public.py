"""The public surface: every name is there, is imported only when it is used, and is described in one page."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import holdfast

PAGE = Path(__file__).parents[1] / "docs" / "api.md"


@pytest.mark.parametrize("name", holdfast.__all__)
def test_a_public_name_is_there_and_has_a_docstring(name):
    found = getattr(holdfast, name)
    assert found.__doc__
    assert found.__name__ == name


def test_importing_the_package_imports_no_torch():
    code = "import holdfast, sys; dir(holdfast); print(sorted({'torch', 'numpy', 'pydantic'} & set(sys.modules)))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert found.strip() == "[]"


def test_a_name_that_is_not_there_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'holdfast' has no attribute 'Lerner'"):
        holdfast.Lerner  # noqa: B018


def test_one_page_describes_the_public_names_and_no_others():
    described = re.findall(r"^::: holdfast\.(\w+)$", PAGE.read_text(), flags=re.MULTILINE)
    assert sorted(described) == sorted(holdfast.__all__)


@pytest.mark.parametrize("name", holdfast.__all__)
def test_a_public_name_has_an_example(name):
    found = getattr(holdfast, name)
    texts = [found.__doc__ or "", *(getattr(member, "__doc__", None) or "" for member in vars(found).values())]
    assert any(">>>" in text for text in texts)
