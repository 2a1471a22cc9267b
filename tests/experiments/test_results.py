import json
from concurrent.futures import ThreadPoolExecutor

import pytest

from holdfast.core.fingerprint import digest_of
from holdfast.experiments import results
from holdfast.experiments.experiment import Experiment, short_hash
from holdfast.experiments.results import (
    EXPERIMENT,
    LOCK,
    PACKED,
    RESULT,
    Busy,
    Refused,
    Result,
    ResultStore,
    line_of,
    packed_text,
    read_result,
    split_place,
    write_text,
)
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


def test_another_runs_result_in_this_runs_folder_is_refused_and_never_shown(tmp_path):
    store, mine, other = ResultStore(tmp_path), result_of(method="er"), result_of(method="ewc")
    for result in (mine, other):
        with store.claimed(result.experiment):
            store.save(result)
    copied = store.folder(mine.experiment) / RESULT
    copied.write_text((store.folder(other.experiment) / RESULT).read_text())
    said = r"is the result of another run, split_digits ewc seed 1234 \([0-9a-f]{10}\), than its folder is named by"
    with pytest.raises(ValueError, match=said):
        store.find(mine.experiment)
    with pytest.raises(ValueError, match=said):
        read_result(copied)
    with pytest.warns(UserWarning, match=said):
        assert store.results() == [other]


def test_a_folder_of_any_name_holds_the_run_that_its_experiment_says(tmp_path):
    mine, other = result_of(), result_of(lr=0.5)
    (tmp_path / RESULT).write_text(mine.model_dump_json())
    assert read_result(tmp_path / RESULT) == mine
    (tmp_path / EXPERIMENT).write_text(mine.experiment.model_dump_json())
    assert read_result(tmp_path / RESULT) == mine
    (tmp_path / EXPERIMENT).write_text(other.experiment.model_dump_json())
    with pytest.raises(ValueError, match=r"another run than experiment\.json beside it \(lr=0\.1, not 0\.5\)"):
        read_result(tmp_path / RESULT)


def test_a_folder_named_by_what_its_run_said_before_all_was_stated_is_read(tmp_path):
    said = json.loads(result_of().model_dump_json())
    said["experiment"]["method"] = {"name": "er"}
    del said["experiment"]["foreign_code"]
    digest = short_hash(said["experiment"])
    folder = tmp_path / f"1234-{digest}"
    folder.mkdir()
    (folder / RESULT).write_text(json.dumps(said))
    assert "replay_size" not in read_result(folder / RESULT).experiment.method.options
    assert ResultStore(tmp_path).find(result_of().experiment) is None


def packed(folder, *results, extra=()):
    path = folder / "split_digits" / PACKED
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in [*map(line_of, results), *extra]))
    return path


def test_runs_in_one_file_are_found_and_read_like_others(tmp_path):
    first, second, apart = result_of(seed=1), result_of(seed=2), result_of(seed=3)
    path = packed(tmp_path, first, second)
    store = ResultStore(tmp_path)
    with store.claimed(apart.experiment):
        store.save(apart)
    assert (store.find(first.experiment), store.find(second.experiment)) == (first, second)
    assert store.find(result_of(seed=4).experiment) is None
    assert store.results() == [first, second, apart]
    place = path.with_name(f"{PACKED}#{second.experiment.digest}")
    assert list(store.results_by_path())[1] == place
    assert read_result(place) == second
    assert split_place(place) == (path, second.experiment.digest)
    with pytest.raises(ValueError, match="no result 0000000000 in "):
        read_result(path.with_name(f"{PACKED}#0000000000"))


def test_a_line_keeps_every_number_and_leaves_out_what_says_nothing(tmp_path):
    matrix = ((0.1, None, None), (0.2, 1 / 3, None), (0.3, 2 / 3, 0.7))
    unmeasured = ((None, 0.5), (0.5, None))
    one, other = result_of(matrix, seed=1), result_of(unmeasured, seed=2)
    text = packed(tmp_path, one, other).read_text()
    assert ResultStore(tmp_path).results() == [one, other]
    assert "[[0.1],[0.2,0.3333333333333333],[0.3,0.6666666666666666,0.7]]" in text
    assert '"footprint"' not in text


def test_runs_in_one_file_state_the_code_that_they_share_once(tmp_path):
    first, other = {"core.batch": "0" * 8, "methods.er": "1" * 8}, {"core.batch": "2" * 8}
    codes = [first, first, None, other]
    runs = [result_of(seed=i).model_copy(update={"code": code}) for i, code in enumerate(codes)]
    path = packed(tmp_path)
    path.write_text(packed_text(runs))
    assert ResultStore(tmp_path).results() == runs
    assert path.read_text().count("core.batch") == 2

    path.write_text("".join(path.read_text().splitlines(keepends=True)[1:]))  # without the line that states it
    with pytest.warns(UserWarning, match=f"line 1, .* no line above it states the code {digest_of(first)}"):
        assert ResultStore(tmp_path).results() == runs[2:]


