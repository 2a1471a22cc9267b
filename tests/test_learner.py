from __future__ import annotations

import copy
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from holdfast import Learner, load_learner, loading
from holdfast.core.batch import Batch
from holdfast.core.checkpoint import CorruptCheckpoint, write_checkpoint
from holdfast.core.classes import MAX_TASKS, SETTINGS, Setting
from holdfast.core.model import PREDICT_SIZE
from holdfast.methods._base import Diverged, Method
from holdfast.parts import names
from tests.support.largest import Largest
from tests.support.same import assert_same
from tests.support.trees import compact

BACKBONE = {"name": "mlp", "hidden": [5]}
N_INPUTS = 4


def small(method: str = "er", **options: Any) -> Learner:
    return Learner(method, **{"backbone": BACKBONE, "memory": 12, "replay_size": 3} | options)


def finetune(**options: Any) -> Learner:
    return Learner("finetune", **{"backbone": BACKBONE} | options)


def inputs(n: int = 4, *, seed: int = 0) -> Tensor:
    """Multiples of 1/8, so that floats of any length hold them."""
    rng = torch.Generator().manual_seed(seed)
    return torch.randint(-16, 17, (n, N_INPUTS), generator=rng) / 8


def taught(learner: Learner, n_batches: int = 3, *, start: int = 0) -> Learner:
    """The learner after batches with new classes in each, of a new task every second batch."""
    for i in range(start, start + n_batches):
        y = [i % 5, (i + 1) % 5, 0, i % 5]
        learner.observe(inputs(seed=i), y, None if learner.settings.setting == "free" else i // 2)
    return learner


def state_of(learner: Learner) -> dict[str, Any]:
    """A copy of all that a learner is."""
    return compact(learner.state_dict())


def snapshot(learner: Learner) -> dict[str, Any]:
    """The state of a learner and torch's global generator."""
    return {"learner": state_of(learner), "global_rng": torch.get_rng_state()}


@contextmanager
def unchanged(learner: Learner) -> Iterator[None]:
    before = snapshot(learner)
    yield
    assert_same(snapshot(learner), before)


# Inputs that it takes.


def batches_as(convert_x: Callable[[Tensor], Any], convert_y: Callable[[Tensor], Any]) -> Learner:
    learner = small(setting="task")
    for i in range(3):
        learner.observe(convert_x(inputs(seed=i)), convert_y(torch.tensor([0, 1, i, 1])), task=i)
    return learner


@pytest.mark.parametrize(
    ("convert_x", "convert_y"),
    [
        (Tensor.numpy, Tensor.numpy),
        (Tensor.tolist, Tensor.tolist),
        (Tensor.double, Tensor.int),
        (lambda x: x.double().numpy(), lambda y: y.numpy().astype(np.uint8)),
        (lambda x: x.clone().requires_grad_(), Tensor.float),
        (list, list),
        (lambda x: [row.numpy() for row in x], lambda y: [float(label) for label in y]),
    ],
    ids=["arrays", "lists", "other dtypes", "other dtypes of arrays", "with gradient", "tensors", "mixed"],
)
def test_tensors_arrays_and_lists_are_learned_alike(convert_x: Callable[..., Any], convert_y: Callable[..., Any]):
    expected = batches_as(lambda x: x, lambda y: y)
    learner = batches_as(convert_x, convert_y)
    assert_same(state_of(learner), state_of(expected))
    x = inputs(seed=9)
    assert torch.equal(learner.scores(convert_x(x), task=1), expected.scores(x, task=1))


@pytest.mark.parametrize("task", [2, [2, 2, 2, 2], np.full(4, 2), torch.full((4,), 2), np.int64(2), torch.tensor(2)])
def test_a_task_is_one_number_or_one_for_each_sample(task: Any):
    learner, expected = small(setting="task"), small(setting="task")
    learner.observe(inputs(), [0, 1, 0, 1], task)
    expected.observe(inputs(), [0, 1, 0, 1], 2)
    assert_same(state_of(learner), state_of(expected))
    assert torch.equal(learner.predict(inputs(seed=1), task), expected.predict(inputs(seed=1), 2))


def test_an_array_that_may_not_be_written_is_taken():
    x = inputs().numpy()
    x.flags.writeable = False
    assert_same(state_of(taught_with(x)), state_of(taught_with(inputs())))


def taught_with(x: Any) -> Learner:
    learner = small()
    learner.observe(x, [0, 1, 0, 1])
    return learner


def test_what_was_given_may_be_written_over_afterwards():
    x, y = inputs().numpy(), np.array([0, 1, 0, 1])
    learner = small()
    learner.observe(x, y)
    with unchanged(learner):
        x[:], y[:] = 7, 7


def test_bytes_are_scaled_to_one_and_kept_as_bytes():
    pixels = torch.tensor([[0, 51, 102, 255], [255, 0, 0, 51]], dtype=torch.uint8)
    by_bytes, by_floats = small(), small(standardise=False)
    by_bytes.observe(pixels, [0, 1])
    by_floats.observe(pixels * (1 / 255), [0, 1])
    assert by_bytes.memory.x.dtype == torch.uint8
    assert by_floats.memory.nbytes - by_bytes.memory.nbytes == 12 * N_INPUTS * 3
    assert torch.equal(by_bytes.scores(pixels), by_floats.scores(pixels * (1 / 255)))


def test_a_scale_and_a_mean_that_are_given_are_used():
    pixels = torch.tensor([[0, 1, 2, 3], [4, 5, 6, 7]], dtype=torch.uint8)
    mean = torch.tensor([1.0, 0.0, 0.0, 2.0])
    by_bytes, by_floats = small(scale=0.5, mean=mean), small(standardise=False)
    by_bytes.observe(pixels, [0, 1])
    by_floats.observe(pixels * 0.5 - mean, [0, 1])
    assert torch.equal(by_bytes.scores(pixels), by_floats.scores(pixels * 0.5 - mean))


@pytest.mark.parametrize("input_shape", [None, (N_INPUTS,), [N_INPUTS]])
def test_the_shape_of_inputs_may_be_given_or_taken_from_the_first_batch(input_shape: Any):
    learner = taught(small(input_shape=input_shape))
    assert learner.input_shape == (N_INPUTS,)
    assert_same(state_of(learner), state_of(taught(small())))


def test_two_learners_with_one_seed_are_equal_and_leave_the_global_generator_alone():
    before = torch.get_rng_state()
    assert_same(state_of(taught(small(seed=1))), state_of(taught(small(seed=1))))
    assert not torch.equal(taught(small(seed=2)).scores(inputs()), taught(small(seed=1)).scores(inputs()))
    assert torch.equal(torch.get_rng_state(), before)


# Inputs that it refuses.

X, Y = inputs().tolist(), [0, 1, 0, 1]


def with_value(value: float) -> Tensor:
    x = inputs()
    x[2, 1] = value
    return x


BAD_INPUTS: dict[str, tuple[Any, Any, str]] = {
    "no batch dimension": (X[0], [1], r"x has shape \(4,\).*(add a batch dimension|one row a sample)"),
    "a number": (1.0, [1], r"x has shape \(\).*"),
    "no sample": (np.zeros((0, 4), np.float32), [], r"x has shape \(0, 4\), which holds nothing: give at least one"),
    "nothing at all": ([], [], r"x has shape \(0,\)"),
    "NaN": (with_value(torch.nan), Y, r"x has NaN, infinite or absurdly large numbers in rows 2: drop"),
    "infinite": (
        with_value(-torch.inf),
        Y,
        r"x has NaN, infinite or absurdly large numbers in rows 2: drop",
    ),
    "too large to be squared": (with_value(-1e16), Y, r"absurdly large numbers in rows 2: drop or mend them"),
    "too large for a float": (
        with_value(0).double() + 1e300,
        Y,
        r"x has NaN, .* numbers in rows 0, 1, 2, 3",
    ),
    "whole numbers": (np.ones((4, 4), np.int64), Y, r"x has dtype int64: give bytes \(uint8\) or floats"),
    "yes and no": (np.ones((4, 4), bool), Y, r"x has dtype bool: give bytes \(uint8\) or floats"),
    "complex numbers": (torch.ones(4, 4, dtype=torch.complex64), Y, r"x has dtype complex64: give bytes"),
    "text": ("a cat", Y, r"x cannot be read as numbers"),
    "texts": ([["a", "b", "c", "d"]] * 4, Y, r"x cannot be read as numbers"),
    "rows of different lengths": ([[1.0], [1.0, 2.0]], [0, 1], r"x cannot be read as numbers"),
    "None": (None, Y, r"x cannot be read as numbers"),
    "a dict": ({"x": 1}, Y, r"x cannot be read as numbers"),
    "a label that is not whole": (X, [0, 1.5, 1, 0], r"y is not whole in rows 1: give whole numbers"),
    "a label that is NaN": (X, [0, np.nan, 1, 0], r"y is not whole in rows 1: give whole numbers"),
    "a label that is infinite": (X, [0, 1, np.inf, 0], r"y is not whole in rows 2: give whole numbers"),
    "an array of yes and no": (X, np.array([True, False, True, True]), r"y has dtype bool: give whole numbers"),
    "a text for labels": (X, "cats", r"y is the text 'cats': give one label a sample"),
    "too few texts": (X, ["cat", "dog"], r"y has shape \(2,\) for 4 samples"),
    "labels that are dicts": (X, [{"a": 1}] * 4, r"a label is a dict, which cannot be saved"),
    "no labels": (X, None, r"y cannot be read as numbers"),
    "too few labels": (X, [0, 1, 0], r"y has shape \(3,\) for 4 samples: give \(4,\), one number a sample"),
    "too many labels": (X, [0] * 5, r"y has shape \(5,\) for 4 samples"),
    "one label for all": (X, 1, r"y has shape \(\) for 4 samples"),
    "labels one-hot": (X, np.eye(4), r"y has shape \(4, 4\) for 4 samples"),
}
BAD_TASKS: dict[str, tuple[list[Setting], Any, str]] = {
    "given in free": (["free"], 1, r"observe got a task, but the setting 'free' does not know it then: leave it out"),
    "missing": (["task", "class", "domain"], None, r"observe got no task, but the setting '\w+' needs it: pass task=…"),
    "negative": (["task", "class", "domain"], -1, r"task -1 to -1: number the tasks from 0 to 99999"),
    "negative for one": (["task"], [0, 1, -5, 0], r"task -5 to 1: number the tasks from 0"),
    "huge": (["task", "domain"], MAX_TASKS, r"task 100000 to 100000: number the tasks from 0 to 99999"),
    "not whole": (["task"], [0.5] * 4, r"task is not whole in rows 0, 1, 2, 3"),
    "yes": (["task"], True, r"task has dtype bool: give whole numbers"),
    "text": (["class"], "first", r"task cannot be read as numbers"),
    "too few": (["class"], [1, 1], r"task has shape \(2,\) for 4 samples: give \(4,\), one number a sample"),
}
at_first_and_later = pytest.mark.parametrize("n_before", [0, 3], ids=["at first", "later"])


@at_first_and_later
@pytest.mark.parametrize("kind", BAD_INPUTS)
def test_a_bad_batch_is_refused_and_changes_nothing(kind: str, n_before: int):
    x, y, message = BAD_INPUTS[kind]
    learner = taught(small(momentum=0.9), n_before)
    with unchanged(learner), pytest.raises(ValueError, match=message):
        learner.observe(x, y)


@at_first_and_later
@pytest.mark.parametrize(
    ("setting", "kind"), [(setting, kind) for kind, (settings, _, _) in BAD_TASKS.items() for setting in settings]
)
def test_a_bad_task_is_refused_and_changes_nothing(setting: Setting, kind: str, n_before: int):
    learner = taught(small(setting=setting), n_before)
    with unchanged(learner), pytest.raises(ValueError, match=BAD_TASKS[kind][2]):
        learner.observe(X, Y, BAD_TASKS[kind][1])


@at_first_and_later
def test_a_label_beyond_a_fixed_head_is_refused_and_changes_nothing(n_before: int):
    learner = taught(small(n_classes=5), n_before)
    for label in (12, 5):
        message = f"label {label}, but the model has room for 5 classes: build it with n_classes={label + 1} or more"
        with unchanged(learner), pytest.raises(ValueError, match=message):
            learner.observe(X, [0, label, 4, 1])


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (np.zeros((4, 5), np.float32), r"x has shape \(4, 5\), but this learner takes \(n, 4\): reshape it"),
        (np.zeros((4, 2, 2), np.float32), r"x has shape \(4, 2, 2\), but this learner takes \(n, 4\): reshape it"),
        (np.zeros((4, 4), np.uint8), r"x has dtype uint8, but this learner began with float32: convert it"),
        (torch.zeros(4, 4).half(), r"x has dtype float16, but this learner began with float32: convert it"),
        (np.zeros(4, np.float32), r"x has shape \(4,\), which is one sample: add a batch dimension, as in x\[None\]"),
    ],
)
def test_inputs_unlike_the_first_are_refused_and_change_nothing(x: Any, message: str):
    learner = taught(small())
    for use in (lambda: learner.observe(x, Y), lambda: learner.predict(x), lambda: learner.scores(x)):
        with unchanged(learner), pytest.raises(ValueError, match=message):
            use()


