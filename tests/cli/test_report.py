"""`holdfast report` as a user calls it, and `--record`, which gives it more to show."""

from __future__ import annotations

import pytest

from tests.support.command import SMALL
from tests.support.made_up_results import store

# The command prints its warnings, which is tested here.
pytestmark = pytest.mark.filterwarnings("always::UserWarning")


def test_it_writes_one_page_and_says_where(tmp_path, holdfast):
    store(tmp_path / "runs", "permuted_digits", "er", {1: 0.5, 2: 0.6})
    done = holdfast("report", "runs", "--out", "deep/report")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.strip() == "2 runs, written to deep/report/index.html"
    assert [path.name for path in (tmp_path / "deep" / "report").iterdir()] == ["index.html"]


def test_a_broken_file_is_named_on_the_page_and_on_the_terminal(tmp_path, holdfast):
    store(tmp_path / "runs", "permuted_digits", "er", {1: 0.5})
    (tmp_path / "runs" / "broken").mkdir()
    (tmp_path / "runs" / "broken" / "result.json").write_text("{")
    done = holdfast("report", "runs")
    assert done.returncode == 0
    assert done.stdout.strip() == "1 run, written to report/index.html"
    assert "warning: runs/broken/result.json is no result of a run" in done.stderr
    assert "runs/broken/result.json is no result of a run" in (tmp_path / "report" / "index.html").read_text()


def test_no_folder_is_one_sentence(holdfast):
    done = holdfast("report", "nowhere")
    assert done.returncode == 1
    assert done.stderr.strip() == "holdfast: no folder of results at nowhere: name one that holds runs"


def test_what_a_comparison_recorded_is_on_the_page(tmp_path, holdfast):
    done = holdfast("compare", "split_digits", "--methods", "finetune,er", "--record", *SMALL)
    assert done.returncode == 0, done.stderr
    assert len(list((tmp_path / "runs").rglob("record.safetensors"))) == 2
    assert holdfast("report").returncode == 0
    assert '"places":' in (tmp_path / "report" / "index.html").read_text()


def test_a_finished_run_without_a_record_is_not_run_again_unasked(tmp_path, holdfast):
    arguments = ["run", "split_digits", "--method", "er", *SMALL]
    assert holdfast(*arguments).returncode == 0
    done = holdfast(*arguments, "--record")
    assert done.returncode == 0
    assert "finished without --record: --fresh runs it again" in done.stderr
    assert not list((tmp_path / "runs").rglob("record.safetensors"))
