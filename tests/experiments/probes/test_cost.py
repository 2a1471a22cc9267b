from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.checks.probes import toy_experiment
from holdfast.experiments.measured import check_parts
from holdfast.experiments.probes.cost import _without_small_divisors
from holdfast.experiments.results import ResultStore
from holdfast.experiments.run import run
from holdfast.experiments.tables import comparison, parse_columns


def test_every_run_says_what_a_batch_costs(tmp_path: Path) -> None:
    cheap, dear = (
        run(toy_experiment(method={"name": "er", "replay_size": n}), ResultStore(tmp_path / str(n))) for n in (10, 20)
    )
    flops = [result.metrics["gigaflops_per_batch"] for result in (cheap, dear)]
    assert flops[1] == pytest.approx(1.5 * flops[0], rel=0.02)  # the first samples are replayed before there are ten
    head, (first, *_) = comparison([cheap], columns=parse_columns("A_T,GFLOP/batch"))
    assert head[2] == "GFLOP/batch"
    assert float(first[2]) == pytest.approx(flops[0], abs=1e-3)


def test_a_few_batches_are_counted_evenly() -> None:
    assert [_without_small_divisors(n) for n in (7, 8, 100)] == [7, 11, 101]


def test_operations_of_no_batch_are_refused() -> None:
    with pytest.raises(ValueError, match="operations of no batch"):
        check_parts({"cost": {"counted": 0, "flops": 5}})
