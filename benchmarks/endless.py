"""Do memory and time of a step stay flat over 200,000 small batches?

    python benchmarks/endless.py [--batches 200000] [--cases er drr hedge] > results/endless.txt

| case | stream |
|---|---|
| `er`, `drr` | vectors of 20 numbers under a byte budget, in a journal that is rotated |
| `hedge` | rows of a table with numbers, a category and missing values |

Each batch has 10 samples. Class means wander, and two of them change places every 5,000 batches, which raises alarms.
A new class comes with each tenth of the stream. Vectors of each tenth batch wait for labels that never come: 300 can
wait, and the oldest expire.

Each of ten windows shows the median processor time of a step, and the resident memory at its end. Some steps are also
made by a twin: a copy of the learner at the end of the first window, loaded again for each window. The twin sees the
same batches at the same time, so the ratio of both times does not depend on other work on the machine. The first
window is left out of the comparison, since the memory is being filled in it.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from holdfast import Learner, TableLearner, load_learner
from holdfast.core.calls import CallJournal
from holdfast.tables import load_table_learner

N_FEATURES, N_CLASSES, BATCH, WINDOWS, TIMED = 20, 5, 10, 10, 20
SWITCH, LATE, SAVED = 5_000, 10, 5_000  # batches: between changes, between those that wait for labels, between saves


class Stream:
    """Samples of classes whose means wander, change places, and become more."""

    def __init__(self, n_batches: int) -> None:
        self.rng = torch.Generator().manual_seed(0)
        self.means = 2 * torch.randn(N_CLASSES + WINDOWS, N_FEATURES, generator=self.rng)
        self.per_window = n_batches // WINDOWS

    def batch(self, i: int) -> tuple[Tensor, Tensor]:
        """Return batch `i`; batches are taken in their order."""
        n_classes = N_CLASSES + i // self.per_window
        self.means += 0.002 * torch.randn(self.means.shape, generator=self.rng)
        if i % SWITCH == SWITCH - 1:
            self.means[:2] = self.means[:2].flip(0)
        y = torch.randint(n_classes, (BATCH,), generator=self.rng)
        return self.means[y] + torch.randn(BATCH, N_FEATURES, generator=self.rng), y


class Vectors:
    """A learner of vectors with everything around it: journal, budget, boundaries, late labels."""

    def __init__(self, method: str, folder: Path) -> None:
        self.saved, self.alarms = folder / "learner", 0
        journal = CallJournal(folder / "journal", segment_bytes=2**20)
        self.learner = Learner(
            method,
            backbone={"name": "mlp", "hidden": [64]},
            lr=0.05,
            memory="1 MB",
            boundaries="adwin",
            waiting=300,
            journal=journal,
        )
        self.learner.on_drift(lambda _: setattr(self, "alarms", self.alarms + 1))

    def around(self, i: int, x: Tensor, y: Tensor) -> None:
        """Do what is done now and then beside learning."""
        if i % SAVED == SAVED - 1:
            self.learner.save(self.saved)
        if i and i % LATE == 0:
            self.learner.predict(x, ids=[f"{i}-{place}" for place in range(len(y))])

    def observe(self, x: Tensor, y: Tensor) -> float:
        return self.learner.observe(x, y)

    def twin(self) -> Callable[[Tensor, Tensor], float]:
        """Return what observes with a copy of the learner as it was saved in the first window."""
        copy = self.saved.with_suffix(".early")
        if not copy.exists():
            self.learner.save(copy)
        return load_learner(copy).observe

    def said(self) -> str:
        assert self.learner.memory is not None
        assert self.learner.practice is not None
        journal = self.learner.opened_journal
        assert journal is not None
        return (
            f"{self.alarms} drift alarms, {self.learner.practice.waiting.n_expired:,} inputs expired, "
            f"{len(self.learner.memory):,} samples in memory, {journal.journal.nbytes / 1e6:.1f} MB of journal"
        )


class Rows:
    """A learner of rows with numbers, a category and missing values."""

    def __init__(self, method: str, folder: Path) -> None:
        self.saved = folder / "table"
        self.learner = TableLearner("label", method=method)

    def around(self, i: int, x: Tensor, y: Tensor) -> None:
        if i % SAVED == SAVED - 1:
            self.learner.save(self.saved)

    def rows(self, x: Tensor, y: Tensor) -> list[dict[str, Any]]:
        return [
            {f"c{place}": value for place, value in enumerate(row[:4])}
            | {"kind": "abcdef"[int(abs(row[4])) % 6], "gap": None if row[5] > 3 else row[5], "label": f"class {label}"}
            for row, label in zip(x.tolist(), y.tolist(), strict=True)
        ]

    def observe(self, x: Tensor, y: Tensor) -> float:
        return self.learner.observe(self.rows(x, y))

    def twin(self) -> Callable[[Tensor, Tensor], float]:
        copy = self.saved.with_suffix(".early")
        if not copy.exists():
            self.learner.save(copy)
        twin = load_table_learner(copy)
        return lambda x, y: twin.observe(self.rows(x, y))

    def said(self) -> str:
        return f"{len(self.learner.accuracy.alarms)} drift alarms, accuracy {100 * self.learner.accuracy.window:.1f} %"


def resident() -> float:
    """Resident memory of this process in MB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def seconds_of(call: Callable[[Tensor, Tensor], float], x: Tensor, y: Tensor) -> float:
    """Return the processor time of a step."""
    start = time.thread_time()
    call(x, y)
    return time.thread_time() - start


def watched(name: str, n_batches: int, folder: Path) -> None:
    torch.manual_seed(0)
    case = Rows(name, folder) if name == "hedge" else Vectors(name, folder)
    stream = Stream(n_batches)
    print(
        f"{name}: window, batches, median step in µs of processor time, that of its twin, ratio, resident MB",
        flush=True,
    )
    ratios, memory = [], []
    twin: Callable[[Tensor, Tensor], float] | None = None
    for window in range(WINDOWS):
        taken, of_twin = [], []
        for i in range(window * stream.per_window, (window + 1) * stream.per_window):
            x, y = stream.batch(i)
            case.around(i, x, y)
            if i % TIMED:
                case.observe(x, y)
                continue
            taken.append(seconds_of(case.observe, x, y))
            of_twin.append(seconds_of(twin or (lambda _, __: 0.0), x, y))
        twin = case.twin()
        step, beside = 1e6 * statistics.median(taken), 1e6 * statistics.median(of_twin)
        ratios.append(step / beside)
        memory.append(resident())
        shown = f"{beside:>9.1f}{ratios[-1]:>8.3f}" if window else f"{'-':>9}{'-':>8}"
        print(f"{window:>3}{(window + 1) * stream.per_window:>9}{step:>9.1f}{shown}{memory[-1]:>9.1f}", flush=True)
    early, late = statistics.mean(ratios[1:4]), statistics.mean(ratios[-3:])
    print(
        f"{name}: last three windows to windows 2 to 4: step {late / early:.3f}, resident memory "
        f"{statistics.mean(memory[-3:]) / statistics.mean(memory[1:4]):.3f}; {case.said()}\n",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batches", type=int, default=200_000)
    parser.add_argument("--cases", nargs="+", default=["er", "drr", "hedge"], choices=["er", "drr", "hedge"])
    given = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    print(f"{given.batches:,} batches of {BATCH} samples, a new class in each of {WINDOWS} windows, one thread\n")
    for name in given.cases:
        with tempfile.TemporaryDirectory() as folder:
            watched(name, given.batches, Path(folder))


if __name__ == "__main__":
    main()
