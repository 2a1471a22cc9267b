"""Table of DRR beside other methods under equal terms, from the stored runs of the recipes `equal_*`."""

from __future__ import annotations

import math
from pathlib import Path

from holdfast.experiments.results import Result, ResultStore
from holdfast.experiments.tables import Rows, mean_and_spread
from holdfast.report.statistics import holm, paired_t_test

RESULTS = Path(__file__).parents[1] / "results"
BENCHMARKS = {
    "equal_permuted_mnist": "Permuted MNIST",
    "equal_split_cifar100": "Split CIFAR",
    "equal_split_cub": "Split CUB",
    "equal_split_awa_features": "AWA features",
}
OTHERS = {"er": "ER", "der_plus_plus": "DER++", "scr": "SCR", "mdmt_r": "MDMT-R"}
OURS = {"drr": "DRR", "drr_plus": "DRR+"}
LEAST_SEEDS = 3  # of a test


def equal_terms(root: Path = RESULTS) -> Rows:
    """Return a line for each benchmark that has runs: A_T of each row, and the lead of DRR.

    The lead is over the best row without DRR's parts, on the seeds that both have. Its p-value is of a paired t-test,
    corrected by Holm's method for the number of such rows. Two seeds are too few for one.
    """
    lines = []
    for name, benchmark in BENCHMARKS.items():
        results = ResultStore(root / name).results() if (root / name).is_dir() else []
        if results:
            rows = {row: _by_seed(results, row) for row in (*OTHERS, *OURS)}
            lines.append([benchmark, *map(_cell, rows.values()), _lead(rows)])
    return ["A_T (%)", *OTHERS.values(), *OURS.values(), "lead of DRR, p"], lines


def _by_seed(results: list[Result], row: str) -> dict[int, float]:
    found = [each for each in results if each.experiment.row == row]
    return {each.experiment.seed: 100 * each.metrics["average_accuracy"] for each in found}


def _cell(values: dict[int, float]) -> str:
    return f"{mean_and_spread(list(values.values()), 1, 2)} ({len(values)})" if values else "not run"


def _lead(rows: dict[str, dict[int, float]]) -> str:
    """Return by how much DRR is above the best other row, and the p-value of that."""
    own = rows["drr"]
    leads: dict[str, tuple[float, float]] = {}
    for row in OTHERS:
        seeds = sorted(own.keys() & rows[row].keys())
        if seeds:
            mine, others = [own[seed] for seed in seeds], [rows[row][seed] for seed in seeds]
            p = paired_t_test(mine, others) if len(seeds) >= LEAST_SEEDS else math.nan
            leads[OTHERS[row]] = (sum(mine) - sum(others)) / len(seeds), p
    if not leads:
        return "-"
    corrected = dict(zip(leads, holm([p for _, p in leads.values()]), strict=True))
    best = min(leads, key=lambda row: leads[row][0])
    p = corrected[best]
    return f"{leads[best][0]:+.2f} over {best}, " + ("too few seeds" if math.isnan(p) else f"p = {p:.3f}")
