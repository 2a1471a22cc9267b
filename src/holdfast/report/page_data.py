"""Stored results as the plain data that the page of a report is drawn from."""

from __future__ import annotations

import base64
import io
import math
import shlex
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from holdfast.core.classes import SETTING_MEANINGS
from holdfast.experiments import metrics
from holdfast.experiments.equivalent import MARK, Equivalences, code_marks, read_equivalences
from holdfast.experiments.measured import confusion_of, curve_of, prequential_of
from holdfast.experiments.probes.record import Record, StoredSamples
from holdfast.experiments.protocol import Protocol, protocol_of
from holdfast.experiments.results import Result
from holdfast.experiments.tables import COLUMNS, grouped, mean_and_spread, measured, unlike
from holdfast.experiments.under_way import under_way
from holdfast.report.drift_map import NO_MAP, drift_map
from holdfast.report.paper import BETTER, stored_runs
from holdfast.report.recorded import first_record
from holdfast.report.tables import Cell, Column, Row, Run, Table, with_best

Data = dict[str, Any]  # what JSON can hold
Curve = list[float | None]

MAP_SIZE = 1000  # whole numbers across a drift map
MEANINGS = {str(setting): meaning for setting, meaning in SETTING_MEANINGS.items()}
MAX_MOMENTS = 300  # of a learning curve that are drawn
SPRITE_COLUMNS = 20  # thumbnails beside each other in their one picture
SUBSETS = {"tuning": " – tuning tasks", "all": " – all tasks"}


def page_data(folder: Path, *, base: Path) -> Data:
    """Return all that the page shows of the results in `folder`; links are relative to the folder `base`.

    What cannot be read is named in `problems` and passed over.
    """
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        runs = stored_runs([folder])
    problems = [str(warning.message) for warning in caught]
    notes: list[str] = []
    by_section: dict[Protocol, list[Run]] = {}
    for run in runs:
        by_section.setdefault(protocol_of(run.result), []).append(run)
    # Tuning tasks come last.
    protocols = sorted(
        by_section,
        key=lambda protocol: ([*SUBSETS].index(protocol.tasks) if protocol.tasks in SUBSETS else -1, protocol),
    )
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        same = read_equivalences([folder])
        waiting = [run.line for run in under_way(folder)]
    problems += [str(warning.message) for warning in caught]
    sections = [_section(each, protocols, by_section[each], same, problems, notes, base) for each in protocols]
    labels = dict.fromkeys(method["label"] for section in sections for method in section["methods"])
    return {
        "folder": str(folder),
        "problems": problems,
        "notes": list(dict.fromkeys(notes)),
        "under_way": waiting,
        "labels": list(labels),  # the place of a label decides how its curves look, everywhere on the page
        "versions": _versions(runs),
        "sections": sections,
    }


def _title(protocol: Protocol, protocols: list[Protocol]) -> str:
    """Return the benchmark, and what tells the protocol from the others that are shown of it."""
    title = protocol.benchmark + SUBSETS.get(protocol.tasks, "")
    rivals = [each for each in protocols if each.benchmark + SUBSETS.get(each.tasks, "") == title]
    length = f"{protocol.n_tasks} {'task' if protocol.n_tasks == 1 else 'tasks'}"
    options = ", ".join(f"{name}={value}" for name, value in protocol.options)
    told = {
        "n_tasks": length,
        "setting": f"setting {protocol.setting}",
        "batch_size": f"batches of {protocol.batch_size}",
        "stream": f"stream {protocol.stream}",
        "options": options,
    }
    words = [text for name, text in told.items() if len({getattr(each, name) for each in rivals}) > 1]
    return " – ".join([title, *filter(None, words)])


def _versions(runs: list[Run]) -> dict[str, list[str]]:
    names = dict.fromkeys(name for run in runs for name in run.result.versions)
    return {name: sorted({v for run in runs if (v := run.result.versions.get(name)) is not None}) for name in names}


