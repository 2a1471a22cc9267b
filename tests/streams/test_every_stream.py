"""What holds for all streams that read a data set, on small made-up copies of the data."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch

from holdfast import streams
from holdfast.checks.streams import (
    check_batches,
    check_classes,
    check_copies,
    check_index,
    check_inputs,
    check_no_overlap,
    check_numbers,
)
from holdfast.core.batch import Batch
from holdfast.data.places import MissingData
from holdfast.streams._base import Stream
from holdfast.streams.arrays import Arrays
from holdfast.streams.folder import Folder
from holdfast.streams.joint import Joint
from holdfast.streams.permuted_digits import PermutedDigits
from holdfast.streams.permuted_mnist import PermutedMnist
from holdfast.streams.split_awa import SplitAwa
from holdfast.streams.split_cifar10 import SplitCifar10
from holdfast.streams.split_cifar100 import SplitCifar100
from holdfast.streams.split_cub import SplitCub
from holdfast.streams.split_digits import SplitDigits

BUILDERS: dict[str, Callable[..., Stream]] = {
    "permuted_mnist": PermutedMnist,
    "split_cifar100": SplitCifar100,
    "split_cifar10": SplitCifar10,
    "split_cub": partial(SplitCub, size=6),
    "split_awa": partial(SplitAwa, size=6),
    "split_awa (features)": partial(SplitAwa, source="features"),
    "permuted_digits": PermutedDigits,
    "split_digits": SplitDigits,
    "arrays": partial(Arrays, path="own/arrays.npz", n_tuning=3),
    "arrays (given)": partial(Arrays, path="own/arrays", split="given", n_tuning=3),
    "arrays (order)": partial(Arrays, path="own/arrays", split="order", parts=20, n_tuning=3),
    "folder": partial(Folder, path="own/split", size=6, n_tuning=3),
    "folder (share)": partial(Folder, path="own/whole", size=6, test_share=0.3, n_tuning=3),
}
STATED = ("arrays (given)", "arrays (order)")  # the data says which samples make a task, not the seed
OWN = ("arrays", "folder")  # no publisher offers a user's own data
with_tuning = pytest.mark.parametrize(
    "name", [name for name in BUILDERS if name not in ("split_digits", "split_cifar10")]
)
with_data = pytest.mark.parametrize(
    "name", [name for name in BUILDERS if "digits" not in name and not name.startswith(OWN)]
)


@pytest.fixture(params=list(BUILDERS))
def build(request: pytest.FixtureRequest, made_up_data: Path) -> Callable[..., Stream]:
    return partial(BUILDERS[request.param], made_up_data)


def content(stream: Stream) -> list[tuple[list[int], list[int], list[float]]]:
    """The rows, classes and first input of each task."""
    return [(t.train.rows.tolist(), t.train.y.tolist(), t.train[:1].x.flatten().tolist()) for t in stream]


def test_every_public_file_is_tested_here_and_has_one_public_class():
    files = {path.stem for path in Path(*streams.__path__).glob("[!_]*.py")}
    wrapped = {"joint", "features", "gaussian", "i_blurry", "si_blurry", "recurring", "long_tail"}  # see test_wrapped
    assert files == {name.split()[0] for name in BUILDERS} | wrapped
    for file in files:
        module = __import__(f"holdfast.streams.{file}", fromlist=[file])
        public = [
            name
            for name, member in inspect.getmembers(module, inspect.isclass)
            if member.__module__ == module.__name__ and not name.startswith("_")
        ]
        assert len(public) == 1, file


def test_tasks_are_numbered_from_0_and_so_are_their_samples(build: Callable[..., Stream]):
    stream = build()
    check_numbers(stream)
    for task in stream:
        for samples in (task.train, task.test):
            assert set(samples.y.tolist()) == set(task.classes)


def test_inputs_have_the_shape_that_the_stream_says(build: Callable[..., Stream]):
    check_inputs(build())


def test_classes_have_room_in_the_head(build: Callable[..., Stream]):
    check_classes(build())


def test_what_is_read_may_be_written_to(build: Callable[..., Stream]):
    check_copies(build())


def test_any_index_gives_the_same_samples_as_reading_one_by_one(build: Callable[..., Stream]):
    check_index(build())


def test_the_batches_of_every_task_cover_its_rows_exactly_once(build: Callable[..., Stream]):
    check_batches(build())


def test_training_and_testing_share_no_sample(build: Callable[..., Stream]):
    check_no_overlap(build())


@pytest.mark.parametrize("name", BUILDERS)
def test_one_seed_makes_one_stream_and_another_seed_another(name: str, made_up_data: Path):
    build = partial(BUILDERS[name], made_up_data)
    assert content(build(seed=1)) == content(build(seed=1))
    assert (content(build(seed=1)) == content(build(seed=2))) == (name in STATED)


def test_fewer_tasks_are_the_first_of_all_tasks(build: Callable[..., Stream]):
    assert content(build(n_tasks=2)) == content(build())[:2]


def test_fewer_samples_are_some_of_the_task_and_the_test_stays(build: Callable[..., Stream]):
    some, whole = build(samples_per_task=4), build()
    for few, all_of_them in zip(some, whole, strict=True):
        assert len(few.train) == 4
        assert set(few.train.rows.tolist()) < set(all_of_them.train.rows.tolist())
        assert torch.equal(few.test.rows, all_of_them.test.rows)


def test_bad_numbers_are_errors(build: Callable[..., Stream]):
    n = len(build())
    for n_tasks in (0, -1, n + 1):
        with pytest.raises(ValueError, match=f"n_tasks={n_tasks}, but the stream has {n}"):
            build(n_tasks=n_tasks)
    for samples_per_task in (0, -1, 10**6):
        with pytest.raises(ValueError, match=f"samples_per_task={samples_per_task}, but task 0 has"):
            build(samples_per_task=samples_per_task)
    with pytest.raises(ValueError, match="tasks='test': expected 'tuning', 'report' or 'all'"):
        build(tasks="test")


def test_all_tasks_are_made_known_and_tested_in_their_turn(build: Callable[..., Stream]):
    stream = build(n_tasks=3)
    assert stream.announced(1) == [stream[1]]
    assert stream.tests(2) == [stream[0], stream[1]]


@with_tuning
def test_three_tasks_are_held_out_for_tuning(name: str, made_up_data: Path):
    tuning, report, both = (BUILDERS[name](made_up_data, tasks=subset) for subset in ("tuning", "report", "all"))
    assert len(tuning) == 3
    assert len(report) == (10 if name == "permuted_digits" else 17)
    assert [task.id for task in both] == list(range(len(tuning) + len(report)))
    assert [rows for rows, _, _ in content(both)] == [rows for rows, _, _ in content(tuning) + content(report)]
    firsts = [x for _, _, x in content(both)]
    assert firsts == [x for _, _, x in content(tuning) + content(report)]


@with_data
def test_missing_data_is_one_sentence_that_says_what_to_do(name: str, tmp_path: Path):
    with pytest.raises(MissingData, match=rf"^no \S+ in {tmp_path}: .*(data download|copy it there).*or give"):
        BUILDERS[name](tmp_path)


def test_joint_keeps_the_input_class_and_task_of_every_sample(build: Callable[..., Stream]):
    stream = build(n_tasks=3, samples_per_task=4)
    joint = Joint(stream)[0]
    order = torch.randperm(12, generator=torch.Generator().manual_seed(0))
    batch = joint.train[order]
    for i, number in enumerate(order.tolist()):
        own: Batch = stream[number // 4].train[number % 4 : number % 4 + 1]
        assert torch.equal(batch.x[i], own.x[0])
        assert batch.x.dtype == own.x.dtype
        assert (batch.y[i], batch.task[i]) == (own.y[0], own.task[0])
