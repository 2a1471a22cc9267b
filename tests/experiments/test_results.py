import json
from concurrent.futures import ThreadPoolExecutor

import pytest

from holdfast.experiments.experiment import Experiment
from holdfast.experiments.results import Result, ResultStore, read_result, write_text
from holdfast.experiments.tables import comparison, matrix_rows


def result_of(accuracies=((0.9, None), (0.5, 0.8)), **changes) -> Result:
    experiment = Experiment.model_validate({"stream": "split_digits", **changes})
    return Result(
        experiment=experiment,
        accuracies=[list(row) for row in accuracies],
        n_steps=4,
        seconds=1.5,
        seconds_testing=0.5,
        memory_samples=3,
        memory_bytes=99,
        n_parameters=7,
        versions={"torch": "0"},
    )


def test_a_result_comes_back_as_it_went(tmp_path):
    store, result = ResultStore(tmp_path), result_of()
    with store.claimed(result.experiment):
        store.save(result)
    assert store.find(result.experiment) == result
    assert store.results() == [result]
    assert result.metrics["forgetting"] == pytest.approx(0.4)


def test_damaged_and_foreign_files_are_named_and_passed_over(tmp_path):
    store, result = ResultStore(tmp_path), result_of()
    with store.claimed(result.experiment):
        store.save(result)
    for name, text in (("torn", '{"experiment": {'), ("foreign", json.dumps({"accuracy": 1})), ("binary", "\x00\xff")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "result.json").write_text(text)
    with pytest.warns(UserWarning, match="is no result of a run") as warned:
        assert store.results() == [result]
    named = "\n".join(str(warning.message) for warning in warned)
    assert all(f"{name}/result.json" in named for name in ("torn", "foreign", "binary"))


def test_the_hash_changes_with_every_setting_and_with_nothing_else():
    base = Experiment.model_validate({"stream": "split_digits"})
    same = Experiment.model_validate({"stream": {"name": "split_digits"}, "method": {"name": "er"}})
    assert base.digest == same.digest
    changes = [
        {"lr": 0.2}, {"seed": 1}, {"batch_size": 9}, {"memory": "1 MB"}, {"method": "finetune"}, {"momentum": 0.1},
        {"stream": {"name": "split_digits", "n_tasks": 2}}, {"setting": "task"}, {"selection": "ring"},
    ]  # fmt: skip
    digests = {Experiment.model_validate({"stream": "split_digits"} | change).digest for change in changes}
    assert len(digests | {base.digest}) == len(changes) + 1


def test_a_table_averages_seeds_and_nothing_else():
    results = [
        result_of(seed=1),
        result_of(((0.9, None), (0.7, 0.8)), seed=2),
        result_of(seed=1, lr=0.5),
    ]
    header, lines = comparison(results)
    assert header[:3] == ["method", "A_T (%)", "F_T"]
    assert [line[0] for line in lines] == ["er (lr=0.1)", "er (lr=0.5)"]
    assert lines[0][1] == "70.00±5.00"  # of 65 and 75: the population's deviation
    assert (lines[0][2], lines[0][-1]) == ("0.300±0.100", "2")
    assert (lines[1][1], lines[1][-1]) == ("65.00", "1")


def test_joint_training_shows_dashes_where_nothing_can_be_forgotten():
    _, (line,) = comparison([result_of(((0.5, 0.7),))])
    assert line[1:5] == ["60.00", "-", "-", "-"]


def test_the_matrix_is_blank_where_nothing_was_measured():
    assert matrix_rows(result_of()) == (["after", "1", "2"], [["1", "90.0", ""], ["2", "50.0", "80.0"]])


def test_a_file_is_never_half_written(tmp_path, monkeypatch):
    path = tmp_path / "result.json"
    write_text(path, "old")
    monkeypatch.setattr("os.fsync", _full)
    with pytest.raises(OSError, match="No space"):
        write_text(path, "new")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_threads_that_write_one_file_do_not_break_each_other(tmp_path):
    path = tmp_path / "result.json"
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda n: write_text(path, str(n) * 1000), [n % 10 for n in range(80)]))
    text = path.read_text()
    assert text == text[0] * 1000
    assert list(tmp_path.iterdir()) == [path]


def _full(*_):
    raise OSError(28, "No space left on device")


def test_a_file_that_is_no_result_is_an_error_with_its_name(tmp_path):
    (tmp_path / "result.json").write_text("[]")
    with pytest.raises(ValueError, match=r"result\.json is no result of a run"):
        read_result(tmp_path / "result.json")
