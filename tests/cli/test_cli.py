"""The commands as a user calls them."""

from __future__ import annotations

import json
import os
import shlex
import signal

import pytest

from tests.support.command import SMALL
from tests.support.processes import begun


def test_run_prints_what_papers_hide_then_the_numbers_and_the_place(tmp_path, holdfast):
    done = holdfast("run", "permuted_digits", "--method", "er", "--seed", "7", *SMALL)
    assert done.returncode == 0, done.stderr
    for fact in ("setting", "tasks", "batch", "1 step a batch", "pre-training", "replay", "memory", "seed", "versions"):
        assert fact in done.stdout
    for text in ("500 samples = 40,000 bytes", "3 others held out", "A_T (%)", "LTR"):
        assert text in done.stdout
    place = done.stdout.strip().splitlines()[-1].removeprefix("written to ")
    assert (tmp_path / place / "result.json").exists()
    assert "\x1b" not in done.stdout + done.stderr, "escape codes where there is no terminal"


def test_compare_ends_with_a_table_and_a_second_time_skips_what_is_finished(holdfast):
    first = holdfast("compare", "permuted_digits", *SMALL)
    assert first.returncode == 0, first.stderr
    table = first.stdout[first.stdout.index("method    A_T") :]
    assert all(word in table for word in ("A_T", "F_T", "LTR", "seconds", "finetune", "er"))
    assert "written to runs/permuted_digits" in first.stdout
    second = holdfast("compare", "permuted_digits", *SMALL)
    assert second.stdout.count("finished before, skipped") == 3
    assert table.splitlines()[:5] == second.stdout[second.stdout.index("method    A_T") :].splitlines()[:5]


def test_json_is_one_document_and_nothing_else(holdfast):
    done = holdfast("run", "permuted_digits", "--json", *SMALL)
    document = json.loads(done.stdout)
    assert 0 <= document["metrics"]["average_accuracy"] <= 1
    assert document["experiment"]["stream"]["n_tasks"] == 2
    assert done.stderr == ""
    shown = json.loads(holdfast("show", "runs", "--json").stdout)
    assert shown[0]["accuracies"] == document["accuracies"]
    compared = json.loads(holdfast("compare", "permuted_digits", "--json", *SMALL).stdout)
    assert [entry["experiment"]["row"] for entry in compared] == ["finetune", "er", "drr"]


@pytest.mark.parametrize(("command", "which"), [("run", "--method"), ("compare", "--methods"), ("sweep", "--methods")])
@pytest.mark.usefixtures("forked_workers")
def test_a_size_is_that_of_the_papers_tables(command, which, tmp_path, holdfast):
    (tmp_path / "mine.toml").write_text("""
        stream = { name = "permuted_digits", n_tasks = 2, samples_per_task = 50 }
        setting = "domain"
        memory = 40
        cpu = { memory = 20 }
        rows.er = {}
    """)
    document = json.loads(holdfast(command, "mine.toml", which, "er", "--size", "cpu", "--json").stdout)
    results = document["results"] if command == "sweep" else document if command == "compare" else [document]
    assert [result["experiment"]["memory"] for result in results] == [20]
    wrong = holdfast(command, "mine.toml", which, "er", "--size", "cpi")
    assert (wrong.returncode, "did you mean 'cpu'" in wrong.stderr) == (2, True)


