"""Small results that no one ran, and tables of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from holdfast.experiments.experiment import Experiment
from holdfast.experiments.recipes import load_recipe
from holdfast.experiments.results import Result, ResultStore
from holdfast.report.tables import Cell, Column, Row, Run, Table, Verdict, parse_printed


def result(experiment: Experiment, last: float = 0.5, n_tasks: int = 2) -> Result:
    """Every task is learned to 0.9 and all old ones then are at `last`."""
    accuracies = [[last if j < t else 0.9 if j == t else None for j in range(n_tasks)] for t in range(n_tasks)]
    return Result(
        experiment=experiment,
        accuracies=accuracies,
        n_steps=4,
        seconds=0.1,
        seconds_testing=0.5,
        memory_samples=3,
        memory_bytes=99,
        n_parameters=7,
        versions={"torch": "2", "commit": "abc"},
    )


def store(folder: Path, recipe: str, row: str, lasts: dict[int, float], *, size: Any = "full", **changes: Any) -> None:
    """Put results of a row into a folder, by seed what is left of old tasks; changes as 'stream__n_tasks=3'."""
    dotted = {name.replace("__", "."): value for name, value in changes.items()}
    for seed, last in lasts.items():
        experiment = load_recipe(recipe).sized(size).experiment(row, seed=seed, changes=dotted)
        results = ResultStore(folder)
        with results.claimed(experiment):
            results.save(result(experiment, last))


HOSTILE = [
    "</script><script>window.hacked = 1</script>",
    '"><img src=x onerror="window.hacked = 1">',
    "<!--<script>",
    "{{script}} ${window.hacked = 1}",
]


def hostile_results(folder: Path) -> list[str]:
    """Put results into a folder whose rows, benchmarks, versions and files have names that mean to do harm."""
    for i, name in enumerate(HOSTILE):
        settings = {"stream": "split_digits", "row": name, "benchmark": name if i % 2 else "split_digits"}
        made = result(Experiment.model_validate(settings)).model_copy(update={"versions": {name: name}})
        place = folder / f"{i} & <b onclick=alert(1)>'%22"
        place.mkdir(parents=True)
        (place / "result.json").write_text(made.model_dump_json())
    (folder / "<script>window.hacked = 1<").mkdir()
    (folder / "<script>window.hacked = 1<" / "result.json").write_text("<script>")
    return HOSTILE


def run(seed: int, path: str = "results/a/b/{}/result.json") -> Run:
    experiment = Experiment.model_validate({"stream": "split_digits", "seed": seed})
    return Run(Path(path.format(seed)), result(experiment))


def table() -> Table:
    """Two columns of numbers and one of words, with all that has to be escaped in some format."""
    columns = (Column("A_T (%)", 2, "more"), Column("F_T", 3, "less"), Column("terms"))
    strange = Row(
        r"a&b <i>|50%_$#{}~^\ [x]*",
        "a",
        (
            Cell(
                {1: 70.0, 2: 72.0},
                (run(1), run(2)),
                parse_printed("70.5±0.50"),
                verdict=Verdict("reproduced"),
                best=True,
            ),
            Cell({}, paper=parse_printed("0.03")),
            Cell({}, paper_text="2P+MH̃"),
        ),
    )
    other = Row(
        "ε-other",
        "b",
        (
            Cell({1: 50.126}, (run(1, "results/b c/{}/result.json"),), departures=("lr=1 instead of 2",)),
            Cell(
                {1: 0.1},
                (run(1, "results/b c/{}/result.json"),),
                parse_printed("0.05±0.010"),
                verdict=Verdict("above", ("1 of 5 seeds",)),
            ),
            Cell({}),
        ),
    )
    return Table("table-0", "Made & up", "method", columns, (strange, other), ("A note of 5 %.",))
