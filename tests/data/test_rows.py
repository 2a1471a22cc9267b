"""Rows of files of every kind, in their order."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from holdfast.data.places import BrokenData, MissingData
from holdfast.data.rows import PICTURE, read_rows


def rows(path: Path | str, **options: Any) -> list[Any]:
    return list(read_rows(str(path), label="label", **options))


def test_csv_gives_texts_by_column_and_names_bad_lines(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text('\ufeffa,b,label\n1,"x, y",no\n\n2,z\n3,"two\nlines",yes\n')
    found = rows(path)
    assert [row.where for row in found] == ["line 2", "line 4", "line 5"]
    assert found[0].values == {"a": "1", "b": "x, y", "label": "no"}
    assert found[1].wrong == "it has 2 fields, but there are 3 columns"
    assert found[2].values["b"] == "two\nlines"


@pytest.mark.parametrize(("text", "message"), [("", "no header"), ("a,a\n1,2\n", "'a' twice")])
def test_a_header_that_is_none_is_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "t.csv"
    path.write_text(text)
    with pytest.raises(BrokenData, match=message):
        rows(path)


def test_json_lines_come_from_a_file_and_from_standard_input(tmp_path: Path) -> None:
    text = '{"a": 1, "label": "x"}\n[1]\n\nnonsense\n{"a": null}\n'
    path = tmp_path / "t.jsonl"
    path.write_text(text)
    for found in (rows(path), rows("-", standard_input=io.StringIO(text))):
        assert [row.where for row in found] == ["line 1", "line 2", "line 4", "line 5"]
        assert found[0].values == {"a": 1, "label": "x"}
        assert "not an object" in str(found[1].wrong)
        assert "no JSON" in str(found[2].wrong)


def test_arrays_give_columns_or_pictures(tmp_path: Path) -> None:
    np.savez(tmp_path / "t.npz", x=np.arange(6.0).reshape(3, 2), age=np.arange(3), label=np.array(["a", "b", "a"]))
    assert rows(tmp_path / "t.npz")[1].values == {"label": "b", "x_0": 2.0, "x_1": 3.0, "age": 1}
    np.savez(tmp_path / "p.npz", x=np.zeros((3, 1, 4, 4), np.uint8), label=np.arange(3))
    (first, *_) = rows(tmp_path / "p.npz")
    assert first.values[PICTURE].shape == (1, 4, 4)
    np.savez(tmp_path / "w.npz", x=np.zeros((3, 2)), label=np.arange(4))
    with pytest.raises(BrokenData, match="same number"):
        rows(tmp_path / "w.npz")


def test_pictures_have_the_class_of_their_folder_and_come_mixed(tmp_path: Path) -> None:
    for name in ("cat", "dog"):
        (tmp_path / name).mkdir()
        for i in range(2):
            Image.new("RGB", (10, 8)).save(tmp_path / name / f"{i}.png")
    (tmp_path / "dog" / "2.jpg").write_bytes(b"no picture")
    found = rows(tmp_path, size=4)
    assert [row.values.get("label") for row in found] == ["cat", "dog", "cat", "dog", None]
    assert found[0].values[PICTURE].shape == (3, 4, 4)
    assert "cannot be decoded" in str(found[4].wrong)


def test_what_is_not_there_or_of_no_known_kind_is_named(tmp_path: Path) -> None:
    with pytest.raises(MissingData, match="nothing at"):
        rows(tmp_path / "none.csv")
    (tmp_path / "t.xlsx").write_text("")
    with pytest.raises(BrokenData, match=r"\*\.xlsx"):
        rows(tmp_path / "t.xlsx")


@pytest.mark.parametrize("name", ["t.csv", "t.jsonl"])
def test_a_line_without_an_end_is_not_read_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr("holdfast.data.rows.MAX_LINE", 50)
    path = tmp_path / name
    first = "a,label\n" if name == "t.csv" else '{"a": 1}\n'
    path.write_text(first + "x" * 51)
    found = read_rows(str(path), label="label")
    if name == "t.jsonl":
        assert next(found).values == {"a": 1}
    with pytest.raises(BrokenData, match="line 2 of more than 50 characters"):
        next(found)


def test_a_number_that_no_float_holds_is_a_bad_row(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text(f'{{"a": 1{"0" * 400}}}\n{{"a": 1{"0" * 200}}}\n')
    first, second = rows(path)
    assert first.wrong == "it is no JSON (a number of 401 digits)"
    assert second.values == {"a": 10**200}


def test_very_many_columns_are_compared_in_one_pass(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    n = 200_000  # comparing each with each would take minutes
    names = ",".join(f"c{i}" for i in range(n))
    path.write_text(f"{names}\n{','.join('1' * n)}\n")
    (row,) = rows(path)
    assert len(row.values) == n


@pytest.mark.parametrize("name", ["t.csv", "t.jsonl", "t.npz"])
def test_a_pipe_is_refused_by_its_name_and_not_waited_for(tmp_path: Path, name: str) -> None:
    os.mkfifo(tmp_path / name)
    with pytest.raises(BrokenData, match=f"{name}: found a pipe, expected a file"):
        rows(tmp_path / name)


@pytest.mark.parametrize("name", ["t.csv", "t.jsonl"])
def test_bytes_that_are_no_utf_8_make_a_bad_row(tmp_path: Path, name: str) -> None:
    lines = "a,label\n1,hö\n2,hä\n3,é\n"
    if name == "t.jsonl":
        lines = "".join(f'{{"label": "{text}"}}\n' for text in ("hö", "hä", "é"))
    (tmp_path / name).write_bytes(lines.encode().replace("é".encode(), b"\xe9"))
    first, second, third = rows(tmp_path / name)
    assert (first.values["label"], second.values["label"]) == ("hö", "hä")
    assert third.wrong == "it holds bytes that are no UTF-8: save the file as UTF-8"


def test_a_file_in_another_encoding_is_refused_by_its_header(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_bytes("a,label\n1,x\n".encode("utf-16"))
    with pytest.raises(BrokenData, match="no UTF-8"):
        rows(tmp_path / "t.csv")


def test_semicolons_separate_columns_where_the_header_has_no_comma(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text('a;b;label\n"1;5";2,5;x\n')
    (row,) = rows(tmp_path / "t.csv")
    assert row.values == {"a": "1;5", "b": "2,5", "label": "x"}
