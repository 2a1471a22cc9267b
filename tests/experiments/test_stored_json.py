"""Stored JSON is read within bounds."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from holdfast.experiments.stored_json import parse, read_text

ODD = {
    "10^400": "[1" + "0" * 400 + "]",
    "a number of 5,000 digits": "9" * 5000,
    "33 levels": "[" * 33 + "1" + "]" * 33,
    "100,000 levels": "[" * 100_000 + "]" * 100_000,
    "half a character": '{"row": "\\ud800"}',
    "half a character as a key": '{"\\udfff": 1}',
    "a text of a megabyte": '"' + "x" * 2**20 + '"',
    "no JSON": "{",
    "nothing": "",
}


@pytest.mark.parametrize("name", ODD)
def test_what_nobody_stores_is_refused(name: str):
    with pytest.raises(ValueError):
        parse(ODD[name])


def test_what_is_stored_comes_back():
    assert parse('{"a": [1, 2.5, null, true, "ε"], "b": {"c": -9223372036854775807}}') == {
        "a": [1, 2.5, None, True, "ε"],
        "b": {"c": -9223372036854775807},
    }


def test_a_file_that_is_no_file_or_no_text_is_named(tmp_path: Path):
    path = tmp_path / "result.json"
    path.write_bytes(b"\xff{}")
    with pytest.raises(ValueError, match=r"result\.json cannot be read"):
        read_text(path)
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(ValueError, match=r"result\.json cannot be read: a pipe, expected a file"):
        read_text(path)
    path.unlink()
    path.mkdir()
    with pytest.raises(ValueError, match=r"result\.json cannot be read: a folder, expected a file"):
        read_text(path)