def _section(
    protocol: Protocol,
    protocols: list[Protocol],
    runs: list[Run],
    same: Equivalences,
    problems: list[str],
    notes: list[str],
    base: Path,
) -> Data:
    title = _title(protocol, protocols)
    by_digest = {run.result.experiment.digest: run for run in runs}
    groups = [
        (label, sorted((by_digest[result.experiment.digest] for result in results), key=lambda run: run.seed))
        for label, results in grouped([run.result for run in runs])
    ]
    marked, code = code_marks([(label, [run.result for run in group]) for label, group in groups], same)
    return {
        "title": title,
        "n_tasks": max(max(run.result.matrix.shape) for run in runs),
        "seeds": sorted({run.seed for run in runs}),
        "n_runs": len(runs),
        "protocol": protocol.heading,
        "setting": [protocol.setting, MEANINGS.get(protocol.setting, "")],
        "unlike": unlike([run.result for run in runs]),
        "code": code,
        "table": _table(title, groups, marked),
        "methods": [_method(label, group, problems, notes, base) for label, group in groups],
    }


def _table(title: str, groups: list[tuple[str, list[Run]]], marked: set[str]) -> Data:
    """Return the comparison: in each column the mean over seeds, the best marked where it is beyond the noise.

    Args:
        marked: labels of rows whose runs are of different code.
    """
    measures: list[tuple[Column, Callable[[Result], float | None]]] = [
        (Column(name, digits, BETTER.get(metric)), partial(measured, column=name))
        for name, (metric, _, digits) in COLUMNS.items()
    ]
    measures += [(Column("ms per step", 2), lambda result: result.milliseconds_per_step)]
    measures += [(Column("seconds", 1), lambda result: result.seconds)]
    rows = tuple(
        Row(label, label, tuple(_cell(value, group) for _, value in measures), is_bound=_is_bound(group))
        for label, group in groups
    )
    columns = tuple(column for column, _ in measures)
    table = with_best(Table("", title, "method", columns, rows))
    return {
        "header": ["method", *(column.title for column in columns), "seeds"],
        "lines": [
            {
                "label": row.label,
                "mark": MARK if row.label in marked else "",
                "cells": [
                    {
                        "text": mean_and_spread(list(cell.values.values()), 1, column.digits),
                        "value": _finite(cell.mean),
                        "best": cell.best,
                    }
                    for column, cell in zip(columns, row.cells, strict=True)
                ],
                "n_seeds": len(group),
            }
            for row, (_, group) in zip(table.rows, groups, strict=True)
        ],
    }


def _cell(value: Callable[[Result], float | None], group: list[Run]) -> Cell:
    by_seed = {run.seed: value(run.result) for run in group}
    return Cell({seed: found for seed, found in by_seed.items() if _finite(found) is not None and found is not None})


def _is_bound(group: list[Run]) -> bool:
    """Return True if the run learned all tasks at once, and so competes with no one."""
    return group[0].result.experiment.stream.name == "joint"


def _method(label: str, group: list[Run], problems: list[str], notes: list[str], base: Path) -> Data:
    """Return the data of one line of the comparison. Curves are over tasks, with mean and deviation over seeds."""
    curves_by_seed = [_curves(run, problems) for run in group]
    matrices = [run.result.accuracies for run in group]
    return {
        "label": label,
        "is_bound": _is_bound(group),
        "settings": {name: value for name, value in group[0].decided.items() if name != "seed"},
        "runs": [_run(run, base) for run in group],
        "mean_accuracies": [
            [_finite(_mean([m[t][j] for m in matrices])) for j in range(len(matrices[0][0]))]
            for t in range(len(matrices[0]))
        ]
        if len({(len(m), len(m[0])) for m in matrices}) == 1
        else None,
        "curves": {name: _over_seeds([curves[name] for curves in curves_by_seed]) for name in curves_by_seed[0]},
        "cost": _over_seeds([[_finite(run.result.milliseconds_per_step)] for run in group]),
        "accuracy": _over_seeds([[_finite(run.result.metrics.get("average_accuracy"))] for run in group]),
        "learning": _learning(group),
        "by_class": _by_class(group),
        "record": _recorded(group, problems, notes),
    }


