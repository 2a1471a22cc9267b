from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from holdfast.data.places import BrokenData, MissingData
from holdfast.streams.arrays import Arrays
from tests.support.data_files import own_arrays


def small(**changes: Any) -> dict[str, Any]:
    x = np.arange(24.0).reshape(12, 2)
    return {"x_train": x[:8], "y_train": np.arange(8) % 4, "x_test": x[8:], "y_test": np.arange(4) % 4} | changes


def rows_of(stream: Arrays) -> list[tuple[list[list[float]], list[int]]]:
    return [(task.train[:].x.tolist(), task.train[:].y.tolist()) for task in stream]


def test_a_file_a_folder_and_arrays_make_one_stream(made_up_data: Path):
    streams = [
        Arrays(made_up_data, path="own/arrays.npz", seed=3),
        Arrays(path=str(made_up_data / "own/arrays"), seed=3),
        Arrays(own_arrays(), seed=3),
    ]
    assert rows_of(streams[0]) == rows_of(streams[1]) == rows_of(streams[2])
    assert streams[0].classes == tuple(f"kind {c:02}" for c in range(40))


def test_a_path_is_looked_for_in_the_data_and_then_from_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "data").mkdir()
    np.savez(tmp_path / "mine.npz", **small())
    monkeypatch.chdir(tmp_path)
    assert rows_of(Arrays(tmp_path / "data", path="mine.npz")) == rows_of(Arrays(small()))
    np.savez(tmp_path / "data/mine.npz", **small(x_train=np.zeros((8, 2))))
    assert Arrays(tmp_path / "data", path="mine.npz")[0].train[:].x.sum() == 0


def test_every_sample_is_in_the_task_of_its_class_under_its_label():
    arrays = small(y_train=np.array([30, 10, -5, 20, 30, 10, -5, 20]), y_test=np.array([20, -5, 10, 30]))
    stream = Arrays(arrays, classes_per_task=3)
    assert stream.classes == (-5, 10, 20, 30)
    assert [len(task.classes) for task in stream] == [3, 1]
    for task in stream:
        for side, samples in (("train", task.train), ("test", task.test)):
            for row, y, x in zip(samples.rows.tolist(), samples.y.tolist(), samples[:].x, strict=True):
                assert arrays[f"y_{side}"][row] == stream.classes[y]
                assert x.tolist() == arrays[f"x_{side}"][row].tolist()


def test_given_tasks_hold_the_samples_that_carry_their_number():
    given = {"task_train": np.array([7, 7, 2, 2, 7, 2, 2, 7]), "task_test": np.array([2, 7, 7, 2])}
    stream = Arrays(small() | given, split="given")
    assert [task.train.rows.tolist() for task in stream] == [[2, 3, 5, 6], [0, 1, 4, 7]]
    assert [task.test.rows.tolist() for task in stream] == [[0, 3], [1, 2]]
    assert [task.classes for task in stream] == [(1, 2, 3), (0, 1, 3)]


def test_parts_in_order_keep_the_order_of_rows_whatever_the_seed():
    stream = Arrays(small(), split="order", parts=3)
    assert [task.train.rows.tolist() for task in stream] == [[0, 1], [2, 3, 4], [5, 6, 7]]
    batches = [stream[2].batch(step, size=2, seed=9) for step in range(2)]
    assert torch.cat([batch.x for batch in batches]).tolist() == np.arange(10.0, 16.0).reshape(3, 2).tolist()


@pytest.mark.parametrize(
    ("given", "kept", "scale"),
    [
        ("uint8", torch.uint8, 1 / 255),
        ("float16", torch.float16, 1.0),
        (">f8", torch.float32, 1.0),
        ("int64", torch.float32, 1.0),
        ("bool", torch.float32, 1.0),
    ],
)
def test_bytes_and_halves_stay_and_other_numbers_become_float32(given: str, kept: torch.dtype, scale: float):
    x = (np.arange(24).reshape(12, 2) % 2).astype(given)
    stream = Arrays(small(x_train=x[:8], x_test=x[8:]))
    assert stream[0].train[:].x.dtype == kept
    assert stream.scale == scale
    assert stream[0].train[:].x.tolist() == x[:8][stream[0].train.rows.numpy()].tolist()


def test_channels_that_come_last_are_put_first():
    x = np.arange(12 * 4 * 5 * 3, dtype=np.uint8).reshape(12, 4, 5, 3)
    stream = Arrays(small(x_train=x[:8], x_test=x[8:]), channels="last")
    assert stream.input_shape == (3, 4, 5)
    row = int(stream[0].train.rows[1])
    assert stream[0].train[1:2].x[0].tolist() == x[row].transpose(2, 0, 1).tolist()


