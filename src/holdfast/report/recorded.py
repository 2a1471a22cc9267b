"""Records of runs, found beside their results."""

from __future__ import annotations

from holdfast.experiments.probes.record import Record, read_record, record_in
from holdfast.report.tables import Run


def has_record(run: Run) -> bool:
    """Return True if the file of the record exists."""
    return record_in(run.path.parent) is not None


def first_record(runs: list[Run], problems: list[str]) -> tuple[Run, Record] | None:
    """Return the first of `runs` with a record, and the record; what cannot be used is named in `problems`."""
    for run in runs:
        if (path := record_in(run.path.parent)) is None:
            continue
        try:
            record = read_record(path)
        except OSError as error:  # which need not name the file
            problems.append(f"{path} cannot be read: {error}")
            continue
        except ValueError as error:
            problems.append(str(error))
            continue
        if record.digest == run.result.experiment.digest:
            return run, record
        problems.append(f"{path} is the record of another run than the result beside it")
    return None
