"""Results as rows of text."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from holdfast.experiments.differences import between_rows, telling
from holdfast.experiments.equivalent import MARK, NONE_KNOWN, Equivalences, code_marks
from holdfast.experiments.experiment import Experiment
from holdfast.experiments.results import Result
from holdfast.parts import check_name

COLUMNS = {
    "A_T (%)": ("average_accuracy", 100, 2),
    "F_T": ("forgetting", 1, 3),
    "LTR": ("long_term_remembering", 1, 3),
    "learned (%)": ("learning_accuracy", 100, 2),
}

OF_PROBES = {  # shown where a run has measured them
    "A_AUC (%)": ("area_under_accuracy", 100, 2),
    "AAA (%)": ("average_anytime_accuracy", 100, 2),
    "min-ACC (%)": ("minimum_accuracy", 100, 2),
    "WC-ACC (%)": ("worst_case_accuracy", 100, 2),
    "prequential (%)": ("prequential_accuracy", 100, 2),
}
OTHERS = {  # shown where they are asked for
    "by class (%)": ("prequential_class_accuracy", 100, 2),
    "seconds": ("seconds", 1, 1),
    "ms/step": ("milliseconds_per_step", 1, 2),
    "GFLOP/batch": ("gigaflops_per_batch", 1, 3),
    "MB": ("megabytes", 1, 2),
}
ALL_COLUMNS = COLUMNS | OF_PROBES | OTHERS

Rows = tuple[list[str], list[list[str]]]  # a header and lines


def parse_columns(text: str) -> list[str]:
    """Return the columns written by their short names with commas between, as in 'A_T,A_AUC,seconds'.

    Example:
        >>> parse_columns("A_T,ms/step")
        ['A_T (%)', 'ms/step']
    """
    by_name = {column.removesuffix(" (%)"): column for column in ALL_COLUMNS}
    names = [name.strip() for name in text.split(",")]
    for name in names:
        check_name(name, list(by_name), among="the columns of a table")
    return [by_name[name] for name in names]


def measured(result: Result, column: str) -> float | None:
    """Return the number in a column of ALL_COLUMNS, in its unit; None if the run lacks it."""
    metric, scale, _ = ALL_COLUMNS[column]
    found = result.metrics[metric] if metric in result.metrics else getattr(result, metric, None)
    return None if found is None else scale * found


def comparison(results: list[Result], same: Equivalences = NONE_KNOWN, columns: Sequence[str] = ()) -> Rows:
    """Return a line for each row of the benchmark: mean and, over several seeds, population standard deviation.

    A row whose runs are of different code, but for what is the `same`, is marked; `code_notes` says which differ.

    Args:
        columns: of ALL_COLUMNS; by default those of every run, and those of probes where a run has measured them.
    """
    if not columns:
        extra = [name for name, (metric, *_) in OF_PROBES.items() if any(metric in r.metrics for r in results)]
        columns = [*COLUMNS, *extra, "seconds"]
    lines = []
    rows = grouped(results)
    marked, _ = code_marks(rows, same)
    for label, group in rows:
        cells = [mean_and_spread([measured(r, column) for r in group], 1, ALL_COLUMNS[column][2]) for column in columns]
        lines.append([f"{label} {MARK}" if label in marked else label, *cells, str(len(group))])
    return ["method", *columns, "seeds"], lines


def grouped(results: list[Result]) -> list[tuple[str, list[Result]]]:
    """Return the runs that are averaged, by the name of their row and their differences from others of it."""
    by_row: dict[tuple[str, str], list[Result]] = {}
    for result in results:
        # Runs of one row that differ in more than the seed are not averaged.
        by_row.setdefault((result.experiment.row, result.experiment.kind), []).append(result)
    named = []
    for (row, _), group in by_row.items():
        rivals = [others[0].experiment for (name, _), others in by_row.items() if name == row]
        named.append((row + _differences(group[0].experiment, rivals), group))
    return named


def code_notes(results: list[Result], same: Equivalences = NONE_KNOWN) -> list[str]:
    """Return a line for each row with runs of different code, and one for runs of unknown code."""
    return code_marks(grouped(results), same)[1]


def unlike(results: list[Result]) -> list[str]:
    """Return the differences between the rows of `comparison`, one a line, to print below the table."""
    rows: dict[str, list[Experiment]] = {}
    for result in results:
        rows.setdefault(result.experiment.row, []).append(result.experiment)
    return between_rows(rows)


def _differences(experiment: Experiment, rivals: list[Experiment]) -> str:
    """Return the settings that differ from other runs of the row, in brackets; empty if there are none."""
    told = ", ".join(f"{name}={value}" for name, value in telling(experiment, rivals).items())
    return f" ({told})" if told else ""


def markdown(rows: Rows, alignment: str = "") -> str:
    """Return the rows as a table in Markdown; columns are aligned as in 'lrr', by default all but the first right."""
    header, lines = rows
    rule = ["---" if side == "l" else "---:" for side in alignment or f"l{'r' * (len(header) - 1)}"]
    escaped = ([text.replace("|", r"\|") for text in line] for line in [header, rule, *lines])
    return "\n".join(f"| {' | '.join(line)} |" for line in escaped)


def compared(heading: str, results: list[Result], same: Equivalences = NONE_KNOWN, columns: Sequence[str] = ()) -> str:
    """Return the comparison in Markdown, under a heading, with what differs between its rows and their code below."""
    below = "\n".join(f"- {line}" for line in [*unlike(results), *code_notes(results, same)])
    return "\n\n".join(part for part in (f"**{heading}**", markdown(comparison(results, same, columns)), below) if part)


def matrix_rows(result: Result) -> Rows:
    """Return the accuracy matrix in per cent, a line for each task learned."""
    n_tests = len(result.accuracies[0])
    header = ["after", *(str(j + 1) for j in range(n_tests))]
    lines = [
        [str(t + 1), *("" if a is None else f"{100 * a:.1f}" for a in row)] for t, row in enumerate(result.accuracies)
    ]
    return header, lines


def drift_rows(result: Result) -> Rows:
    """Return drift after each task: of the first task, of old tasks on average, and between the two nearest tasks."""
    header = ["after", "task 1 moved", "old tasks moved", "nearest two apart", "tasks apart"]
    lines = []
    for t, (distances, gaps) in enumerate(zip(result.moved, result.apart, strict=True)):
        between = [gap for row in gaps for gap in row]
        cells = (
            [f"{distances[0]:.2f}", f"{np.mean(distances[:-1]):.2f}", f"{min(between):.2f}", f"{np.mean(between):.2f}"]
            if t
            else ["0.00", "", "", ""]
        )
        lines.append([str(t + 1), *cells])
    return header, lines


def mean_and_spread(values: Sequence[float | None], scale: int, digits: int) -> str:
    """Return the mean and, of several values, their population standard deviation; '-' of none."""
    known = [scale * value for value in values if value is not None]
    if not known:
        return "-"
    mean = f"{np.mean(known):.{digits}f}"
    return mean if len(known) == 1 else f"{mean}±{np.std(known):.{digits}f}"