@pytest.mark.parametrize("kind", [k for k, (_, y, message) in BAD_INPUTS.items() if message.startswith("x ")])
def test_a_prediction_for_bad_inputs_is_refused_and_changes_nothing(kind: str):
    learner = taught(small())
    with unchanged(learner), pytest.raises(ValueError, match=BAD_INPUTS[kind][2]):
        learner.predict(BAD_INPUTS[kind][0])


def test_a_first_batch_that_the_backbone_does_not_take_is_refused_and_changes_nothing():
    learner = small(backbone="reduced_resnet18")
    pixels = torch.zeros(2, N_INPUTS, dtype=torch.uint8)
    with unchanged(learner), pytest.raises(ValueError, match=r"'reduced_resnet18' takes images .*\(4,\)"):
        learner.observe(pixels, [0, 1])


class WithWidth(nn.Linear):
    """A layer that says how many features it makes, so that nobody has to try."""

    n_features = 5


@pytest.mark.parametrize("layer", [nn.Linear, WithWidth])
def test_a_first_batch_that_a_backbone_of_ones_own_does_not_take_is_refused_and_changes_nothing(
    layer: type[nn.Linear],
):
    learner = small(backbone=layer(7, 5))
    with unchanged(learner), pytest.raises(ValueError, match=r"\(4,\)"):
        learner.observe(X, Y)


