"""Fingerprints that are shown to give the same numbers count as one, and rows of different code are marked."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from holdfast.core.fingerprint import Fingerprint, digest_of
from holdfast.experiments.code import Continued
from holdfast.experiments.equivalent import (
    EQUIVALENT,
    MARK,
    Equivalences,
    Shown,
    code_marks,
    equivalences_path,
    read_equivalences,
    record_equivalence,
)
from holdfast.experiments.results import Result
from holdfast.experiments.tables import code_notes, compared, comparison
from tests.support.experiments import toy_experiment

OLD, NEW, NEWEST = ({"core.model": text, "methods.er": "0" * 8} for text in ("a" * 8, "b" * 8, "c" * 8))


def result_of(seed: int, code: Fingerprint | None = NEW, **changes: Any) -> Result:
    experiment = toy_experiment(seed=seed, benchmark="toys", row="er")
    values: dict[str, Any] = {
        "experiment": experiment,
        "accuracies": [[0.5]],
        "n_steps": 1,
        "seconds": 1,
        "seconds_testing": 1,
        "memory_samples": 0,
        "memory_bytes": 0,
        "n_parameters": 1,
        "versions": {},
        "code": code,
    }
    return Result.model_validate(values | changes)


def shown(old: Fingerprint | None, new: Fingerprint, run: str = "toys/er/1-0") -> Shown:
    return Shown(made_by=None if old is None else digest_of(old), remade_by=digest_of(new), run=run)


def notes(*results: Result, same: Equivalences | None = None) -> list[str]:
    return code_marks([("er", results)], same or Equivalences())[1]


def test_a_row_of_one_code_has_no_mark():
    assert code_marks([("er", [result_of(1), result_of(2)])]) == (set(), [])


def test_a_row_of_several_codes_is_marked_with_the_seeds_and_modules_that_differ():
    results = [result_of(seed) for seed in (1, 2, 3)] + [result_of(4, OLD), result_of(5, OLD)]
    marked, (note,) = code_marks([("er", results), ("drr", [result_of(1)])])
    assert marked == {"er"}
    assert note == f"{MARK} er: seeds 4, 5 by other code than seeds 1-3 (core.model)"


def test_what_is_not_recorded_is_named_in_short():
    assert notes(result_of(1, None), result_of(2, None)) == ["Which code made these runs is not recorded."]
    assert notes(result_of(1, None), result_of(2)) == ["Not recorded which code made er (seed 1)."]
    rows = [("er", [result_of(1, None)]), ("drr", [result_of(1)])]
    assert code_marks(rows) == (set(), ["Not recorded which code made er."])


def test_a_run_that_went_on_with_other_code_is_marked():
    change = Continued(step=1200, old=digest_of(OLD), new=digest_of(NEW), changed=["core.model"])
    marked, (note,) = code_marks([("er", [result_of(1), result_of(2, continued_across=[change])])])
    assert marked == {"er"}
    assert note == f"{MARK} er: seed 2 went on with other code at step 1,200 (core.model)"


def test_equivalent_codes_count_as_one_also_over_others():
    results = [result_of(1, OLD), result_of(2, NEWEST)]
    assert notes(*results)
    assert notes(*results, same=Equivalences.of([shown(OLD, NEW)]))
    for order in ([shown(OLD, NEW), shown(NEW, NEWEST)], [shown(NEWEST, NEW), shown(OLD, NEW)]):
        assert notes(*results, same=Equivalences.of(order)) == []


def test_a_run_of_unknown_code_that_was_made_again_counts_as_of_the_code_that_did():
    unknown, other = result_of(1, None), result_of(3, None)
    same = Equivalences.of([shown(None, OLD, unknown.experiment.path), shown(OLD, NEW)])
    assert notes(unknown, result_of(2), same=same) == []
    assert notes(other, result_of(2), same=same) == ["Not recorded which code made er (seed 3)."]


def test_tables_mark_the_row_and_have_the_note_below():
    results = [result_of(1), result_of(2, OLD)]
    _, ((label, *_),) = comparison(results)
    assert label == f"er {MARK}"
    (note,) = code_notes(results)
    assert f"- {note}" in compared("toys", results)
    same = Equivalences.of([shown(OLD, NEW)])
    assert MARK not in compared("toys", results, same)


def test_it_is_kept_in_the_root_of_the_results_once_and_read_from_above_and_below(tmp_path: Path):
    result = result_of(1, OLD)
    path = tmp_path / "runs" / result.experiment.path / "result.json"
    path.parent.mkdir(parents=True)
    kept = record_equivalence(path, result, shown(OLD, NEW))
    assert kept == tmp_path / "runs" / EQUIVALENT
    record_equivalence(path, result, shown(OLD, NEW))
    assert len(kept.read_text().splitlines()) == 1
    record_equivalence(path, result, shown(NEW, NEWEST))
    for folder in (tmp_path, tmp_path / "runs", tmp_path / "runs" / "toys", path.parent):
        assert notes(result, result_of(2, NEWEST), same=read_equivalences([folder])) == []
    assert read_equivalences([tmp_path / "elsewhere"]) == Equivalences()


def test_a_result_in_no_folder_of_its_own_has_it_beside_unless_there_is_one_above(tmp_path: Path):
    path = tmp_path / "a" / "b" / "result.json"
    path.parent.mkdir(parents=True)
    assert equivalences_path(path, result_of(1)) == path.parent / EQUIVALENT
    (tmp_path / EQUIVALENT).write_text("")
    assert equivalences_path(path, result_of(1)) == tmp_path / EQUIVALENT


GOOD = shown(OLD, NEW).model_dump_json()


@pytest.mark.parametrize(
    "line",
    [
        "no JSON",
        "[]",
        "{}",
        "[" * 100_000,
        '{"made_by": 1, "remade_by": 2, "run": 3}',
        GOOD.replace(digest_of(NEW), "x"),
        GOOD.replace('"torch":""', '"torch":1' + "0" * 400),
        GOOD[:-1] + ', "more": 1}',
        GOOD[:20],
        "\x00\xff",
    ],
)
def test_a_line_that_makes_no_sense_is_named_and_passed_over(tmp_path: Path, line: str):
    (tmp_path / EQUIVALENT).write_bytes(f"{line}\n{GOOD}\n".encode("latin-1"))
    with pytest.warns(UserWarning, match=r"equivalent\.txt, line 1 is no equivalence"):
        same = read_equivalences([tmp_path])
    assert notes(result_of(1, OLD), result_of(2), same=same) == []


def test_a_line_that_was_cut_off_does_not_swallow_the_next(tmp_path: Path):
    path = tmp_path / EQUIVALENT
    path.write_text(GOOD[:30])
    with pytest.warns(UserWarning, match="line 1 is no equivalence"):
        record_equivalence(tmp_path / "result.json", result_of(1), shown(OLD, NEW))
    with pytest.warns(UserWarning, match="line 1 is no equivalence"):
        same = read_equivalences([tmp_path])
    assert notes(result_of(1, OLD), result_of(2), same=same) == []


def test_a_file_too_large_or_that_is_none_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / EQUIVALENT
    os.mkfifo(path)
    assert read_equivalences([tmp_path]) == Equivalences()
    path.unlink()
    path.write_text(f"{GOOD}\n")
    monkeypatch.setattr("holdfast.experiments.equivalent.MAX_BYTES", 10)
    with pytest.warns(UserWarning, match="passed over: it has more than 10 bytes"):
        assert read_equivalences([tmp_path]) == Equivalences()
