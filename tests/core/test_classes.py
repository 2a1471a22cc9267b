from typing import Any, get_args

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from holdfast.core.batch import NO_TASK
from holdfast.core.classes import SETTING_MEANINGS, SETTINGS, SeenClasses, Setting
from tests.support.same import assert_same

others = pytest.mark.parametrize("setting", ["class", "domain", "free"])


def long(*numbers: int) -> Tensor:
    return torch.tensor(numbers, dtype=torch.int64)


def rows(mask: Tensor) -> list[str]:
    """A mask to be read: one character a class."""
    return ["".join("x" if competes else "." for competes in row) for row in mask.tolist()]


def after_two_tasks(setting: Setting) -> SeenClasses:
    """Task 0 with the classes 0 and 1, task 1 with 1 and 3; class 2 was never seen."""
    seen = SeenClasses(setting, 4)
    seen.add(long(0, 1, 1), long(0, 0, 0))
    seen.add(long(3, 1), long(1, 1))
    return seen


def test_in_the_setting_task_the_classes_of_a_task_compete_among_themselves():
    assert rows(after_two_tasks("task").competing(long(0, 1, 0))) == ["xx..", ".x.x", "xx.."]


def test_up_to_a_task_are_its_classes_and_those_of_tasks_of_lower_numbers():
    assert rows(after_two_tasks("task").up_to_task(long(1, 0))) == ["xx.x", "xx.."]


def test_where_the_task_is_known_when_learning_only_tasks_still_own_what_was_learned():
    seen = after_two_tasks("class")
    seen.announce([2], task=1)
    assert rows(seen.of_task(long(0, 1))) == ["xx..", ".x.x"]
    assert rows(seen.up_to_task(long(0, 1))) == ["xx..", "xx.x"]
    assert rows(seen.competing(long(0, 1))) == ["xxxx", "xxxx"]


@pytest.mark.parametrize("setting", ["domain", "free"])
def test_where_tasks_share_classes_that_are_all_seen_classes(setting: Setting):
    assert rows(after_two_tasks(setting).of_task(long(0, 1))) == ["xx.x", "xx.x"]
    assert rows(after_two_tasks(setting).up_to_task(long(0, 1))) == ["xx.x", "xx.x"]


@others
def test_in_the_other_settings_all_seen_classes_compete(setting: Setting):
    assert rows(after_two_tasks(setting).competing(long(0, 1))) == ["xx.x", "xx.x"]
    assert rows(after_two_tasks(setting).competing(long(NO_TASK))) == ["xx.x"]


@pytest.mark.parametrize("setting", SETTINGS)
def test_at_first_no_class_competes(setting: Setting):
    seen = SeenClasses(setting, 3)
    assert rows(seen.competing(long(0))) == ["..."]
    assert seen.classes().tolist() == []


@pytest.mark.parametrize("setting", SETTINGS)
def test_a_batch_of_mixed_tasks_gives_each_task_its_own_classes(setting: Setting):
    seen = SeenClasses(setting, 4)
    seen.add(long(0, 1, 1, 3), long(0, 0, 1, 1))
    assert_same(seen.state_dict(), after_two_tasks(setting).state_dict())


@pytest.mark.parametrize("setting", SETTINGS)
def test_the_classes_seen_come_in_order_and_once(setting: Setting):
    assert after_two_tasks(setting).classes().tolist() == [0, 1, 3]


@pytest.mark.parametrize("setting", SETTINGS)
def test_growing_keeps_who_competes_and_adds_nobody(setting: Setting):
    seen = after_two_tasks(setting)
    before = rows(seen.competing(long(0, 1)))
    seen.grow(6)
    assert seen.n_classes == 6
    assert rows(seen.competing(long(0, 1))) == [row + ".." for row in before]


@others
def test_a_class_that_comes_when_all_were_seen_competes_with_them(setting: Setting):
    seen = SeenClasses(setting, 2)
    seen.add(long(0, 1), long(0, 0))
    assert rows(seen.competing(long(0))) == ["xx"]
    seen.grow(4)
    seen.add(long(3), long(1))
    assert rows(seen.competing(long(0))) == ["xx.x"]


def test_a_task_that_has_all_classes_leaves_the_other_tasks_theirs():
    seen = SeenClasses("task", 2)
    seen.add(long(0, 1), long(0, 0))
    seen.add(long(1), long(1))
    assert rows(seen.competing(long(0, 1))) == ["xx", ".x"]


def test_a_task_number_may_be_left_out():
    seen = SeenClasses("task", 2)
    seen.add(long(1), long(3))
    assert rows(seen.competing(long(3, 0))) == [".x", ".."]
    assert [seen.knows_task(task) for task in (-1, 0, 2, 3, 4)] == [False, False, False, True, False]


@others
def test_where_no_task_is_asked_for_every_task_is_known(setting: Setting):
    assert SeenClasses(setting, 2).knows_task(7)


def test_an_announced_class_competes_before_its_samples_come():
    seen = SeenClasses("task", 3)
    seen.announce([0, 2], task=1)
    assert rows(seen.competing(long(1))) == ["x.x"]


@pytest.mark.parametrize(
    ("setting", "learning", "predicting"),
    [("task", True, True), ("class", True, False), ("domain", True, False), ("free", False, False)],
)
def test_a_setting_says_when_the_task_is_known(setting: Setting, learning: bool, predicting: bool):
    seen = SeenClasses(setting, 1)
    assert (seen.learns_by_task, seen.predicts_by_task) == (learning, predicting)


def test_every_setting_is_explained():
    assert SETTINGS == get_args(Setting) == tuple(SETTING_MEANINGS) == ("task", "class", "domain", "free")