@pytest.mark.parametrize(
    ("memory", "error", "message"),
    [
        ("10 B", ValueError, r"a memory of 10 bytes holds no sample of 32 bytes"),
        (10**15, MemoryError, r"on a machine that has .*: give a smaller capacity"),
    ],
)
def test_a_memory_that_cannot_be_is_refused_before_anything_is_learned(
    memory: int | str, error: type[Exception], message: str
):
    learner = small(memory=memory)
    with unchanged(learner), pytest.raises(error, match=message):
        learner.observe(X, Y)


def test_a_loss_that_is_no_number_leaves_everything_alone():
    learner = taught(small(momentum=0.9, recover=False))
    with torch.no_grad():
        learner.method.model.head.weight[0, 0] = torch.nan
    with unchanged(learner), pytest.raises(Diverged, match="lower the learning rate"):
        learner.observe(X, Y)


@pytest.mark.parametrize("options", [{}, {"momentum": 0.9}, {"average": 0.9}], ids=str)
def test_a_step_that_makes_weights_infinite_is_not_kept(options: dict[str, Any]):
    learner = taught(small(lr=0.01, recover=False, standardise=False, **options))
    group = learner.method.optimizer.param_groups[0]
    group["lr"] = 3e38
    with unchanged(learner), pytest.raises(Diverged, match="weights that are NaN or infinite"):
        learner.observe(inputs(seed=5) * 80, Y)


