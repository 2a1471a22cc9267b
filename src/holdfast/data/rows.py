"""Read rows of tables, one at a time and in their order: CSV, JSON lines, arrays, Parquet and folders of pictures."""

from __future__ import annotations

import csv
import io
import itertools
import json
from collections import Counter
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, BinaryIO

import numpy as np

from holdfast.data.own import MAX_ARRAYS, PICTURES
from holdfast.data.photos import decode
from holdfast.data.places import OWN, BrokenData, MissingData
from holdfast.data.untrusted import Unsafe, arrays_of, open_regular

PICTURE = "picture"  # the only column of a row that is a picture
TEXT_KINDS = {".csv": ",", ".tsv": "\t"}
LINE_KINDS = (".jsonl", ".ndjson")
BROKEN = "surrogateescape"  # bytes that are no UTF-8 become surrogates, which no text of UTF-8 has
NO_UTF_8 = "it holds bytes that are no UTF-8: save the file as UTF-8"
MAX_FIELD = 2**20  # characters
MAX_LINE = 2**24  # characters
MAX_DIGITS = 300  # of a whole number, which a float can hold


@dataclass(frozen=True)
class Row:
    """One row of a table.

    Attributes:
        where: the line or place, for messages: "line 12".
        values: by column; of a picture one array.
        wrong: what is wrong with the row; None if nothing is.
    """

    where: str
    values: dict[str, Any]
    wrong: str | None = None


def read_rows(
    source: str, *, label: str, size: int = 64, standard_input: IO[str] | None = None
) -> Generator[Row, None, None]:
    """Give the rows of a file, of a folder of pictures, or of standard input (`-`, JSON lines).

    Args:
        label: the column of the label. Of a folder with a folder per class, the names of these are in it.
        size: pixels of a side, to which pictures are resized.
    """
    if source == "-":
        if standard_input is None:
            raise ValueError("no standard input was given for '-'")
        yield from _json_lines(standard_input, source)
        return
    path = Path(source)
    if not path.exists():
        raise MissingData(f"nothing at {path}: name a .csv, .tsv, .jsonl, .npz or .parquet file, a folder, or '-'")
    if path.is_dir():
        yield from _pictures(path, label, size)
    elif path.suffix in TEXT_KINDS:
        with io.TextIOWrapper(_opened(path), encoding="utf-8-sig", errors=BROKEN, newline="") as file:
            yield from _csv(file, path, TEXT_KINDS[path.suffix])
    elif path.suffix in LINE_KINDS:
        with io.TextIOWrapper(_opened(path), encoding="utf-8", errors=BROKEN) as file:
            yield from _json_lines(file, path)
    elif path.suffix == ".npz":
        yield from _arrays(path, label)
    elif path.suffix == ".parquet":
        yield from _parquet(path)
    else:
        kinds = ", ".join([*TEXT_KINDS, *LINE_KINDS, ".npz", ".parquet"])
        raise BrokenData(f"{path}: found a file named *{path.suffix}, expected one of {kinds}: rename or convert it")


def _opened(path: Path) -> BinaryIO:
    try:
        return open_regular(path)
    except Unsafe as reason:
        raise BrokenData(f"{path}: found {reason.found}, expected {reason.expected}") from reason


def _csv(file: IO[str], path: Path, separator: str) -> Iterator[Row]:
    csv.field_size_limit(MAX_FIELD)
    lines = _lines(file, path)
    first = next(lines, "")
    if not _is_utf_8(first):
        raise BrokenData(f"{path}: found a header with bytes that are no UTF-8, expected UTF-8: save the file as that")
    if separator == "," and "," not in first and ";" in first:
        separator = ";"
    reader = csv.reader(itertools.chain([first], lines), delimiter=separator)
    header = next(reader, None)
    if not header or not any(name.strip() for name in header):
        raise BrokenData(f"{path}: found no header, expected the names of the columns in line 1: add them")
    names = [name.strip() for name in header]
    if twice := sorted(name for name, n in Counter(names).items() if n > 1):
        raise BrokenData(f"{path}: found the column '{twice[0]}' twice, expected different names: rename one")
    while True:
        where = f"line {reader.line_num + 1}"
        try:
            fields = next(reader, None)
        except csv.Error as error:
            yield Row(where, {}, f"it cannot be read ({error})")
            continue
        if fields is None:
            return
        if not fields:
            continue  # an empty line holds no row
        if len(fields) != len(names):
            yield Row(where, {}, f"it has {len(fields)} fields, but there are {len(names)} columns")
        elif not all(map(_is_utf_8, fields)):
            yield Row(where, {}, NO_UTF_8)
        else:
            yield Row(where, dict(zip(names, fields, strict=True)))