def test_odd_lines_are_named_and_passed_over(tmp_path):
    good, other = result_of(seed=1), result_of(seed=2)
    renamed = line_of(other).replace("/2-", "/3-", 1)
    lines = ["[]", "{", renamed, line_of(good), '{"run":"a","experiment":{}}', ""]
    packed(tmp_path, good, extra=lines)
    with pytest.warns(UserWarning, match="is passed over") as warned:
        assert ResultStore(tmp_path).results() == [good]
    told = [str(each.message) for each in warned]
    assert [f"line {i}, " in text for i, text in enumerate(told, 2)] == [True] * 5
    assert "it states the run" in told[2]
    assert "a line above it holds the same run" in told[3]


def test_a_file_of_results_is_read_anew_when_it_changes(tmp_path):
    packed(tmp_path, result_of(seed=1))
    assert len(ResultStore(tmp_path).results()) == 1
    packed(tmp_path, result_of(seed=1), result_of(seed=2))
    assert len(ResultStore(tmp_path).results()) == 2


def test_the_text_of_a_result_has_a_row_a_line(tmp_path):
    store, result = ResultStore(tmp_path), result_of()
    with store.claimed(result.experiment):
        store.save(result)
    lines = (store.folder(result.experiment) / RESULT).read_text().splitlines()
    assert "  [0.9, null]," in lines
    assert any(line.startswith('  "method": {"name": "er", ') for line in lines)


def test_a_run_that_leaves_nothing_leaves_no_lock_and_no_folder(tmp_path):
    store, experiment = ResultStore(tmp_path / "runs"), result_of().experiment
    with store.claimed(experiment) as folder:
        assert (folder / LOCK).exists()
    assert list((tmp_path / "runs").rglob("*")) == []
    with pytest.raises(ZeroDivisionError), store.claimed(experiment):
        _ = 1 / 0
    assert list((tmp_path / "runs").rglob("*")) == []
    with store.claimed(experiment):
        store.save(result_of())
    assert sorted(path.name for path in store.folder(experiment).iterdir()) == [EXPERIMENT, RESULT]


def test_a_folder_is_claimed_once_and_free_again(tmp_path):
    store, experiment = ResultStore(tmp_path), result_of().experiment
    with store.claimed(experiment):
        with pytest.raises(Busy, match="is being run by another process"), store.claimed(experiment):
            pass
        assert (store.folder(experiment) / LOCK).exists()
    with store.claimed(experiment):
        pass


def test_a_lock_whose_file_is_gone_is_not_held(tmp_path, monkeypatch):
    """Another process opened the file of the lock just before its holder removed it."""
    store, experiment = ResultStore(tmp_path), result_of().experiment
    real, looks = results._is_at, iter([False])
    monkeypatch.setattr(results, "_is_at", lambda *a: next(looks, None) is None and real(*a))
    with store.claimed(experiment) as folder:
        with pytest.raises(Busy), store.claimed(experiment):
            pass
        assert folder.is_dir()


def test_a_folder_of_another_configuration_is_refused(tmp_path):
    store, experiment, other = ResultStore(tmp_path), result_of().experiment, result_of(lr=0.5).experiment
    folder = store.folder(experiment)
    folder.mkdir(parents=True)
    (folder / EXPERIMENT).write_text(other.model_dump_json())
    said = r"was made with lr=0\.5, not 0\.1: use another --out or --fresh"
    with pytest.raises(Refused, match=said), store.claimed(experiment):
        pass
    (folder / EXPERIMENT).write_text("[]")
    with pytest.raises(Refused, match="is damaged"), store.claimed(experiment):
        pass
    assert sorted(path.name for path in folder.iterdir()) == [EXPERIMENT]


def test_an_out_that_is_no_folder_is_told(tmp_path):
    (tmp_path / "file").write_text("")
    said = r"file is no folder, so no results can go to .*: name another --out"
    for root in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(Refused, match=said), ResultStore(root).claimed(result_of().experiment):
            pass


def test_a_run_whose_name_leads_outside_is_not_written(tmp_path):
    for benchmark in ("../../outside", "/outside"):
        experiment = Experiment.model_validate({"stream": "split_digits", "benchmark": benchmark})
        with pytest.raises(Refused, match="outside"), ResultStore(tmp_path / "runs").claimed(experiment):
            pass
    assert list(tmp_path.rglob("*")) == []