def _run(run: Run, base: Path) -> Data:
    result = run.result
    return {
        "seed": run.seed,
        "path": str(run.path),
        "command": shlex.join(["holdfast", "remake", str(run.path)]),
        "address": run.address(base),
        "accuracies": [[_finite(a) for a in row] for row in result.accuracies],
        "metrics": {name: _finite(value) for name, value in result.metrics.items()},
        "n_steps": result.n_steps,
        "seconds": _finite(result.seconds),
        "seconds_testing": _finite(result.seconds_testing),
        "memory_samples": result.memory_samples,
        "memory_bytes": result.memory_bytes,
        "megabytes": result.megabytes,
        "n_parameters": result.n_parameters,
        "confusion": None if (confusion := confusion_of(result.probes)) is None else confusion.counts,
    }


def _learning(group: list[Run]) -> dict[str, Data]:
    """Return by name the curves that probes left: places of moments in samples or batches, mean and deviation.

    Seeds are averaged whose moments are those of the first seed that has any.
    """
    curves = [curve for run in group if (curve := curve_of(run.result.probes)) is not None and curve.steps]
    predicted = [part for run in group if (part := prequential_of(run.result.probes)) is not None and part.steps]
    found = {}
    if curves:
        alike = [curve for curve in curves if curve.samples == curves[0].samples]
        found["seen"] = _along(curves[0].samples, [curve.seen for curve in alike])
        found["loss"] = _along(curves[0].samples, [curve.losses for curve in alike])
    if predicted:
        like = [part for part in predicted if part.steps == predicted[0].steps]
        found["prequential"] = _along(predicted[0].steps, [part.window for part in like])
    return found


