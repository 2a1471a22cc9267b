"""`holdfast learn` and `holdfast predict`, from the file to the page."""

from __future__ import annotations

import io
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from holdfast.cli import app
from holdfast.cli import learn as learn_module
from holdfast.data.rows import Row
from holdfast.tables import load_table_learner
from tests.support.same import assert_same

RUN = CliRunner()
FEW = ["--method", "er"]  # whose step takes less than that of the default


def table(path: Path, n: int = 120, *, bad: str = "") -> Path:
    lines = [f"{i % 7},{'ab'[i % 2]},{['low', 'high'][i % 7 > 3]}" for i in range(n)]
    if bad:
        lines.insert(60, bad)
    path.write_text("size,kind,label\n" + "\n".join(lines) + "\n")
    return path


def learn(*words: object) -> str:
    found = RUN.invoke(app, ["learn", *map(str, words)])
    assert found.exit_code == 0, (found.output, found.exception)
    return found.output


def test_a_table_is_learned_and_predicted_and_has_a_page(tmp_path: Path) -> None:
    source, model = table(tmp_path / "t.csv", 300), tmp_path / "m.holdfast"
    said = learn(source, "--out", model)
    assert "300 rows (0 bad)" in said
    page = (tmp_path / "m.html").read_text()
    assert "<svg" in page
    assert "low" in page
    assert "http" not in page.replace("http-equiv", "")
    found = RUN.invoke(app, ["predict", str(model), str(source)])
    header, first, *rest = found.output.strip().splitlines()
    assert header == "row,label"
    assert first.startswith("line 2,")
    assert {line.split(",")[1] for line in rest} == {"low", "high"}
    right = sum(line.split(",")[1] == ["low", "high"][i % 7 > 3] for i, line in enumerate([first, *rest]))
    assert right > 0.9 * 300


def test_the_page_says_if_inputs_are_standardised(tmp_path: Path) -> None:
    source = table(tmp_path / "t.csv", 20)
    for method, words in {"er": "by the learner", "ncm": "not by the learner"}.items():
        learn(source, "--out", tmp_path / f"{method}.holdfast", "--method", method)
        page = (tmp_path / f"{method}.html").read_text()
        assert f">{words}<" in page.partition("inputs standardised")[2][:100]


def test_going_on_is_as_if_it_had_never_stopped(tmp_path: Path) -> None:
    whole, first = table(tmp_path / "whole.csv", 120), table(tmp_path / "first.csv", 60)
    learn(whole, "--out", tmp_path / "one.holdfast", *FEW)
    learn(first, "--out", tmp_path / "two.holdfast", *FEW)
    assert "exists" in str(RUN.invoke(app, ["learn", str(whole), "--out", str(tmp_path / "two.holdfast")]).exception)
    learn(whole, "--out", tmp_path / "two.holdfast", "--go-on")
    one, two = (load_table_learner(tmp_path / f"{name}.holdfast") for name in ("one", "two"))
    assert_same(two.state_dict(), one.state_dict())


def opened() -> set[Path]:
    """Return the files that this process has open, where the system tells."""
    return {Path(os.path.realpath(link)) for link in Path("/proc/self/fd").glob("*")}


@pytest.mark.parametrize("bad", ["1,a", "many,a,low", "1,a,"])
def test_a_bad_row_stops_with_its_line_and_what_was_learned_saved(tmp_path: Path, bad: str) -> None:
    source, model = table(tmp_path / "t.csv", bad=bad), tmp_path / "m.holdfast"
    found = RUN.invoke(app, ["learn", str(source), "--out", str(model), *FEW])
    assert "line 62" in str(found.exception)
    assert "--go-on" in str(found.exception)
    assert source not in opened()  # while the error, which holds the frames that read it, is still there
    assert load_table_learner(model).n_rows == 60
    learn(source, "--out", model, "--go-on", "--skip-bad-rows")
    learned = load_table_learner(model)
    assert (learned.n_rows, learned.n_bad, learned.accuracy.n) == (121, 1, 120)


def test_json_lines_are_read_from_standard_input(tmp_path: Path) -> None:
    lines = "".join(f'{{"size": {i % 7}, "label": "{"lh"[i % 7 > 3]}"}}\n' for i in range(50))
    found = RUN.invoke(app, ["learn", "-", "--out", str(tmp_path / "m.holdfast"), *FEW], input=lines)
    assert "50 rows" in found.output


