"""What differs between the rows of a table, in words."""

from holdfast.experiments.differences import between_rows
from holdfast.experiments.recipes import load_recipe


def rows(*names, recipe="permuted_digits", **changes):
    dotted = {name.replace("__", "."): value for name, value in changes.items()}
    return {name: [load_recipe(recipe).experiment(name, changes=dotted)] for name in names}


def test_rows_that_differ_in_nothing_but_the_method_have_no_lines():
    assert between_rows(rows("er", "er_ace", "agem", "finetune", "joint")) == []
    assert between_rows(rows("er")) == []


def test_two_rows_each_tell_what_they_have_otherwise():
    unequal = rows("er") | rows("er_ace", method__replay_size=10)
    assert between_rows(unequal) == ["er: replay_size=32", "er_ace: replay_size=10"]


def test_a_class_of_another_package_is_told_by_what_it_states_and_not_imported():
    (er,) = rows("er")["er"]
    foreign = er.model_copy(update={"method": er.method.model_copy(update={"name": "no_such_package:Mine"})})
    assert between_rows({"er": [er], "Mine": [foreign.model_copy(update={"lr": 0.2})]}) == [
        "er: lr=0.1",
        "Mine: lr=0.2",
    ]


def test_what_most_rows_have_is_said_once_and_a_methods_own_options_where_they_are_set():
    assert between_rows(rows("finetune", "er", "er_ace", "drr", "joint")) == [
        "unless said below: average=none, selection=ring(per_class=5)",
        "drr: selection=centroid(epsilon=2, per_class=5, max_centroids=2048), average=0.95, distillation=10",
    ]


def test_methods_without_a_memory_say_nothing_of_one():
    (line,) = between_rows(rows("er", selection="reservoir") | rows("ewc", method__strength=3.5))
    assert line == "ewc: strength=3.5"


def test_of_several_configurations_of_a_row_only_what_they_share_is_told():
    several = {"er": [*rows("er")["er"], *rows("er", lr=0.5)["er"]]}
    assert between_rows(several | rows("er_ace", lr=0.3, method__replay_size=4)) == [
        "er: replay_size=32",
        "er_ace: replay_size=4",
    ]