@pytest.mark.parametrize("method", names("methods"))
def test_no_method_predicts_from_scores_that_are_no_numbers(method: str):
    learner = taught(Learner(method, backbone=BACKBONE, memory=12))
    with torch.no_grad():
        for parameter in learner.method.model.parameters():
            parameter.fill_(torch.nan)
    if method == "scr":
        learner.method._means = None
    with pytest.raises(Diverged):
        learner.predict(X)


class Overflowing(nn.Module):
    """Keeps batch statistics, and gives no numbers for inputs that are large."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(N_INPUTS)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.norm(x)
        return torch.where(x > 100, torch.inf, out)


@pytest.mark.parametrize("method", [name for name in names("methods") if name != "mer"])  # which steps sample by sample
def test_nor_does_it_leave_a_trace_in_batch_statistics(method: str):
    learner = taught(Learner(method, backbone=Overflowing(), memory=12, setting="task"))
    before = learner.scores(X, task=0)
    with unchanged(learner), pytest.raises(Diverged):
        learner.observe(with_value(1000.0), Y, task=1)
    assert torch.equal(learner.scores(X, task=0), before)
    assert before.isfinite().any()


@pytest.mark.parametrize("learner", [small(), small(input_shape=(N_INPUTS,))], ids=["no shape", "shape"])
def test_before_anything_was_learned_nothing_is_predicted(learner: Learner):
    for use in (learner.predict, learner.scores):
        with unchanged(learner), pytest.raises(RuntimeError, match=r"nothing was learned yet: call observe\(x, y\)"):
            use(X)


@pytest.mark.parametrize(
    ("setting", "task", "message"),
    [
        ("task", None, r"predict got no task, but the setting 'task' needs it: pass task=…"),
        ("task", 7, r"task 7 was never observed: predict for a task that was"),
        ("task", [0, 1, 0, 3], r"task 3 was never observed: predict for a task that was"),
        ("task", -1, r"task -1 to -1: number the tasks from 0"),
        ("class", 0, r"predict got a task, but the setting 'class' does not know it then: leave it out"),
        ("domain", 0, r"predict got a task, but the setting 'domain' does not know it then: leave it out"),
        ("free", 0, r"predict got a task, but the setting 'free' does not know it then: leave it out"),
    ],
)
def test_a_prediction_for_a_task_that_does_not_fit_is_refused(setting: Setting, task: Any, message: str):
    learner = taught(small(setting=setting))
    with unchanged(learner), pytest.raises(ValueError, match=message):
        learner.predict(X, task)


# Classes and tasks.


def test_the_head_grows_with_the_classes_that_come():
    learner = small()
    widths = []
    for y in ([0, 0], [1, 0], [5, 1]):
        learner.observe(X[:2], y)
        widths.append(learner.scores(X).shape)
    assert widths == [(4, 1), (4, 2), (4, 6)]


def test_a_class_never_seen_is_never_predicted():
    learner = small()
    learner.observe(X, [1, 4, 4, 1])
    scores = learner.scores(inputs(50, seed=5))
    assert scores.isneginf().tolist() == [[True, False, True, True, False]] * 50
    assert set(learner.predict(inputs(50, seed=5)).tolist()) <= {1, 4}


def test_in_the_setting_task_only_classes_of_the_task_are_predicted():
    learner = small(setting="task")
    learner.observe(X, [0, 1, 0, 1], task=0)
    learner.observe(X, [2, 3, 2, 3], task=1)
    for task, classes in ((0, {0, 1}), (1, {2, 3})):
        assert set(learner.predict(inputs(50, seed=5), task).tolist()) <= classes
    mixed = learner.predict(X, [0, 1, 1, 0])
    assert [label // 2 for label in mixed.tolist()] == [0, 1, 1, 0]


def test_an_announced_class_competes_before_it_comes():
    learner = small(setting="class", input_shape=(N_INPUTS,))
    learner.announce([0, 3], task=0)
    assert learner.scores(X).isneginf().tolist() == [[False, True, True, False]] * 4


@pytest.mark.parametrize(
    ("classes", "task", "message"),
    [([{}], 0, "a label is a dict"), ([0], None, "got no task"), ([], 0, "empty"), ([0], -1, "number the tasks")],
)
def test_announcing_what_cannot_be_is_refused_and_changes_nothing(classes: list[Any], task: Any, message: str):
    learner = taught(small(setting="class"))
    with unchanged(learner), pytest.raises(ValueError, match=message):
        learner.announce(classes, task)


@dataclass(kw_only=True, eq=False)
class Diary(Method):
    """Writes down what it is told."""

    pages: list[str] = field(default_factory=list)

    def observe(self, batch: Batch) -> float:
        self.pages.append(" ".join(map(str, batch.task.tolist())))
        return 0.0

    def end_task(self, task: int) -> None:
        self.pages.append(f"end {task}")


DIARY = f"{Diary.__module__}:Diary"


@pytest.mark.parametrize(
    ("tasks", "pages"),
    [
        ([0, 0, 1], ["0 0 0 0", "0 0 0 0", "end 0", "1 1 1 1"]),
        ([1, 0], ["1 1 1 1", "end 1", "0 0 0 0"]),
        ([0, [0, 0, 1, 1], 1], ["0 0 0 0", "0 0 1 1", "1 1 1 1"]),
        ([0, [1, 1, 2, 2]], ["0 0 0 0", "1 1 2 2"]),
    ],
)
def test_observing_another_task_ends_the_one_before_and_a_mixed_batch_ends_none(tasks: list[Any], pages: list[str]):
    learner = Learner(DIARY, backbone=BACKBONE, setting="class")
    for task in tasks:
        learner.observe(X, Y, task)
    assert learner.method.pages == pages


def test_a_task_ends_once():
    learner = Learner(DIARY, backbone=BACKBONE, setting="task")
    learner.end_task()
    learner.observe(X, Y, 0)
    learner.end_task()
    learner.end_task()
    learner.observe(X, Y, 1)
    assert learner.method.pages == ["0 0 0 0", "end 0", "1 1 1 1"]


def test_in_a_free_stream_no_task_ends_and_the_method_sees_none():
    learner = Learner(DIARY, backbone=BACKBONE)
    learner.observe(X, Y)
    with unchanged(learner), pytest.raises(ValueError, match="in the setting 'free' tasks are not known"):
        learner.end_task()
    assert learner.method.pages == ["-1 -1 -1 -1"]


# Predicting.


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("make", [small, finetune])
def test_predicting_changes_nothing(make: Callable[..., Learner], setting: Setting):
    learner = taught(make(setting=setting))
    with unchanged(learner):
        learner.predict(X, 0 if setting == "task" else None)
        learner.scores(X, 1 if setting == "task" else None)


def test_predicting_changes_nothing_of_a_network_with_batch_normalisation_and_dropout():
    backbone = nn.Sequential(nn.Linear(N_INPUTS, 5), nn.BatchNorm1d(5), nn.Dropout(0.5))
    learner = taught(finetune(backbone=backbone))
    with unchanged(learner):
        assert torch.equal(learner.scores(X), learner.scores(X))
    assert all(layer.training for layer in backbone)


def test_the_layers_of_a_backbone_of_ones_own_stay_in_their_mode():
    backbone = nn.Sequential(nn.Linear(N_INPUTS, 5), nn.BatchNorm1d(5))
    backbone[1].eval()  # as one does to keep the statistics of a pre-trained network
    learner = finetune(backbone=backbone)
    learner.observe(X, Y)
    learner.predict(X)
    assert not backbone[1].training
    assert backbone[1].running_mean.tolist() == [0] * 5


def test_a_prediction_is_the_class_with_the_highest_score():
    learner = taught(small())
    assert torch.equal(learner.predict(X), learner.scores(X).argmax(dim=1))
    assert not learner.scores(X).requires_grad


def test_many_samples_are_predicted_as_few_at_a_time():
    learner = taught(small(setting="task"))
    x, task = inputs(PREDICT_SIZE + 3, seed=5), torch.arange(PREDICT_SIZE + 3) % 2
    parts = [learner.predict(x[i : i + 100], task[i : i + 100]) for i in range(0, len(x), 100)]
    assert torch.equal(learner.predict(x, task), torch.cat(parts))


# Saving.

KINDS: dict[str, Callable[..., Learner]] = {
    "finetune": finetune,
    "er": small,
    "er, equal shares": lambda **options: small(selection="ring", retrieval="old_tasks", **options),
    "er, several steps": lambda **options: small(steps_per_batch=2, weighting="pooled", **options),
    "memory in bytes": lambda **options: small(memory="600 B", **options),
    "momentum, fixed head": lambda **options: small(momentum=0.9, n_classes=9, **options),
    "adam, cosine head": lambda **options: small(optimizer="adam", lr=0.01, head="cosine", cosine_scale=5.0, **options),
    "shape and mean": lambda **options: small(input_shape=(N_INPUTS,), mean=torch.ones(4), scale=0.5, **options),
}


@settings(max_examples=40, deadline=None)
@given(kind=st.sampled_from(list(KINDS)), setting=st.sampled_from(SETTINGS), saved_after=st.integers(0, 5))
def test_a_saved_learner_goes_on_to_the_same_bits(
    tmp_path_factory: pytest.TempPathFactory, kind: str, setting: Setting, saved_after: int
):
    path = tmp_path_factory.mktemp("saved") / "learner"
    never_saved = taught(KINDS[kind](setting=setting), 6)
    learner = taught(KINDS[kind](setting=setting), saved_after)
    learner.save(path)
    restored = load_learner(path)
    assert_same(state_of(restored), state_of(learner))
    taught(restored, 6 - saved_after, start=saved_after)
    assert_same(state_of(restored), state_of(never_saved))
    task = 1 if setting == "task" else None
    assert torch.equal(restored.scores(X, task), never_saved.scores(X, task))


@pytest.mark.parametrize("n_batches", [0, 2])
@pytest.mark.parametrize("kind", KINDS)
def test_a_state_moves_to_another_learner_and_leaves_the_first_alone(kind: str, n_batches: int):
    learner, other = taught(KINDS[kind](), n_batches), KINDS[kind]()
    other.load_state_dict(learner.state_dict())
    assert_same(state_of(other), state_of(learner))
    with unchanged(learner):
        taught(other, 2, start=n_batches)
    taught(learner, 2, start=n_batches)
    assert_same(state_of(other), state_of(learner))


def test_a_learner_of_bytes_with_a_given_shape_takes_the_state_of_another():
    pixels = torch.tensor([[0, 51, 102, 255]], dtype=torch.uint8)
    learner, other = (small(input_shape=(N_INPUTS,)) for _ in range(2))
    learner.observe(pixels, [1])
    other.load_state_dict(learner.state_dict())
    assert torch.equal(other.scores(pixels), learner.scores(pixels))


def test_going_back_to_before_the_first_batch_forgets_it():
    learner = small()
    before = snapshot(learner)
    taught(learner)
    learner.load_state_dict(before["learner"])
    assert_same(snapshot(learner), before)
    assert_same(state_of(taught(learner)), state_of(taught(small())))


def test_going_back_to_before_the_head_grew_is_going_back():
    learner = taught(small(), 2)
    before = snapshot(learner)
    learner.observe(X, [8, 9, 8, 9])
    learner.load_state_dict(before["learner"])
    assert_same(snapshot(learner), before)


def test_the_state_of_a_learner_with_other_settings_is_refused():
    learner = taught(small())
    with unchanged(learner), pytest.raises(ValueError, match="of a learner with other settings: use load_learner"):
        learner.load_state_dict(taught(small(lr=0.2)).state_dict())


def own_backbone(seed: int = 0) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Sequential(nn.Linear(N_INPUTS, 6), nn.ReLU(), nn.BatchNorm1d(6))


def test_a_backbone_of_ones_own_is_saved_and_goes_on_to_the_same_bits(tmp_path: Path):
    never_saved = taught(small(backbone=own_backbone()), 4)
    learner = taught(small(backbone=own_backbone()), 2)
    learner.save(tmp_path / "learner")
    restored = load_learner(tmp_path / "learner", backbone=own_backbone(seed=1))
    taught(restored, 2, start=2)
    assert_same(state_of(restored), state_of(never_saved))


def test_one_sample_of_a_high_class_and_a_high_task_makes_a_small_file(tmp_path: Path):
    options = {"backbone": {"name": "mlp", "hidden": [4]}, "setting": "task", "memory": 10, "score_distillation": 0.1}
    learner = Learner("drr_plus", **options)
    for label, task in ((0, 0), (9_999, 9_999)):
        learner.observe(X[:1], [label], task)
        learner.end_task()
    learner.save(tmp_path / "learner")
    n_bytes_of_rows = sum(tensor.nbytes for tensor in learner.method.last_end.tensors)
    # Weights of now, at the end of the last task, and to go back to.
    assert (tmp_path / "learner").stat().st_size < 3 * n_bytes_of_rows + 100_000
    assert load_learner(tmp_path / "learner").predict(X[:1], 9_999).tolist() == [9_999]


def test_a_backbone_without_layers_is_a_backbone(tmp_path: Path):
    learner = taught(finetune(backbone=nn.Sequential()))
    learner.save(tmp_path / "learner")
    restored = load_learner(tmp_path / "learner", backbone=nn.Sequential())
    assert torch.equal(restored.predict(X), learner.predict(X))


def test_a_backbone_of_ones_own_has_to_be_given_again(tmp_path: Path):
    taught(small(backbone=own_backbone())).save(tmp_path / "learner")
    with pytest.raises(ValueError, match=r"backbone of your own: pass it as load_learner\(path, backbone=…\)"):
        load_learner(tmp_path / "learner")


def test_another_backbone_than_the_saved_one_is_refused(tmp_path: Path):
    taught(small(backbone=own_backbone())).save(tmp_path / "learner")
    with pytest.raises(ValueError, match="learner"):
        load_learner(tmp_path / "learner", backbone=nn.Linear(N_INPUTS, 7))


def test_a_damaged_file_is_replaced_by_the_one_saved_before_with_a_warning(tmp_path: Path):
    path = tmp_path / "learner"
    learner = taught(small(), 2)
    learner.save(path)
    before = snapshot(learner)["learner"]
    taught(learner, 1, start=2).save(path)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.warns(UserWarning, match="going on from the one before"):
        assert_same(state_of(load_learner(path)), before)


def test_a_file_that_is_not_there_is_named(tmp_path: Path):
    with pytest.raises(FileNotFoundError, match=r"no checkpoint at .*nothing"):
        load_learner(tmp_path / "nothing")


# Files that someone made to do harm.


def load_hostile(state: Any, tmp_path: Path, **options: Any) -> Learner:
    """Load the state from a file with a right checksum; fail if a large tensor is made on the way."""
    write_checkpoint(tmp_path / "hostile", state)
    with Largest() as largest:
        try:
            return load_learner(tmp_path / "hostile", **options)
        finally:
            assert largest.nbytes < 100_000, f"a tensor of {largest.nbytes:,} bytes was made"


def saved_state(**options: Any) -> dict[str, Any]:
    return state_of(taught(small(**options)))


def changed(state: dict[str, Any], path: tuple[Any, ...], value: Any) -> dict[str, Any]:
    """The state with another value at a place."""
    place = state
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    return state


def short(value: Any) -> str:
    """What is changed and to what, as the name of a test."""
    if isinstance(value, tuple):
        return ".".join(map(str, value))
    return f"tensor {tuple(value.shape)}" if isinstance(value, Tensor) else str(value)[:20]


def test_a_learner_of_these_tests_is_loaded_without_a_large_tensor(tmp_path: Path):
    assert_same(state_of(load_hostile(saved_state(), tmp_path)), saved_state())


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("settings", "backbone", "hidden"), [10**6, 10**6]),
        (("settings", "backbone", "hidden"), [30_000]),
        (("settings", "backbone"), {"name": "reduced_resnet18", "width": 64}),
        (("settings", "n_classes"), 10**9),
        (("settings", "n_classes"), 100_000),
        (("settings", "memory"), "9" * 400 + " GB"),
        (("input_shape",), (10**4, 10**2)),
        (("input_shape",), (10**9, 10**9)),
        (("input_shape",), (10**30,)),
        (("method", "memory", "max_samples"), 10**15),
        (("method", "memory", "max_samples"), 10**5),
        (("method", "model", "head.weight"), torch.zeros(10**5, 0)),
        (("method", "model", "backbone.layers.0.weight"), torch.zeros(5, 0)),
    ],
    ids=short,
)
def test_a_file_that_asks_for_large_things_is_refused_before_they_are_made(
    tmp_path: Path, path: tuple[str, ...], value: Any
):
    with pytest.raises((ValueError, MemoryError)):
        load_hostile(changed(saved_state(), path, value), tmp_path)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("method", "model", "head.weight"), torch.zeros(10**5, 0)),
        (("settings", "n_classes"), 10**5),
        (("method", "memory", "max_samples"), 10**15),
    ],
    ids=short,
)
def test_with_a_backbone_of_ones_own_too(tmp_path: Path, path: tuple[str, ...], value: Any):
    with pytest.raises((ValueError, MemoryError)):
        load_hostile(changed(saved_state(backbone=own_backbone()), path, value), tmp_path, backbone=own_backbone())


def test_a_backbone_of_ones_own_is_not_tried_on_a_large_sample_that_a_file_asks_for(tmp_path: Path):
    state = changed(saved_state(backbone=own_backbone()), ("input_shape",), (10**3, 10**3))
    with suppress(ValueError):
        load_hostile(state, tmp_path, backbone=own_backbone())


@pytest.mark.parametrize("part", ["method", "backbone", "selection", "retrieval"])
def test_code_that_a_file_names_is_not_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: str):
    (tmp_path / "hostile_code.py").write_text("raise AssertionError('this was imported')")
    monkeypatch.syspath_prepend(tmp_path)
    state = changed(saved_state(), ("settings", part), {"name": "hostile_code:Thing"})
    with pytest.raises(
        ValueError, match=r"code of another package \(hostile_code:Thing\): load it with trust_code=True"
    ):
        load_hostile(state, tmp_path)
    assert "hostile_code" not in sys.modules


def test_code_that_one_trusts_is_imported(tmp_path: Path):
    learner = Learner(DIARY, backbone=BACKBONE, setting="class")
    learner.observe(X, Y, 0)
    learner.save(tmp_path / "learner")
    with pytest.raises(ValueError, match="trust_code=True"):
        load_learner(tmp_path / "learner")
    assert load_learner(tmp_path / "learner", trust_code=True).method.pages == ["0 0 0 0"]


@pytest.mark.parametrize("key", [key for key in small().state_dict() if key != "practice"])  # which older files lack
def test_a_file_without_one_of_its_parts_is_refused(tmp_path: Path, key: str):
    state = saved_state()
    del state[key]
    with pytest.raises(CorruptCheckpoint, match=f"hostile is not the state of a learner: .*{key}"):
        load_hostile(state, tmp_path)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("settings",), "er"),
        (("settings", "lr"), "fast"),
        (("settings", "lr"), -1.0),
        (("settings", "setting"), "hard"),
        (("settings", "surprise"), 1),
        (("settings", "method", "name"), "erx"),
        (("settings", "method", "replay_sise"), 1),
        (("settings", "backbone", "hidden"), ["wide"]),
        (("scale",), "large"),
        (("mean",), "none"),
        (("input_shape",), 4),
        (("input_shape",), None),
        (("input_shape",), ("4",)),
        (("input_dtype",), "float33"),
        (("input_dtype",), "save"),
        (("input_dtype",), 32),
        (("n_observed",), "many"),
        (("running_task",), "first"),
        (("method",), 1),
        (("method",), {}),
        (("method", "model"), {}),
        (("method", "model", "head.weight"), 1),
        (("method", "model", "head.weight"), torch.tensor(1.0)),
        (("method", "model", "_extra_state"), None),
        (("method", "model", "_extra_state", "seen", "n_classes"), 1),
        (("method", "model", "_extra_state", "seen", "n_classes"), 10**12),
        (("method", "model", "_extra_state", "seen", "pairs"), torch.tensor([7])),
        (("method", "model", "_extra_state", "seen", "pairs"), torch.tensor([1, 0])),
        (("method", "model", "_extra_state", "seen", "pairs"), torch.zeros(2)),
        (("method", "model", "_extra_state", "seen", "learned"), torch.zeros(9, dtype=torch.bool)),
        (("method", "model", "_extra_state", "seen", "setting"), "task"),
        (("method", "model", "_extra_state", "rng"), torch.zeros(3, dtype=torch.uint8)),
        (("method", "optimizer"), {}),
        (("method", "memory", "rng"), None),
        (("method", "memory", "filled"), 10**6),
        (("method", "memory", "max_samples"), "many"),
        (("method", "memory", "columns"), None),
        (("method", "selection", "offered"), "many"),
        (("method", "surprise"), 1),
    ],
    ids=short,
)
def test_a_file_with_something_of_the_wrong_kind_is_refused(tmp_path: Path, path: tuple[str, ...], value: Any):
    with pytest.raises(ValueError):
        load_hostile(changed(saved_state(), path, value), tmp_path)


def places(tree: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The paths to everything in a tree of dicts."""
    if isinstance(tree, dict):
        for key, value in tree.items():
            yield (*path, key)
            yield from places(value, (*path, key))


