from holdfast.experiments.differences import described, differences
from holdfast.experiments.experiment import Experiment


def experiment(**changes) -> Experiment:
    return Experiment.model_validate({"stream": "split_digits", **changes})


def test_what_is_not_the_same_is_named_with_both_values():
    found = differences(experiment(lr=0.5, memory=10), experiment(lr=0.25, memory=10))
    assert found == {"lr": ("0.5", "0.25")}
    assert [described(change) for change in found.items()] == ["lr=0.5 instead of 0.25"]


def test_a_default_that_is_stated_is_no_difference():
    stated = experiment(method={"name": "er", "replay_size": 10}, backbone={"name": "mlp", "hidden": [256, 256]})
    assert differences(stated, experiment()) == {}
    assert differences(experiment(), stated) == {}
    assert differences(experiment(memory=10, lr=1), experiment(memory=10, lr=1.0)) == {}


def test_options_of_one_part_are_compared_and_of_two_parts_are_not():
    ring = experiment(selection={"name": "ring", "per_class": 3})
    assert differences(ring, experiment(selection="ring")) == {"selection.per_class": ("3", "the default")}
    assert differences(ring, experiment(selection="reservoir")) == {"selection": ("ring", "reservoir")}


def test_seeds_and_names_of_tables_are_no_difference():
    assert differences(experiment(seed=1, row="a", benchmark="b"), experiment()) == {}


def test_code_of_other_packages_is_not_imported_to_compare(monkeypatch, tmp_path):
    (tmp_path / "unwelcome.py").write_text("raise SystemExit('it was imported')")
    monkeypatch.syspath_prepend(str(tmp_path))
    theirs = experiment(method={"name": "unwelcome:Method", "strength": 2})
    assert differences(theirs, experiment()) == {"method": ("unwelcome:Method", "er")}
