"""A stream of another package, run by its name as a method of another package is."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from holdfast.experiments.recipes import load_recipe
from holdfast.experiments.results import ResultStore
from holdfast.experiments.run import run
from holdfast.parts import Unknown
from holdfast.streams._base import Stream, Task, all_rows

NAME = f"{__name__}:Noise"


class Noise(Stream):
    """Two tasks of two classes each, one number a sample."""

    n_classes = 4
    input_shape = (1,)
    n_held_out = 0

    def __init__(self, data: Path | None = None, *, seed: int = 0, n: int = 20) -> None:
        x = torch.randn(n, 1, generator=torch.Generator().manual_seed(seed))
        samples = all_rows(lambda rows: x[rows], torch.arange(n) % 4)
        tasks = []
        for i in range(2):
            own = samples.only(samples.y // 2 == i).of_task(i)
            tasks.append(Task(i, (2 * i, 2 * i + 1), own, own))
        super().__init__(tasks)


def test_a_stream_of_another_package_runs_by_its_name(tmp_path: Path):
    experiment = load_recipe(NAME).experiment("finetune", seed=3, changes={"stream.n": 40})
    result = run(experiment, ResultStore(tmp_path))
    assert (experiment.stream.name, experiment.stream.options) == (NAME, {"n": 40})
    assert result.experiment == experiment
    assert (tmp_path / NAME.replace(":", ".")).is_dir()


def test_a_stream_that_cannot_be_imported_is_named():
    with pytest.raises(Unknown, match="no 'nowhere_at_all:Mine' to import: No module named 'nowhere_at_all'"):
        load_recipe("nowhere_at_all:Mine")
    with pytest.raises(Unknown, match=r"is not of the streams: derive it from Stream"):
        load_recipe("collections:Counter")