@pytest.mark.parametrize("setting", SETTINGS)
def test_a_smaller_table_takes_the_state_of_a_larger_one(setting: Setting):
    restored = SeenClasses(setting, 1)
    restored.load_state_dict(after_two_tasks(setting).state_dict())
    assert restored.n_classes == 4
    assert rows(restored.competing(long(0, 1))) == rows(after_two_tasks(setting).competing(long(0, 1)))


class DenseTable:
    """The same, as a dense table of tasks and classes and a task for each class."""

    def __init__(self, setting: Setting, n_tasks: int, n_classes: int) -> None:
        self.setting = setting
        self.seen = torch.zeros(n_tasks, n_classes, dtype=torch.bool)
        self.learned = torch.zeros(n_tasks, n_classes, dtype=torch.bool)

    def competing(self, task: Tensor) -> Tensor:
        return self.seen[task] if self.setting == "task" else self.seen.any(dim=0).expand(len(task), -1)

    def of_task(self, task: Tensor) -> Tensor:
        return self.learned[task] if self.setting == "class" else self.competing(task)

    def up_to_task(self, task: Tensor) -> Tensor:
        if self.setting in ("domain", "free"):
            return self.competing(task)
        rows = self.learned if self.setting == "class" else self.seen
        return rows.cumsum(dim=0).bool()[task]

    def groups(self) -> Tensor:
        rows = self.seen if self.setting == "task" else self.seen.any(dim=0, keepdim=True)
        rows = rows & self.learned.any(dim=0)
        return rows[rows.any(dim=1)]


@settings(max_examples=60, deadline=None)
@given(
    setting=st.sampled_from(SETTINGS),
    n_classes=st.integers(1, 6),
    spread=st.sampled_from([1, 500]),  # of the numbers of tasks, so that the table of rows is kept or is not
    events=st.lists(
        st.tuples(st.booleans(), st.lists(st.tuples(st.integers(0, 4), st.integers(0, 5)), min_size=1, max_size=4)),
        max_size=8,
    ),
)
def test_it_says_what_a_dense_table_says(
    setting: Setting, n_classes: int, spread: int, events: list[tuple[bool, list[tuple[int, int]]]]
):
    n_tasks = 4 * spread + 1
    seen, dense = SeenClasses(setting, n_classes), DenseTable(setting, n_tasks, n_classes)
    for announced, samples in events:
        task = long(*(spread * t for t, _ in samples))
        y = long(*(c % n_classes for _, c in samples))
        if announced:
            for one_task, label in zip(task.tolist(), y.tolist(), strict=True):
                seen.announce([label], one_task)
        else:
            seen.add(y, task)
            dense.learned[task, y] = True
        dense.seen[task, y] = True

        known = dense.seen.any(dim=1).nonzero().flatten()
        assert rows(seen.competing(known)) == rows(dense.competing(known))
        assert rows(seen.of_task(known)) == rows(dense.of_task(known))
        assert rows(seen.up_to_task(known)) == rows(dense.up_to_task(known))
        assert rows(seen.groups()) == rows(dense.groups())
        assert torch.equal(seen.all_seen(), dense.seen.any(dim=0))
        assert torch.equal(seen.all_learned(), dense.learned.any(dim=0))
        assert seen.n_tasks_learned == int(dense.learned.any(dim=1).sum())
        assert seen.complete == (setting != "task" and bool(dense.seen.any(dim=0).all()))
        restored = SeenClasses(setting, 1)
        restored.load_state_dict(seen.state_dict())
        assert_same(restored.state_dict(), seen.state_dict())
        assert rows(restored.of_task(known)) == rows(seen.of_task(known))


def test_what_is_kept_grows_with_what_was_seen_and_not_with_the_numbers():
    seen = SeenClasses("task", 10_000)
    seen.add(long(9_999, 0), long(9_999, 3))
    assert seen.nbytes < 10_000 + 100
    assert seen.nbytes == sum(value.nbytes for value in vars(seen).values() if isinstance(value, Tensor)) - 16  # shared


def test_what_was_handed_out_does_not_change_with_what_comes_later():
    seen = after_two_tasks("domain")
    before, pairs = seen.all_seen(), seen.pairs
    seen.add(long(2), long(7))
    assert (before.tolist(), len(pairs)) == ([True, True, False, True], 4)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"pairs": torch.zeros(2)}, "pairs is no row of whole numbers"),
        ({"learned": torch.ones(3, dtype=torch.bool)}, "learned does not fit pairs"),
        ({"n_classes": 3}, "not all below 3"),
        ({"pairs": torch.tensor([1, 0, 3, 2])}, "not in order"),
        ({"table": torch.zeros(1, 4, dtype=torch.bool)}, "saved by an earlier version"),
    ],
    ids=str,
)
def test_a_saved_table_that_is_none_is_refused(change: dict[str, Any], message: str):
    with pytest.raises(ValueError, match=message):
        SeenClasses("class", 1).load_state_dict(after_two_tasks("class").state_dict() | change)


@pytest.mark.parametrize("setting", SETTINGS)
def test_joining_makes_what_one_that_saw_both_would_have(setting: Setting):
    one, other = SeenClasses(setting, 4), SeenClasses(setting, 4)
    one.add(long(0, 1, 1), long(0, 0, 0))
    other.add(long(3, 1), long(1, 1))
    one.join(other)
    assert_same(one.state_dict(), after_two_tasks(setting).state_dict())


def test_a_removed_class_is_not_seen_in_any_task_until_it_comes_again():
    seen = after_two_tasks("task")
    seen.remove([1])
    assert rows(seen.competing(long(0, 1))) == ["x...", "...x"]
    seen.add(long(1), long(0))
    assert rows(seen.competing(long(0, 1))) == ["xx..", "...x"]