@pytest.mark.parametrize(
    ("changes", "options", "message"),
    [
        ({"x_train": np.zeros((7, 2))}, {}, "x_train has 7 rows and y_train 8"),
        ({"x_train": np.zeros(8)}, {}, "x_train has the shape (8,), expected (n, …)"),
        ({"x_test": np.zeros((4, 3))}, {}, "samples of (2,) to learn and of (3,) to test"),
        ({"x_train": np.zeros((8, 2), np.uint8)}, {}, "x_train is uint8 and x_test float64, expected one type"),
        ({"x_train": np.full((8, 2), "a")}, {}, "x_train is <U1, expected numbers"),
        ({"y_train": np.zeros(8)}, {}, "y_train is float64(8,), expected a whole number or a text"),
        ({"y_test": np.array([0, 1, 2, 9])}, {}, "label 9 of y_test is nowhere in y_train"),
        ({"y_test": np.array([0, 1, 2, 2])}, {}, "no sample of class 3 in y_test"),
        ({"y_test": np.full(4, "a")}, {}, "expected one kind of label"),
        ({}, {"classes_per_task": 5}, "classes_per_task=5, but there are 4 classes"),
        ({}, {"n_tuning": 2}, "n_tuning=2 tasks of 2 classes leave none of 4 classes"),
        ({}, {"split": "order", "parts": 5}, "parts=5, but the arrays have 4 rows"),
        ({}, {"split": "given"}, "no array 'task_train' among x_train, y_train, x_test, y_test"),
        ({}, {"split": "class"}, "split='class': expected 'classes', 'given' or 'order'"),
        (
            {"task_train": np.arange(8) // 4, "task_test": np.arange(4)},
            {"split": "given"},
            "no sample of task 2 in task_train",
        ),
    ],
)
def test_data_that_does_not_fit_is_one_sentence(changes: Any, options: Any, message: str):
    with pytest.raises(ValueError, match=re.escape(message)):
        Arrays(small(**changes), **options)


def test_a_number_that_is_none_is_named_by_its_row():
    x = np.zeros((9000, 2))
    x[5000, 1] = np.nan
    with pytest.raises(BrokenData, match="x_train row 5000 has a number that is infinite or none"):
        Arrays(small(x_train=x, y_train=np.arange(9000) % 4))


def test_objects_are_never_unpickled(tmp_path: Path):
    evil = np.empty(8, object)
    np.savez(tmp_path / "evil.npz", **small(y_train=evil))
    with pytest.raises(BrokenData, match=r"evil\.npz: found y_train\.npy of objects"):
        Arrays(tmp_path, path="evil.npz")
    (tmp_path / "evil").mkdir()
    for name, array in small(y_train=evil).items():
        np.save(tmp_path / f"evil/{name}.npy", array, allow_pickle=True)
    with pytest.raises(BrokenData, match=r"y_train\.npy: found .*, expected an array"):
        Arrays(tmp_path, path="evil")


@pytest.mark.parametrize(
    ("path", "error", "message"),
    [
        ("", ValueError, "no path is given: say where your data is, as in --set stream.path=my_data.npz"),
        ("nowhere.npz", MissingData, "nothing at .*nowhere.npz, nor at .*nowhere.npz: give the path"),
        ("half.npz", BrokenData, "half.npz: no array 'x_test', expected x_train, y_train, x_test, y_test"),
        ("half", MissingData, "no x_train.npy in .*half: save each array there with numpy.save"),
        ("text.npz", BrokenData, "text.npz: found .*, expected an npz archive"),
    ],
)
def test_a_file_that_will_not_do_is_named_with_what_to_do(tmp_path: Path, path: str, error: type, message: str):
    arrays = small()
    np.savez(tmp_path / "half.npz", x_train=arrays["x_train"], y_train=arrays["y_train"])
    (tmp_path / "half").mkdir()
    (tmp_path / "text.npz").write_text("x_train = 1\n")
    with pytest.raises(error, match=message):
        Arrays(tmp_path, path=path)


def test_rows_of_a_folder_are_mapped_and_not_loaded(tmp_path: Path):
    (tmp_path / "mine").mkdir()
    for name, array in small().items():
        np.save(tmp_path / f"mine/{name}.npy", array)
    stream = Arrays(tmp_path, path="mine")
    content = io.BytesIO()
    np.save(content, np.full((8, 2), 5.0))
    with (tmp_path / "mine/x_train.npy").open("r+b") as file:
        file.write(content.getvalue())
    assert stream[0].train[:].x.tolist() == [[5.0, 5.0]] * len(stream[0].train)