JUNK = [None, -1, 10**9, "junk", [], {}, torch.zeros(0), torch.zeros(2, 3)]


@pytest.mark.parametrize("own", [False, True], ids=["named backbone", "own backbone"])
def test_junk_in_any_place_is_refused_with_a_clear_kind_of_error_or_is_taken(
    monkeypatch: pytest.MonkeyPatch, own: bool
):
    options = {"backbone": own_backbone()} if own else {}
    whole = saved_state(momentum=0.9, selection="ring", **options)
    surprises: dict[str, set[str]] = {}
    for path in places(whole):
        if own and len(path) > 2:
            continue  # what is deeper is the same with both backbones
        for junk in JUNK:
            state = changed(copy.deepcopy(whole), path, junk)
            monkeypatch.setattr(loading, "read_checkpoint", lambda _path, state=state: state)
            try:
                with warnings.catch_warnings(), Largest() as largest:
                    warnings.simplefilter("ignore")
                    load_learner("junk", **options)
            except (ValueError, MemoryError):
                pass
            except Exception as error:
                surprises.setdefault(".".join(map(str, path)), set()).add(type(error).__name__)
            if largest.nbytes > 100_000:
                surprises.setdefault(".".join(map(str, path)), set()).add(f"{largest.nbytes:,} bytes")
    assert surprises == {}