def _lines(file: IO[str], path: Path | str) -> Iterator[str]:
    """Give the lines of a file; one without an end is not read on."""
    number = 0
    while line := file.readline(MAX_LINE + 1):
        number += 1
        if len(line) > MAX_LINE:
            raise BrokenData(
                f"{path}: found a line {number} of more than {MAX_LINE:,} characters, expected shorter ones"
            )
        yield line


def _is_utf_8(text: str) -> bool:
    """Return False for a text that was read from other bytes."""
    return text.isascii() or not any("\udc80" <= letter <= "\udcff" for letter in text)


def _whole_number(digits: str) -> int:
    if len(digits) > MAX_DIGITS:
        raise ValueError(f"a number of {len(digits):,} digits")
    return int(digits)


def _json_lines(file: IO[str], path: Path | str) -> Iterator[Row]:
    for number, line in enumerate(_lines(file, path), start=1):
        if not line.strip():
            continue
        if not _is_utf_8(line):
            yield Row(f"line {number}", {}, NO_UTF_8)
            continue
        try:
            values = json.loads(line, parse_int=_whole_number)
        except (ValueError, RecursionError) as error:
            yield Row(f"line {number}", {}, f"it is no JSON ({error})")
            continue
        if isinstance(values, dict):
            yield Row(f"line {number}", values)
        else:
            yield Row(f"line {number}", {}, f"it is a JSON {type(values).__name__}, not an object with the columns")


def _arrays(path: Path, label: str) -> Iterator[Row]:
    try:
        arrays = arrays_of(path, at_most=MAX_ARRAYS)
    except Unsafe as reason:
        raise BrokenData(
            f"{path}: found {reason.found}, expected {reason.expected}: save it with numpy.savez"
        ) from reason
    n = {len(array) if array.ndim else 0 for array in arrays.values()}
    if len(n) != 1:
        raise BrokenData(f"{path}: found arrays of {sorted(n)} rows, expected the same number in each")
    inputs = {name: array for name, array in arrays.items() if name != label}
    deep = [name for name, array in inputs.items() if array.ndim > 2]
    for i in range(n.pop()):
        given = {label: arrays[label][i]} if label in arrays else {}
        if deep:
            yield Row(f"row {i}", {PICTURE: inputs[deep[0]][i], **given})
            continue
        for name, array in inputs.items():
            given |= {name: array[i]} if array.ndim == 1 else {f"{name}_{j}": v for j, v in enumerate(array[i])}
        yield Row(f"row {i}", given)


def _parquet(path: Path) -> Iterator[Row]:
    try:
        from pyarrow import parquet
    except ImportError as error:
        raise ValueError(f"{path} needs pyarrow to be read: pip install pyarrow, or convert it to CSV") from error
    place = 0
    with _opened(path) as file:
        for batch in parquet.ParquetFile(file).iter_batches(batch_size=1000):
            for values in batch.to_pylist():
                yield Row(f"row {place}", values)
                place += 1


def _pictures(folder: Path, label: str, size: int) -> Iterator[Row]:
    """Pictures below a folder, in the order of their names; the class is the folder that a picture stands in."""
    files = sorted(path for path in folder.rglob("*") if path.suffix.lower() in PICTURES)
    if not files:
        raise BrokenData(f"{folder}: found no pictures, expected .jpg or .png files in a folder for each class")
    for path in sorted(files, key=lambda file: (file.name, file.parent)):
        where = str(path.relative_to(folder))
        given = {} if path.parent == folder else {label: path.parent.name}
        try:
            picture = decode(OWN, path, size=size)
        except (ValueError, OSError) as error:
            yield Row(where, {}, f"it cannot be decoded ({error})")
            continue
        yield Row(where, {PICTURE: np.asarray(picture), **given})