def _along(places: Sequence[int], curves: Sequence[Sequence[float | None]]) -> Data:
    """Return curves over at most MAX_MOMENTS moments, the last among them."""
    every = -(-len(places) // MAX_MOMENTS)
    kept = [i for i in range(len(places)) if (len(places) - 1 - i) % every == 0]
    return {"at": [places[i] for i in kept], **_over_seeds([[_finite(curve[i]) for i in kept] for curve in curves])}


def _by_class(group: list[Run]) -> Data | None:
    """Return the accuracy on each class: at the end, on test samples; else before learning, on those of the stream.

    It is over the samples of all seeds.
    """
    tested = [part.by_class() for run in group if (part := confusion_of(run.result.probes)) is not None]
    online = [each.by_class for run in group if (each := prequential_of(run.result.probes)) is not None]
    counts: dict[str, tuple[int, int]] = {}
    for by_class in tested or online:
        for y, (right, n) in by_class.items():
            before = counts.get(str(y), (0, 0))
            counts[str(y)] = (before[0] + right, before[1] + n)
    if not counts:
        return None
    kind = "tested" if tested else "online"
    return {"kind": kind, "accuracies": {y: right / n for y, (right, n) in counts.items() if n}}


def _curves(run: Run, problems: list[str]) -> dict[str, Curve]:
    """Return by name a number for each task learned.

    `average` is A_t and `learned` is a_tt. `first_moved` and `old_moved` are how far the first task, and the old ones
    on average, are from where they were; `nearest_apart` and `mean_apart` how far the two nearest, and all, are apart.
    """
    result = run.result
    matrix = result.matrix
    n_learned = len(matrix)
    curves: dict[str, Curve] = {
        "average": [_finite(metrics.average_accuracy(matrix, t)) for t in range(n_learned)],
        "learned": [_finite(a) for a in np.diagonal(matrix)] if matrix.shape[0] == matrix.shape[1] else [],
    }
    moved, apart = result.moved, result.apart
    if not result.drift_fits:
        problems.append(f"{run.path} has numbers of drift that do not fit its tasks, which are left out")
        moved, apart = [], []
    between = [[gap for row in gaps for gap in row] for gaps in apart]
    return curves | {
        "first_moved": [_finite(distances[0]) for distances in moved],
        "old_moved": [_finite(_mean(distances[:-1])) for distances in moved],
        "nearest_apart": [_finite(min(gaps, default=None)) for gaps in between],
        "mean_apart": [_finite(_mean(gaps)) for gaps in between],
    }


def _over_seeds(curves: Sequence[Curve]) -> dict[str, Curve]:
    """Return the mean and population standard deviation at each place, of what was measured there."""
    places = [[c[i] for c in curves if i < len(c)] for i in range(max(len(c) for c in curves))]
    known = [[value for value in place if value is not None] for place in places]
    return {
        "mean": [_finite(_mean(values)) for values in known],
        "deviation": [_finite(float(np.std(values))) if values else None for values in known],
    }


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None


def _finite(value: float | None) -> float | None:
    """Return the number, or None where JSON has none for it."""
    return None if value is None or not math.isfinite(value) else float(value)


def _recorded(group: list[Run], problems: list[str], notes: list[str]) -> Data | None:
    """Return the record of the first recorded run of a line. One seed only, because a map takes seconds."""
    found = first_record(group, problems)
    if found is None:
        return None
    run, record = found
    return {
        "seed": run.seed,
        "first_moved": _curves(run, [])["first_moved"],
        "map": _map(record, notes),
        "memory": None if record.memory is None else _memory(record.memory, record.n_steps),
    }


def _map(record: Record, notes: list[str]) -> Data | None:
    """Whole numbers from 0 to MAP_SIZE, by task and sample, as far apart in one direction as in the other."""
    if record.features is None:
        return None
    try:
        places = drift_map(record.features.numpy())
    except ImportError:
        notes.append(NO_MAP)
        return None
    if places is None:
        return None
    low, high = places.min(axis=(0, 1)), places.max(axis=(0, 1))
    middle, reach = (low + high) / 2, max(float((high - low).max()), 1e-12)
    scaled = np.rint(MAP_SIZE * ((places - middle) / reach + 0.5)).astype(int)
    return {"places": scaled.tolist(), "y": record.y.tolist(), "share": _finite(record.share)}


def _memory(memory: StoredSamples, n_steps: int) -> Data:
    """Return the content of memory. `samples` are of the thumbnails; an age is in batches, None if unknown."""
    ages = [None if step < 0 else n_steps - 1 - step for step in memory.step.tolist()]
    distances = (
        None if memory.distance is None else [_finite(float(f"{d:.4g}")) for d in memory.distance.double().tolist()]
    )
    y, task = memory.y.tolist(), memory.task.tolist()
    counts: dict[tuple[int, int], int] = {}
    for key in zip(task, y, strict=True):
        counts[key] = counts.get(key, 0) + 1
    return {
        "n": len(y),
        "n_steps": n_steps,
        "counts": [[*key, n] for key, n in sorted(counts.items())],
        "ages": ages,
        "distances": distances,
        "sprite": None if memory.thumbnails is None else _sprite(memory.thumbnails.numpy()),
        "samples": [
            {"y": y[i], "task": task[i], "age": ages[i], "distance": distances[i] if distances else None}
            for i in memory.shown.tolist()
        ],
    }


def _sprite(thumbnails: Any) -> Data:
    """Return the thumbnails (k, height, width, channels) in one picture, row by row."""
    k, height, width, n_channels = thumbnails.shape
    n_rows = -(-k // SPRITE_COLUMNS)
    sheet = np.zeros((n_rows * SPRITE_COLUMNS, height, width, n_channels), np.uint8)
    sheet[:k] = thumbnails
    sheet = sheet.reshape(n_rows, SPRITE_COLUMNS, height, width, n_channels).swapaxes(1, 2)
    pixels = sheet.reshape(n_rows * height, SPRITE_COLUMNS * width, n_channels)
    file = io.BytesIO()
    Image.fromarray(pixels[..., 0] if n_channels == 1 else pixels).save(file, "PNG", optimize=True)
    png = base64.b64encode(file.getvalue()).decode("ascii")
    return {"png": png, "width": width, "height": height, "columns": SPRITE_COLUMNS}