@pytest.mark.parametrize(
    ("shape", "method", "backbone", "lr"),
    [
        ((64,), "hedge", "identity", 0.1),
        ((65,), "slda", "identity", 0.1),
        ((1, 8, 8), "er", "mlp", 0.1),
        ((3, 8, 8), "er", "mlp", 0.03),
    ],
)
def test_the_first_batch_decides_what_learns_if_nothing_is_asked_for(
    shape: tuple[int, ...], method: str, backbone: str, lr: float
) -> None:
    learner = Learner(n_classes=3, memory=7, seed=5)
    learner.observe(torch.zeros(2, *shape), [0, 1])
    expected = Learner(method, backbone=backbone, n_classes=3, memory=7, seed=5, lr=lr)
    assert learner.settings == expected.settings
    assert Learner(input_shape=shape).settings.method.name == method


@pytest.mark.parametrize("asked", [{"lr": 0.01}, {"replay_size": 5}, {"backbone": "identity"}, {"selection": "ring"}])
def test_whoever_asks_for_something_of_er_gets_it(asked: dict[str, Any]) -> None:
    assert Learner(**asked, input_shape=(65,)).settings.method.name == "er"


def test_a_learner_that_was_saved_before_its_first_batch_still_lets_that_decide(tmp_path: Path) -> None:
    Learner().save(tmp_path / "learner")
    learner = load_learner(tmp_path / "learner")
    learner.observe(torch.zeros(2, 100), [0, 1])
    assert learner.settings.method.name == "slda"
    learner.save(tmp_path / "learner")
    assert load_learner(tmp_path / "learner").settings == learner.settings
