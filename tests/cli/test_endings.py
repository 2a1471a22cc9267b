"""The end of a command by an error: a sentence, or the lines of the user's own code."""

from __future__ import annotations

import zlib
from pathlib import Path

import pytest

from holdfast.cli.endings import end_of
from tests.support.command import SMALL

MINE = """
from dataclasses import dataclass
from holdfast.methods.finetune import Finetune

@dataclass(kw_only=True, eq=False)
class Mine(Finetune):
    'My own.'

    def observe(self, batch):
        return self.helper(batch)

    def helper(self, batch):
        {line}
"""


def write_mine(folder: Path, line: str) -> str:
    """Write a method into a module of its own; its name, which no other test has imported."""
    name = f"mine_{zlib.crc32(line.encode())}"
    (folder / f"{name}.py").write_text(MINE.format(line=line))
    return name


@pytest.mark.parametrize(
    ("line", "raised"),
    [
        ("return self.modle.loss(batch)", "AttributeError: 'Mine' object has no attribute 'modle'"),
        ("raise ValueError('my own sentence')", "ValueError: my own sentence"),
        ("return self.model.loss(batch.x)", "AttributeError: 'Tensor' object has no attribute"),
    ],
)
def test_an_error_in_an_own_method_shows_its_lines_and_no_others(line, raised, tmp_path, holdfast):
    name = write_mine(tmp_path, line)
    done = holdfast("run", "permuted_digits", "--method", f"{name}:Mine", "-q", *SMALL)
    assert done.returncode == 1
    lines = done.stderr.splitlines()
    assert lines[:5] == [
        "holdfast: an error in code of your own",
        f"  {name}.py, line 10, in observe",
        "    return self.helper(batch)",
        f"  {name}.py, line 13, in helper",
        f"    {line}",
    ]
    assert len(lines) == 6
    assert lines[5].startswith(raised)


@pytest.mark.usefixtures("forked_workers")
def test_in_a_sweep_the_line_of_the_own_method_is_named(tmp_path, holdfast):
    name = write_mine(tmp_path, "raise ValueError('a sentence of a sweep')")
    done = holdfast("sweep", "permuted_digits", "--methods", f"{name}:Mine", "--seeds", "1", "--workers", "1", *SMALL)
    assert done.returncode == 1
    assert f"ValueError: a sentence of a sweep ({name}.py, line 13, in helper)" in done.stderr


def test_an_error_while_an_own_module_is_imported_shows_its_line(tmp_path, holdfast):
    (tmp_path / "of_nothing.py").write_text("import nothing_there\n")
    (tmp_path / "not_python.py").write_text("x = 1\nx +* 2\n")
    missing = holdfast("run", "permuted_digits", "--method", "of_nothing:Mine")
    assert missing.returncode == 2
    assert "No module named 'nothing_there'\n  of_nothing.py, line 1, in <module>" in missing.stderr
    wrong = holdfast("run", "permuted_digits", "--method", "not_python:Mine")
    assert wrong.returncode == 1
    assert "not_python.py, line 2" in wrong.stderr
    assert "SyntaxError" in wrong.stderr


def test_an_error_of_ours_that_passes_through_an_own_method_is_its_sentence(tmp_path, holdfast):
    name = write_mine(tmp_path, "return super().observe(batch)")
    done = holdfast("run", "permuted_digits", "--method", f"{name}:Mine", "--set", "lr=1e30", *SMALL)
    assert done.returncode == 1
    assert len(done.stderr.strip().splitlines()) == 1
    assert "lower the learning rate" in done.stderr


@pytest.mark.parametrize("command", ["run", "compare", "sweep", "paper", "report"])
@pytest.mark.parametrize("place", ["afile", "afile/below"])
def test_an_out_that_is_no_folder_is_one_sentence(command, place, tmp_path, holdfast):
    (tmp_path / "afile").write_text("")
    (tmp_path / "runs").mkdir()
    what = {"paper": ["table-6", "--run"], "report": ["runs"]}.get(command, ["permuted_digits", *SMALL])
    done = holdfast(command, *what, "--out", place)
    assert done.returncode == 1
    assert done.stderr.startswith(f"holdfast: --out {place} ")
    assert done.stderr.endswith(
        "afile is no folder: give another --out\n" if "/" in place else "is no folder: give another --out\n"
    )
    assert len(done.stderr.splitlines()) == 1
    assert list((tmp_path / "runs").iterdir()) == []


# Every value is checked before data is looked for, of which there is none here.
@pytest.mark.parametrize(
    ("options", "told"),
    [
        ("--set method.replay_size=-1", "er.replay_size: Input should be greater than or equal to 0, not -1"),
        ("--set method.average=2", "er.average: Input should be less than 1, not 2"),
        ("--set method.epsilon=4", "'centroid' (selection.epsilon)"),
        ("--set lr=-1", "lr: Input should be greater than 0, not -1"),
        ("--set lr=nan", "lr"),
        ("--set memory=0", "a memory of 0 samples holds nothing"),
        ("--set memory=5XB", "5XB"),
        ("--set batch_size=0", "batch_size: Input should be greater than or equal to 1, not 0"),
        ("--set momentum=1", "momentum: Input should be less than 1, not 1"),
        ("--set optimizer=sdg", "optimizer"),
        ("--set backbone.hidden=[0]", "hidden"),
        ("--set selection.per_class=0", "per_class"),
        ("--set stream.samples_per_task=0", "samples_per_task: Input should be greater than or equal to 1, not 0"),
        ("--n-tasks 500", "the stream has 17"),
        ("--n-tasks 0", "n_tasks: Input should be greater than or equal to 1, not 0"),
        ("--tasks none", "tasks"),
        ("--set seed=-1", "seed"),
        ("--set setting=classes", "setting"),
        ("--set head=round", "head"),
        ("--device nowhere", "device 'nowhere' cannot be used here"),
        ("--probe curve.every=0", "every"),
    ],
)
def test_a_wrong_value_is_named_where_there_is_no_data(options, told, holdfast):
    done = holdfast("run", "permuted_mnist", "--data", "nowhere", *options.split())
    assert done.returncode in (1, 2)
    assert told in done.stderr
    assert "holdfast data download" not in done.stderr


def test_what_the_system_refuses_is_named_with_its_place(tmp_path, holdfast):
    done = holdfast("run", "permuted_digits", "--out", "/proc/of_nobody", *SMALL)
    assert done.returncode == 1
    assert done.stderr == "holdfast: cannot read or write '/proc/of_nobody': No such file or directory\n"
    (tmp_path / "folder.toml").mkdir()
    done = holdfast("run", "folder.toml")
    assert (done.returncode, "folder.toml is a folder: name a TOML file" in done.stderr) == (2, True)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ("--columns A_T,nope", "no 'nope' in the columns of a table"),
        ("--methods er,", "an empty name in 'er,'"),
        ("--seeds 1-99999999999", "'1-99999999999' are more than 10,000 seeds"),
    ],
)
@pytest.mark.parametrize("command", ["compare", "sweep"])
def test_what_is_printed_at_the_end_is_checked_before_anything_is_learned(command, options, told, tmp_path, holdfast):
    done = holdfast(command, "permuted_digits", *options.split(), *SMALL)
    assert done.returncode == 2
    assert told in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "runs").exists()


def test_an_error_without_words_is_a_sentence_too():
    ending = end_of(MemoryError())
    assert ending is not None
    assert "out of memory" in ending.text
