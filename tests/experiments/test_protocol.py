"""Runs of one protocol stand in one table, and of two in none."""

import pytest

from holdfast.experiments.protocol import by_protocol, protocol_of
from holdfast.experiments.recipes import load_recipe
from holdfast.settings import Part
from tests.support.made_up_results import result


def made(row="er", recipe="permuted_digits", n_tasks=2, seed=1, **changes):
    dotted = {name.replace("__", "."): value for name, value in changes.items()}
    return result(load_recipe(recipe).experiment(row, seed=seed, changes=dotted), n_tasks=n_tasks)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"stream__tasks": "tuning"}, "2 tuning tasks"),
        ({"stream__tasks": "all"}, "2 tuning and reported tasks"),
        ({"n_tasks": 3}, "3 reported tasks"),
        ({"n_tasks": 1}, "1 reported task,"),
        ({"stream__samples_per_task": 50}, "samples_per_task=50"),
        ({"setting": "class"}, "setting class"),
        ({"batch_size": 5}, "batches of 5"),
        ({"benchmark": "another"}, "another: 2 reported tasks"),
        ({"stream": "split_digits"}, "stream split_digits"),
    ],
)
def test_whatever_makes_another_protocol_is_said_in_its_heading(changes, told):
    usual, other = made(), made(**changes)
    assert len(by_protocol([usual, other])) == 2
    assert told in protocol_of(other).heading
    assert told not in protocol_of(usual).heading


@pytest.mark.parametrize(
    "changes",
    [
        {"seed": 9},
        {"row": "drr"},
        {"memory": 7},
        {"stream__tasks": "report"},
        {"stream__n_tasks": 2},
        {"stream__samples_per_task": None},
        {"row": "joint"},
        {"row": "joint", "stream__n_tasks": 2, "stream__tasks": "report"},
    ],
)
def test_other_methods_seeds_and_joint_training_belong_to_the_same_protocol(changes):
    assert list(by_protocol([made(), made(**changes)])) == [protocol_of(made())]


def test_joint_training_on_other_tasks_is_no_bound_of_these():
    assert len(by_protocol([made(), made("joint", stream__samples_per_task=50)])) == 2


def test_a_stream_of_another_package_is_not_imported():
    stream = Part(name="no_such_package:Stream", options={"tasks": "tuning", "side": 3})
    usual = made()
    foreign = usual.model_copy(update={"experiment": usual.experiment.model_copy(update={"stream": stream})})
    assert protocol_of(foreign).heading == (
        "permuted_digits: 2 tuning tasks, setting domain, batches of 10, stream no_such_package:Stream, side=3"
    )
