from typing import get_args

import pytest
import torch
from torch import Tensor

from holdfast.core.batch import NO_TASK
from holdfast.core.classes import SETTING_MEANINGS, SETTINGS, SeenClasses, Setting

from ..same import assert_same

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
    assert rows(after_two_tasks("task").up_to(long(1, 0))) == ["xx.x", "xx.."]


@others
def test_in_the_other_settings_that_are_all_seen_classes(setting: Setting):
    assert rows(after_two_tasks(setting).up_to(long(0, 1))) == ["xx.x", "xx.x"]


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
