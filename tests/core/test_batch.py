import pytest
import torch

from holdfast.core.batch import Batch, join


def numbered(*numbers: int) -> Batch:
    """A batch whose sample i has y = i, and x, task and the extra `note` to be told from it."""
    y = torch.tensor(numbers, dtype=torch.int64)
    return Batch(torch.stack([y, y], dim=1) + 100, y, y + 200, {"note": y + 300})


def columns(batch: Batch) -> list[list[int]]:
    assert torch.equal(batch.x[:, 0], batch.x[:, 1])
    note = batch.extra.get("note")
    return [c.tolist() for c in (batch.x[:, 0], batch.y, batch.task) + ((note,) if note is not None else ())]


@pytest.mark.parametrize(
    ("index", "expected"),
    [
        (slice(1, 3), [6, 7]),
        (slice(0), []),
        ([3, 0], [8, 5]),
        (torch.tensor([2, 2]), [7, 7]),
        (torch.tensor([True, False, False, True]), [5, 8]),
    ],
)
def test_indexing_takes_everything_of_the_same_samples(index, expected):
    assert columns(numbered(5, 6, 7, 8)[index]) == columns(numbered(*expected))


def test_the_length_is_the_number_of_samples():
    assert len(numbered(5, 6, 7)) == 3
    assert len(numbered()) == 0


def test_samples_come_one_by_one_and_in_order():
    samples = list(numbered(5, 6).samples())
    assert [len(sample) for sample in samples] == [1, 1]
    assert [columns(sample) for sample in samples] == [columns(numbered(5)), columns(numbered(6))]


def test_an_extra_is_put_beside_the_samples_of_a_new_batch():
    batch = numbered(5, 6)
    marked = batch.with_extra(mark=torch.tensor([1, 2]))
    assert set(marked.extra) == {"note", "mark"}
    assert marked[[1]].extra["mark"].tolist() == [2]
    assert set(batch.extra) == {"note"}


def test_an_extra_of_the_same_name_is_replaced():
    assert numbered(5).with_extra(note=torch.tensor([1])).extra["note"].tolist() == [1]


def test_joining_keeps_the_order():
    joined = join([numbered(5, 6), numbered(), numbered(1), numbered(9, 2)])
    assert columns(joined) == columns(numbered(5, 6, 1, 9, 2))


def test_joining_keeps_the_extras_that_all_have():
    marked = numbered(5).with_extra(mark=torch.tensor([1]))
    assert set(join([marked, numbered(6)]).extra) == {"note"}
    assert set(join([marked, marked]).extra) == {"note", "mark"}


def test_a_batch_moves_to_a_device_with_all_its_columns():
    moved = numbered(5, 6).to(torch.device("meta"))
    assert {column.device.type for column in (moved.x, moved.y, moved.task, moved.extra["note"])} == {"meta"}
