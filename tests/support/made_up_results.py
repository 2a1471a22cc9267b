"""Small results that no one ran, and tables and figures of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch

from holdfast.core.checkpoint import write_checkpoint
from holdfast.experiments.experiment import Experiment
from holdfast.experiments.probes.footprint import Footprint
from holdfast.experiments.probes.record import RECORD, Record
from holdfast.experiments.recipes import load_recipe
from holdfast.experiments.results import Result, ResultStore
from holdfast.report.figures import Figure, MethodMap
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
        footprint=Footprint(weights=1_000_000, passes=500_000, samples=0, features=0, logits=0, own=0),
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
                verdict=Verdict("reproduced", n_seeds="2 of 5 seeds"),
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
                verdict=Verdict("above", ("lr=1 instead of 2",), "1 of 5 seeds"),
            ),
            Cell({}),
        ),
    )
    return Table("table-0", "Made & up", "method", columns, (strange, other), ("A note of 5 %.",))


def learned_in_turn(experiment: Experiment, rng: np.random.Generator, n_tasks: int) -> Result:
    """A result whose every number is another."""
    made = result(experiment, n_tasks=n_tasks)
    accuracies = [[round(float(a), 4) if j <= t else None for j, a in enumerate(rng.random(n_tasks))]
                  for t in range(n_tasks)]  # fmt: skip
    moved = [
        [0.0 if i == t else round(float(d), 4) for i, d in enumerate(3 * rng.random(t + 1))] for t in range(n_tasks)
    ]
    apart = [[[1.0] * i for i in range(t + 1)] for t in range(n_tasks)]
    return made.model_copy(update={"accuracies": accuracies, "moved": moved, "apart": apart})


def store_in_turn(
    folder: Path, recipe: str, row: str, seeds: list[int], *, n_tasks: int = 17, size: Any = "full", **changes: Any
) -> list[Result]:
    """Put such results of a row into a folder, without a record."""
    made = []
    for seed in seeds:
        experiment = load_recipe(recipe).sized(size).experiment(row, seed=seed, changes=changes)
        rng = np.random.default_rng([seed, *f"{recipe} {row}".encode()])
        made.append(learned_in_turn(experiment, rng, n_tasks))
        with ResultStore(folder).claimed(experiment):
            ResultStore(folder).save(made[-1])
    return made


def put_record(folder: Path, of: Result, n: int = 40) -> Record:
    """Put a record beside a result: three clouds that wander, in ten dimensions."""
    rng = np.random.default_rng(of.experiment.seed)
    y = np.arange(n) % 3
    start = 20 * np.eye(10)[y] + rng.normal(size=(n, 10))
    features = torch.from_numpy(np.stack([start + t * rng.normal(size=(n, 10)) for t in range(len(of.accuracies))]))
    content: dict[str, Any] = {
        "digest": of.experiment.digest,
        "features": features.half(),
        "y": torch.from_numpy(y),
        "share": 1.0,
        "n_steps": 4,
        "memory": None,
    }
    write_checkpoint(ResultStore(folder).folder(of.experiment) / RECORD, content)
    return Record(**content)


def cell(*values: float, departures: tuple[str, ...] = ()) -> Cell:
    return Cell(dict(enumerate(values)), departures=departures)


def bars() -> Figure:
    """Two benchmarks, on one of which a method was not run."""
    rows = (
        Row("ER", "er", (cell(90.0), cell(40.0, 60.0))),
        Row("DRR <&>", "drr", (cell(25.0, departures=("lr=1 instead of 2",)), cell())),
    )
    columns = (Column("One", 2), Column("Two", 2), Column("Never run", 2))
    rows = tuple(Row(row.label, row.name, (*row.cells, cell())) for row in rows)
    table = Table("figure-0", "Made up", "method", columns, rows, ("A note.", "Another & <more>."))
    return Figure("figure-0", "Made up", "learned", (table,), ("drr", "er"))


def lines() -> Figure:
    """Two panels of four tasks, one of one task, and one without runs."""
    columns = tuple(Column(f"A_{t} (%)", 1) for t in (1, 2, 3, 4))
    er = Row("ER", "er", (cell(90.0, 94.0), cell(80.0, 80.0), cell(70.0, 74.0), cell(60.0, 68.0)))
    drr = Row("DRR", "drr", (cell(95.0), cell(85.0), cell(82.0), cell(81.0)))
    short = Row("DRR", "drr", (cell(50.0), cell(40.0), cell(), cell()))
    tables = (
        Table("figure-0/one", "One", "method", columns, (er, drr)),
        Table("figure-0/two", "Two", "method", columns, (short,)),
        Table("figure-0/three", "Three", "method", columns[:1], (Row("ER", "er", (cell(0.0),)),)),
        Table("figure-0/four", "Four", "method", (), (), ("four: no run is stored.",)),
    )
    return Figure("figure-0", "Made up", "trend", tables, ("drr", "er"))


def maps() -> Figure:
    """Two methods, the second of which learned one task less."""
    rng = np.random.default_rng(0)
    y = np.arange(30) % 3
    places = [rng.normal(size=(k, 30, 2)) * [100, 10] for k in (3, 2)]
    drawn = (
        MethodMap("agem", "A-GEM", 1, (1, 9, 17), (0.0, 1.25, None), places[0], y),
        MethodMap("drr", "DRR", 1, (1, 9), (0.0, 0.5), places[1], y + 9),
    )
    columns = tuple(Column(f"after task {task}", 2) for task in (1, 9, 17))
    table = Table("figure-0", "Made up", "method", columns, ())
    return Figure("figure-0", "Made up", "drift", (table,), ("drr", "agem"), (1, 9, 17), drawn, ("One run a method.",))
