"""Batches of rows like those of Hugging Face datasets, and of real data sets where the package is installed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from holdfast import Learner
from holdfast.adapters.hugging_face import batches, label_names
from holdfast.tables import TableLearner


def rows(n: int = 25) -> list[dict[str, Any]]:
    rng = np.random.default_rng(0)
    return [
        {
            "size": float(i),
            "count": i % 3,
            "vector": (rng.normal(size=4) + 8 * (i % 2) - 4).tolist(),
            "picture": Image.fromarray(rng.integers(0, 256, (6, 5, 3), dtype=np.uint8)),
            "text": "good" if i % 2 else "bad",
            "label": i % 2,
        }
        for i in range(n)
    ]


def test_the_last_batch_is_smaller_and_the_order_is_that_of_the_data_set() -> None:
    found = list(batches(rows(), "vector", "label", size=10))
    assert [len(x) for x, _ in found] == [10, 10, 5]
    assert torch.cat([y for _, y in found]).tolist() == [i % 2 for i in range(25)]
    assert found[0][0].dtype == torch.float32


def test_pictures_become_bytes_channels_first() -> None:
    given = rows(3)
    given[1]["picture"] = given[1]["picture"].convert("RGBA")
    ((x, _),) = batches(given, "picture", "label")
    assert (x.dtype, x.shape) == (torch.uint8, (3, 3, 6, 5))
    assert torch.equal(x[0].permute(1, 2, 0), torch.from_numpy(np.array(given[0]["picture"])))
    grey = [{"picture": row["picture"].convert("L"), "label": 0} for row in given]
    ((x, _),) = batches(grey, "picture", "label")
    assert x.shape == (3, 1, 6, 5)


def test_one_column_of_numbers_or_several_become_vectors() -> None:
    ((x, _),) = batches(rows(2), "size", "label")
    assert x.tolist() == [[0.0], [1.0]]
    ((x, _),) = batches(rows(2), ["size", "count"], "label")
    assert x.tolist() == [[0.0, 0.0], [1.0, 1.0]]


def test_texts_need_an_encoder_which_gets_all_values_of_a_batch() -> None:
    asked: list[list[str]] = []

    def encode(texts: list[str]) -> torch.Tensor:
        asked.append(texts)
        return torch.tensor([[float(len(text))] for text in texts])

    found = list(batches(rows(4), "text", "label", size=3, encode=encode))
    assert asked == [["bad", "good", "bad"], ["good"]]
    assert found[0][0].tolist() == [[3.0], [4.0], [3.0]]
    with pytest.raises(ValueError, match="column 'text' has values like 'bad': give encode"):
        list(batches(rows(4), "text", "label"))


def test_labels_that_are_texts_stay_texts() -> None:
    ((_, y),) = batches(rows(2), "size", "text")
    assert y == ["bad", "good"]


def test_nothing_is_read_before_its_batch() -> None:
    read: list[int] = []

    def stream() -> Any:
        for i in range(100):
            read.append(i)
            yield {"x": [float(i)], "y": 0}

    found = batches(stream(), "x", "y", size=4)
    next(found)
    assert read == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("inputs", "label", "size", "message"),
    [
        ("nothing", "label", 10, "no column 'nothing', only 'size'"),
        ("size", "nothing", 10, "no column 'nothing'"),
        ([], "label", 10, "no columns of inputs"),
        ("size", "label", 0, "size is 0"),
    ],
)
def test_what_is_not_there_is_named(inputs: Any, label: str, size: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        list(batches(rows(3), inputs, label, size=size))


def test_values_of_several_shapes_are_refused() -> None:
    given = [{"x": [1.0], "y": 0}, {"x": [1.0, 2.0], "y": 0}]
    with pytest.raises(ValueError, match=r"shapes \[\(1,\), \(2,\)\]"):
        list(batches(given, "x", "y"))


def test_a_learner_learns_them() -> None:
    learner = Learner("ncm", backbone="identity")
    for x, y in batches(rows(), "vector", "label"):
        learner.observe(x, y)
    ((x, y),) = batches(rows(25), "vector", "label", size=25)
    assert (learner.predict(x) == y).all()


# The package itself

datasets = pytest.mark.skipif("not __import__('importlib.util').util.find_spec('datasets')", reason="no datasets here")


def data_set() -> Any:
    import datasets as package

    features = package.Features(
        {
            "picture": package.Image(),
            "vector": package.Sequence(package.Value("float64"), length=4),
            "size": package.Value("float32"),
            "label": package.ClassLabel(names=["bad", "good"]),
        }
    )
    columns = {name: [row[name] for row in rows()] for name in features}
    return package.Dataset.from_dict(columns, features=features)


@datasets
@pytest.mark.parametrize("streamed", [False, True])
def test_a_data_set_of_the_package_gives_what_its_rows_give(streamed: bool) -> None:
    made = data_set()
    assert label_names(made, "label") == ["bad", "good"]
    given = made.to_iterable_dataset() if streamed else made
    for column in ("vector", "picture", "size"):
        for (x, y), (by_row, label) in zip(
            batches(given, column, "label"), batches(rows(), column, "label"), strict=True
        ):
            assert torch.equal(x, by_row)
            assert torch.equal(y, label)


@datasets
def test_a_learner_of_tables_takes_a_data_set_of_the_package() -> None:
    learner = TableLearner("label", method="ncm", backbone="identity")
    assert learner.learn(data_set().select_columns(["size", "label"])).n == 25
