"""`holdfast export`, from a saved learner to a file that another program runs."""

from __future__ import annotations

import json
from pathlib import Path

import onnx
import pytest
import torch
from typer.testing import CliRunner

from holdfast import Learner
from holdfast.cli import app
from holdfast.tables import TableLearner

RUN = CliRunner()


def test_a_learner_becomes_a_file_that_scores_the_same(tmp_path: Path) -> None:
    learner = Learner("slda", backbone="identity")
    x = torch.randn(20, 3, generator=torch.Generator().manual_seed(0))
    learner.observe(x, [0, 1] * 10)
    learner.save(tmp_path / "m.holdfast")
    found = RUN.invoke(app, ["export", str(tmp_path / "m.holdfast"), str(tmp_path / "m.pt2")])
    assert found.exit_code == 0, found.exception
    scores = torch.export.load(tmp_path / "m.pt2").module()(x)
    torch.testing.assert_close(scores, learner.scores(x))


def test_the_file_of_a_table_has_its_labels_and_columns(tmp_path: Path) -> None:
    learner = TableLearner("kind", method="ncm", backbone="identity")
    learner.learn([{"size": i % 5, "place": "ab"[i % 2], "kind": ["low", "high"][i % 2]} for i in range(40)])
    learner.save(tmp_path / "t.holdfast")
    found = RUN.invoke(app, ["export", str(tmp_path / "t.holdfast"), str(tmp_path / "t.onnx")])
    assert found.exit_code == 0, found.exception
    (entry,) = onnx.load(tmp_path / "t.onnx").metadata_props
    about = json.loads(entry.value)
    assert (about["label"], about["labels"]) == ("kind", ["low", "high"])
    assert about["columns"] == ["size", *["place"] * 4]  # with room for categories that come later


@pytest.mark.parametrize(("method", "to"), [("knn", "m.onnx"), ("ncm", "m.bin")])
def test_what_cannot_be_exported_is_a_sentence(method: str, to: str, tmp_path: Path) -> None:
    learner = Learner(method, backbone="identity")
    learner.observe([[0.0, 1.0], [1.0, 0.0]], [0, 1])
    learner.save(tmp_path / "m.holdfast")
    found = RUN.invoke(app, ["export", str(tmp_path / "m.holdfast"), str(tmp_path / to)])
    assert isinstance(found.exception, ValueError)
    assert not (tmp_path / to).exists()