def test_show_prints_one_run_whole_and_many_as_a_table(tmp_path, holdfast):
    holdfast("compare", "permuted_digits", "--seeds", "1,2", *SMALL)
    many = holdfast("show", "runs").stdout
    assert "±" in many
    assert "finetune" in many
    one = next((tmp_path / "runs").rglob("result.json")).parent
    shown = holdfast("show", str(one)).stdout
    assert "accuracy (%) on each task" in shown
    assert '"permuted_digits"' in shown


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("methods", "er"),
        ("streams", "split_cub"),
        ("selections", "ring"),
        ("retrievals", "old_tasks"),
        ("backbones", "reduced_resnet18"),
        ("recipes", "permuted_mnist"),
    ],
)
def test_list_names_what_there_is(kind, name, holdfast):
    assert name in holdfast("list", kind).stdout
    assert name in json.loads(holdfast("list", kind, "--json").stdout)


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ("run permuted_digit", 2, "did you mean 'permuted_digits'"),
        ("run permuted_digits --method finetun", 2, "did you mean 'finetune'"),
        ("run permuted_digits --set method.replay=3", 2, "did you mean 'replay_size'"),
        ("run permuted_digits --set lr=fast", 2, "lr"),
        ("run permuted_digits --tasks none", 2, "should be 'tuning', 'report' or 'all'"),
        ("run split_digits --tasks tuning", 1, "holds out no tasks"),
        ("run permuted_digits --n-tasks 11", 1, "the stream has 10"),
        ("run permuted_mnist --data nowhere", 1, "holdfast data download mnist"),
        ("compare permuted_digits --seeds few", 2, "'few' are no seeds"),
        ("compare permuted_digits --seeds 3-1", 2, "'3-1' are no seeds"),
        ("run permuted_digits --device nowhere", 1, "device 'nowhere' cannot be used here"),
        ("list method", 2, "did you mean 'methods'"),
        ("show nowhere", 1, "no results at nowhere"),
        ("run permuted_digits --out /dev/null/runs --n-tasks 1", 1, "/dev/null/runs"),
        ("run joint", 2, "of="),
    ],
)
def test_a_mistake_is_one_sentence_and_an_exit_code(arguments, code, message, holdfast):
    done = holdfast(*shlex.split(arguments))
    assert done.returncode == code
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_a_loss_that_is_no_number_ends_the_run_with_advice(holdfast):
    done = holdfast("run", "permuted_digits", "--set", "lr=1e30", *SMALL)
    assert done.returncode == 1
    assert "lower the learning rate" in done.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_cleanly_with_the_command_that_continues(number, tmp_path, holdfast):
    arguments = ["run", "permuted_digits", "--n-tasks", "4", "--out", "my runs"]
    with begun(tmp_path, *arguments, "--fresh") as command:  # which would throw away what was done
        assert "permuted_digits er" in command.stdout.readline()  # it has begun
        os.kill(command.pid, number)
        command.stdout.read()
        message = command.stderr.read()
    assert command.process.exitcode == 128 + number
    assert "Traceback" not in message
    continuing = message.strip().splitlines()[-1].split(maxsplit=1)[1]
    assert shlex.split(continuing) == arguments
    continued = holdfast(*shlex.split(continuing))
    assert continued.returncode == 0
    assert "continued    from step" in continued.stdout
    undisturbed = json.loads(holdfast("run", "permuted_digits", "--n-tasks", "4", "--out", "other", "--json").stdout)
    (resumed,) = json.loads(holdfast("show", "my runs", "--json").stdout)
    assert resumed["accuracies"] == undisturbed["accuracies"]


def test_a_method_of_another_package_is_named_by_module_and_class(tmp_path, holdfast):
    (tmp_path / "mine.py").write_text(
        "from dataclasses import dataclass\n"
        "from holdfast.methods.finetune import Finetune\n"
        "@dataclass(kw_only=True, eq=False)\n"
        "class Mine(Finetune):\n"
        "    'My own.'\n"
        "    strength: float = 1.0\n"
    )
    options = ["--method", "mine:Mine", "--set", "method.strength=2.0", *SMALL]
    done = holdfast("run", "permuted_digits", *options)
    assert done.returncode == 0, done.stderr
    assert "mine:Mine (strength=2.0)" in done.stdout


def test_help_and_version(holdfast):
    assert holdfast("--version").stdout.startswith("holdfast 0.")
    assert "compare" in holdfast("--help").stdout


def test_compare_gives_methods_without_a_row_what_is_shared_and_says_what_differs(tmp_path, holdfast):
    (tmp_path / "my_rows.py").write_text(
        "from dataclasses import dataclass\n"
        "from holdfast.methods.er import ER\n"
        "@dataclass(kw_only=True, eq=False)\n"
        "class Mine(ER):\n"
        "    'My own.'\n"
    )
    done = holdfast("compare", "permuted_digits", "--methods", "er,er_ace,my_rows:Mine,drr", *SMALL)
    assert done.returncode == 0, done.stderr
    assert "unless said below: average=none, selection=ring(per_class=5)" in done.stdout
    assert "drr: selection=centroid(epsilon=2, per_class=5, max_centroids=2048), average=0.95" in done.stdout
    results = json.loads(holdfast("show", "runs", "--json").stdout)
    assert {result["experiment"]["method"]["replay_size"] for result in results} == {32}


def test_runs_of_two_protocols_never_stand_in_one_table(holdfast):
    for tasks in (["--n-tasks", "1"], ["--n-tasks", "2"], ["--n-tasks", "1", "--tasks", "tuning"]):
        holdfast("compare", "permuted_digits", "--methods", "er,joint", "--seeds", "1",
                 "--set", "stream.samples_per_task=20", *tasks)  # fmt: skip
    for arguments in (["show", "runs"], ["show", "runs", "--markdown"]):
        shown = holdfast(*arguments).stdout
        kinds = ("1 reported task,", "2 reported tasks,", "1 tuning task,")
        headings = [line for line in shown.splitlines() if "permuted_digits: " in line]
        assert [kind in heading for kind, heading in zip(kinds, headings, strict=True)] == [True] * 3
        assert shown.count("A_T (%)") == shown.count("joint") == 3
