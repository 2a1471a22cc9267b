"""What is counted is what is there: against the graph of autograd walked node by node, and against shapes."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from holdfast.core.batch import Batch
from holdfast.experiments.probes.footprint import Footprint, footprint
from holdfast.experiments.results import ResultStore
from holdfast.experiments.run import run
from holdfast.learner import Learner
from holdfast.methods._base import Diverged
from holdfast.methods.er import ER
from tests.support.experiments import toy_experiment

N_FEATURES, HIDDEN, N_CLASSES, BATCH = 8, 16, 6, 5
N_WEIGHTS = HIDDEN * (N_FEATURES + 1) + N_CLASSES * (HIDDEN + 1)
MLP = {"name": "mlp", "hidden": [HIDDEN]}


def made_batch(task: int) -> tuple[Tensor, Tensor, int]:
    rng = torch.Generator().manual_seed(task)
    return torch.randn(BATCH, N_FEATURES, generator=rng), torch.tensor([0, 1, 0, 1, 0]) + 2 * task, task


def learner_of(method: str, **settings: object) -> Learner:
    learner = Learner(method, backbone=MLP, setting="class", n_classes=N_CLASSES, memory=40, lr=0.01, **settings)
    for task in range(3):
        learner.observe(*made_batch(task))
    return learner


def kept_by_walking(loss: Tensor, weights: list[Tensor]) -> int:
    """Bytes that the graph of a loss has saved, but for the weights."""
    known = {weight.untyped_storage().data_ptr() for weight in weights}
    n_bytes, nodes, seen = 0, [loss.grad_fn], set()
    while nodes:
        node = nodes.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        nodes += [parent for parent, _ in node.next_functions]
        for name in dir(node):
            saved = getattr(node, name) if name.startswith("_saved_") else None
            if isinstance(saved, Tensor) and saved.untyped_storage().data_ptr() not in known:
                known.add(saved.untyped_storage().data_ptr())
                n_bytes += saved.untyped_storage().nbytes()
    return n_bytes


def test_a_step_keeps_what_the_graph_of_its_loss_holds() -> None:
    learner = learner_of("finetune")
    x, y, task = made_batch(2)
    loss = learner.method.model.loss(Batch(x, y, torch.full_like(y, task)))
    expected = kept_by_walking(loss, learner.method.parameters())
    assert expected > BATCH * HIDDEN * 4
    assert footprint(learner, x, y, task).passes == expected


def test_passes_made_one_after_the_other_are_not_added() -> None:
    replaying, projecting = (footprint(learner_of(name, replay_size=10), *made_batch(2)) for name in ("er", "agem"))
    assert projecting.passes < replaying.passes


def test_terms_have_the_sizes_of_what_is_stored() -> None:
    learner = learner_of("drr", selection={"name": "centroid", "epsilon": 1e-3})  # a centroid for each sample
    n_stored = len(learner.memory)
    counted = footprint(learner, *made_batch(2))
    room = 4 * N_CLASSES  # for two or three centroids a class
    assert counted.weights == 2 * 4 * (N_WEIGHTS - N_CLASSES)  # a cosine head has no bias
    assert counted.samples == n_stored * (4 * N_FEATURES + 8 + 8)
    assert counted.features == (n_stored + room) * HIDDEN * 4
    assert counted.logits == 0
    assert footprint(learner_of("der"), *made_batch(2)).logits == 3 * BATCH * N_CLASSES * 4


def test_what_a_method_keeps_of_its_own_is_counted() -> None:
    plain, averaged = (footprint(learner_of("er", average=average), *made_batch(2)) for average in (None, 0.9))
    assert averaged.own - plain.own == pytest.approx(4 * N_WEIGHTS, abs=16)
    assert averaged.total - plain.total == averaged.own - plain.own


def test_a_run_leaves_its_footprint_and_is_otherwise_as_without(tmp_path, monkeypatch) -> None:
    experiment = toy_experiment()
    weighed = run(experiment, ResultStore(tmp_path / "a"))
    assert isinstance(weighed.footprint, Footprint)
    assert weighed.footprint.weights == 2 * 4 * weighed.n_parameters
    assert ResultStore(tmp_path / "a").find(experiment) == weighed

    n_steps = weighed.n_steps
    observe = ER.observe

    def diverging(self: ER, batch: Batch) -> float:
        nonlocal n_steps
        n_steps -= 1
        if n_steps < 0:
            raise Diverged("in the step that only measures")
        return observe(self, batch)

    monkeypatch.setattr(ER, "observe", diverging)
    unweighed = run(experiment, ResultStore(tmp_path / "b"))
    assert unweighed.footprint is None
    assert (unweighed.accuracies, unweighed.memory_samples) == (weighed.accuracies, weighed.memory_samples)
