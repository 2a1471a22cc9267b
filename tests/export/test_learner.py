"""Exporting a learner: while it learns, by snapshots, with samples of its memory or of one's own."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import onnxruntime
import pytest
import torch

from holdfast import Learner
from holdfast.core.state import State
from tests.support.same import assert_same
from tests.support.toy import toy_batches


def stored(path: Path) -> State:
    found = {"holdfast": ""}
    torch.export.load(path, extra_files=found)
    about: State = json.loads(found["holdfast"])
    return about


def learner(**options: object) -> Learner:
    made = Learner("er", backbone={"name": "mlp", "hidden": [8]}, memory=30, **options)
    for batch in toy_batches("free")[:8]:
        made.observe(*batch)
    return made


def test_a_learner_and_its_snapshot_write_the_same_network(tmp_path: Path) -> None:
    made = learner()
    snapshot = made.snapshot()
    before = made.state_dict()
    made.export(tmp_path / "learner.pt2")
    assert_same(made.state_dict(), before)
    made.observe(*toy_batches("free")[8])
    snapshot.export(tmp_path / "snapshot.pt2")
    x = toy_batches("free")[0][0]
    one, two = (torch.export.load(tmp_path / f"{name}.pt2").module()(x) for name in ("learner", "snapshot"))
    assert torch.equal(one, two)
    assert torch.equal(one.argmax(dim=1), snapshot.predict(x))
    assert not torch.allclose(one, made.scores(x))


def test_the_metadata_say_what_goes_in_and_what_is_ones_own(tmp_path: Path) -> None:
    made = learner()
    made.export(tmp_path / "m.pt2", about={"names": ["cat", "dog"]})
    about = stored(tmp_path / "m.pt2")
    assert (about["input_shape"], about["input_dtype"], about["n_observed"]) == ([8], "float32", 8)
    assert about["settings"]["method"]["name"] == "er"
    assert about["names"] == ["cat", "dog"]
    assert about["labels"] == list(range(6))[: len(about["labels"])]
    assert about["temperature"] == made.answers.temperature.value


def test_labels_that_are_texts_stand_in_the_metadata_in_the_order_of_the_scores(tmp_path: Path) -> None:
    made = Learner("ncm", backbone="identity")
    x = torch.tensor([[0.0, 1.0], [1.0, 0.0], [-1.0, 0.0]])
    made.observe(x, ["up", "right", "left"])
    made.export(tmp_path / "m.pt2")
    labels = stored(tmp_path / "m.pt2")["labels"]
    scores = torch.export.load(tmp_path / "m.pt2").module()(x)
    assert [labels[c] for c in scores.argmax(dim=1)] == made.predict(x) == ["up", "right", "left"]


def test_running_standardisation_is_in_the_file(tmp_path: Path) -> None:
    made = Learner("er", backbone={"name": "mlp", "hidden": [8]}, standardise=True)
    x = 1000 + 50 * torch.randn(30, 4, generator=torch.Generator().manual_seed(0))
    for start in range(0, 30, 10):
        made.observe(x[start : start + 10], [0, 1] * 5)
    assert made.method.model.scaling is not None
    made.export(tmp_path / "m.onnx", x)
    session = onnxruntime.InferenceSession(tmp_path / "m.onnx", providers=["CPUExecutionProvider"])
    found = torch.from_numpy(session.run(["scores"], {"x": x.numpy()})[0])
    torch.testing.assert_close(found, made.scores(x), atol=1e-5, rtol=0)


def test_one_example_is_enough_and_a_wrong_one_is_refused(tmp_path: Path) -> None:
    made = learner()
    made.export(tmp_path / "m.pt2", toy_batches("free")[0][0][:1])
    with pytest.raises(ValueError, match="this learner takes"):
        made.export(tmp_path / "m.pt2", torch.zeros(2, 9))


def test_a_learner_that_learned_nothing_is_refused(tmp_path: Path) -> None:
    for made in (Learner("er"), Learner("er", input_shape=(3,))):
        with pytest.raises(RuntimeError, match="nothing was learned yet"):
            made.export(tmp_path / "m.pt2")


def test_bytes_stay_bytes(tmp_path: Path) -> None:
    made = Learner("ncm", backbone="identity")
    x = torch.randint(256, (10, 5), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    made.observe(x, [0, 1] * 5)
    made.export(tmp_path / "m.pt2")
    assert stored(tmp_path / "m.pt2")["input_dtype"] == "uint8"
    torch.testing.assert_close(torch.export.load(tmp_path / "m.pt2").module()(x), made.scores(x))


def test_a_learner_that_learns_in_another_thread_is_exported_whole(tmp_path: Path) -> None:
    made, stop = learner(), threading.Event()

    def learn() -> None:
        while not stop.is_set():
            for batch in toy_batches("free"):
                made.observe(*batch)

    thread = threading.Thread(target=learn)
    thread.start()
    try:
        made.export(tmp_path / "m.pt2")  # which raises unless file and learner score the same
    finally:
        stop.set()
        thread.join()
    assert stored(tmp_path / "m.pt2")["n_observed"] >= 8