def test_an_interrupt_while_waiting_saves_and_what_was_read_is_learned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def rows(*_: object, **__: object) -> Iterator[Row]:
        for i in range(40):
            if i == 25:
                signal.raise_signal(signal.SIGINT)  # as Ctrl-C while a pipe gives nothing
            yield Row(f"line {i}", {"size": i % 7, "label": "lh"[i % 2]})

    monkeypatch.setattr(learn_module, "read_rows", rows)
    model = tmp_path / "m.holdfast"
    said = learn("-", "--out", model, *FEW)
    assert "25 rows" in said
    assert "go on with 'holdfast learn" in said.replace("\n", " ")
    assert load_table_learner(model).n_rows == 25


def test_a_killed_command_goes_on_from_its_last_save(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = [Row(f"line {i}", {"size": i % 7, "label": "lh"[i % 2]}) for i in range(60)]

    def killed(*_: object, **__: object) -> Iterator[Row]:
        yield from given[:37]
        raise SystemExit(9)

    one, two = tmp_path / "one.holdfast", tmp_path / "two.holdfast"
    monkeypatch.setattr(learn_module, "read_rows", lambda *_, **__: (row for row in given))
    learn("t.csv", "--out", one, *FEW)
    monkeypatch.setattr(learn_module, "read_rows", killed)
    assert RUN.invoke(app, ["learn", "t.csv", "--out", str(two), "--save-every", "0", *FEW]).exit_code == 9
    assert load_table_learner(two).n_rows == 30
    monkeypatch.setattr(learn_module, "read_rows", lambda *_, **__: (row for row in given))
    learn("t.csv", "--out", two, "--go-on")
    assert_same(load_table_learner(two).state_dict(), load_table_learner(one).state_dict())


def test_rows_of_a_pipe_are_answered_before_the_next_one_comes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = tmp_path / "m.holdfast"
    learn(table(tmp_path / "t.csv", 60), "--out", model, *FEW)
    answered, file = [], io.StringIO()

    def rows(*_: object, **__: object) -> Iterator[Row]:
        for i in range(3):
            answered.append(len(file.getvalue().splitlines()) - 1)
            yield Row(f"line {i}", {"size": 1, "kind": "a"})

    monkeypatch.setattr(learn_module, "read_rows", rows)
    learn_module._predict(load_table_learner(model), "-", file, probability=False, skip=False, size=64)
    assert answered == [0, 1, 2]


def test_predicted_texts_are_safe_in_a_spreadsheet_and_numbers_stay(tmp_path: Path) -> None:
    source, model = tmp_path / "t.csv", tmp_path / "m.holdfast"
    lines = [f"{i % 7},{['=cmd()', '-1'][i % 7 > 3]}" for i in range(200)]
    source.write_text("size,label\n" + "\n".join(lines) + "\n")
    learn(source, "--out", model, *FEW)
    found = RUN.invoke(app, ["predict", str(model), str(source)])
    assert {line.split(",")[1] for line in found.output.splitlines()[1:]} == {"'=cmd()", "-1"}


def test_probabilities_are_those_of_the_learner(tmp_path: Path) -> None:
    source, model, answers = table(tmp_path / "t.csv", 60), tmp_path / "m.holdfast", tmp_path / "a.csv"
    learn(source, "--out", model, *FEW)
    found = RUN.invoke(app, ["predict", str(model), str(source), "--probability", "--out", str(answers)])
    assert found.exit_code == 0, found.output
    header, *lines = answers.read_text().splitlines()
    assert header == "row,label,probability"
    learner = load_table_learner(model)
    p = learner.learner.predict_proba(learner.inputs([{"size": i % 7, "kind": "ab"[i % 2]} for i in range(60)]))
    assert [float(line.split(",")[2]) for line in lines] == pytest.approx(p.max(dim=1).values.tolist())


def test_a_column_says_how_much_a_row_counts(tmp_path: Path) -> None:
    lines = [f"{i % 7},{['low', 'high'][i % 7 > 3] if i % 4 else 'wrong'},{i % 4}" for i in range(80)]
    source, model = tmp_path / "t.csv", tmp_path / "m.holdfast"
    source.write_text("size,label,share\n" + "\n".join(lines) + "\n")
    said = learn(source, "--out", model, "--weight", "share", *FEW)
    assert "80 rows (0 bad)" in said
    learner = load_table_learner(model)
    assert learner.weight == "share"
    assert sorted(learner.labels.known) == ["high", "low"]
    learn(source, "--out", model, "--go-on", "--weight", "share")
    found = RUN.invoke(app, ["learn", str(source), "--out", str(model), "--go-on", "--weight", "size"])
    assert "learned with the weights 'share'" in str(found.exception or found.output)
