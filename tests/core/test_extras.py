"""Advice for a missing package works without an index that offers holdfast."""

from importlib.metadata import PackageNotFoundError

import pytest

from holdfast.core import extras
from holdfast.core.extras import how_to_install


def test_the_packages_of_an_extra_are_named(monkeypatch: pytest.MonkeyPatch):
    stated = [
        "torch>=2.6",
        "a-b>=1.2,<3; extra == 'one'",
        'c==4; python_version < "4" and extra == "one"',
        "d; extra == 'two'",
    ]
    monkeypatch.setattr(extras, "requires", lambda _: stated)
    assert how_to_install("one") == "pip install 'a-b>=1.2,<3' 'c==4'"
    assert how_to_install("two") == "pip install 'd'"


def test_an_extra_of_an_unknown_installation_is_named_itself(monkeypatch: pytest.MonkeyPatch):
    def raises(_: str) -> None:
        raise PackageNotFoundError

    monkeypatch.setattr(extras, "requires", raises)
    assert how_to_install("ray") == "pip install 'holdfast[ray]'"
