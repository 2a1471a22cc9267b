from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from holdfast.streams._base import Stream, Task, all_rows
from holdfast.streams.joint import Joint


class Tens(Stream):
    """Task t has the inputs 10 t, 10 t + 1, … and the class t; each task has a reader of its own."""

    n_classes = 9
    input_shape = (1,)
    scale = 0.5
    mean = 3.0
    per_class_accuracy = True

    def __init__(self, *lengths: int) -> None:
        super().__init__([self._task(number, n) for number, n in enumerate(lengths)])

    @staticmethod
    def _task(number: int, n: int) -> Task:
        y = torch.full((n,), number)
        samples = all_rows(lambda rows: rows[:, None] + 10 * number, y).of_task(number)
        return Task(number, (number,), samples, samples)


@given(st.data())
def test_any_mixed_index_is_read_in_its_order(data: st.DataObject):
    lengths = data.draw(st.lists(st.integers(0, 5), min_size=1, max_size=5).filter(any))
    index = data.draw(st.lists(st.integers(0, sum(lengths) - 1), max_size=20))
    expected = [(10 * t + i, t) for t, n in enumerate(lengths) for i in range(n)]
    batch = Joint(Tens(*lengths))[0].train[torch.tensor(index, dtype=torch.long)]
    assert batch.x.shape == (len(index), 1)
    assert list(zip(batch.x[:, 0].tolist(), batch.task.tolist(), strict=True)) == [expected[i] for i in index]
    assert torch.equal(batch.y, batch.task)


def test_there_is_one_task_with_all_samples_mixed():
    joint = Joint(Tens(5, 5, 5))
    assert len(joint) == 1
    assert joint[0].classes == (0, 1, 2)
    batches = [joint[0].batch(step, size=5, seed=1) for step in range(3)]
    assert all(len(set(batch.task.tolist())) > 1 for batch in batches)
    assert sorted(torch.cat([batch.x for batch in batches]).flatten().tolist()) == [
        *range(5),
        *range(10, 15),
        *range(20, 25),
    ]


def test_all_tasks_are_made_known_at_once_and_tested_one_by_one():
    stream = Tens(2, 3)
    joint = Joint(stream)
    assert joint.announced(0) == stream.tasks
    assert joint.tests(1) == stream.tasks
    assert joint.tests(0) == []
    assert len(joint[0].test) == 5


def test_what_the_model_has_to_know_is_as_in_the_stream():
    joint = Joint(Tens(2, 3))
    assert (joint.n_classes, joint.input_shape, joint.scale, joint.mean) == (9, (1,), 0.5, 3.0)
    assert joint.per_class_accuracy
