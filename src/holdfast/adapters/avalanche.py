"""Drift-Reducing Rehearsal in Avalanche: COS as a storage policy, and replay with CML and CDL as a plug-in."""

from __future__ import annotations

from typing import Any

import torch
from avalanche.benchmarks.utils import AvalancheDataset
from avalanche.models.utils import avalanche_forward
from avalanche.training.plugins import SupervisedPlugin
from avalanche.training.storage_policy import ExemplarsBuffer
from torch import Tensor, nn
from torch.utils.data import DataLoader

from holdfast.core.batch import FEATURE, Batch
from holdfast.core.model import predicting
from holdfast.losses.contrastive_margin import paired_margin_loss
from holdfast.losses.distillation import distillation_loss
from holdfast.memory.selection.centroid import Centroid
from holdfast.memory.storage import Memory

POSITION = "position"  # of a stored sample in the data set of the buffer
TASK_LABEL = "task_label"  # by which Avalanche chooses the head of a sample


class CentroidBuffer(ExemplarsBuffer):  # type: ignore[misc]
    """Storage policy of Avalanche that chooses samples by COS: those nearest to the centroids that classes form.

    Give it to `ReplayPlugin(storage_policy=…)`. Each experience is looked at once, in its order, with the features that
    the model makes of it at its end.

    Args:
        max_size: samples.
        layer_name: of the layer of the model whose outputs are the features.
        seed: of all draws.
        options: of the selection `centroid`: epsilon, relative, per_class, fill_first, max_centroids.
    """

    def __init__(self, max_size: int, layer_name: str, *, seed: int = 0, **options: Any) -> None:
        super().__init__(max_size)
        self.layer_name = layer_name
        self.selection = Centroid(**options)
        self.memory = Memory(max_size, seed=seed)

    def post_adapt(self, agent_state: Any, exp: Any) -> None:
        """Let the samples of an experience stream by."""
        self.update_from_dataset(exp.dataset, agent_state)

    def update_from_dataset(self, new_data: AvalancheDataset, strategy: Any) -> None:
        """Let the samples of a data set stream by, with features by the model of the strategy."""
        if not len(new_data):
            return
        features, y, task = _looked_at(new_data, strategy, self.layer_name)
        batch = Batch(y[:, None].float(), y, task, {FEATURE: features, POSITION: torch.arange(len(y))})
        batch = self.selection.with_extras(batch, None)  # type: ignore[arg-type]  # which has the features
        n_stored = len(self.memory)
        if n_stored:  # in the joint data set below, old samples stand after new ones
            self.memory.rewrite_extra(POSITION, torch.arange(n_stored), len(y) + torch.arange(n_stored))
        self.memory.fit(batch)
        self.selection.update(self.memory, batch, None)  # type: ignore[arg-type]
        self._show(new_data.concat(self.buffer))

    def resize(self, strategy: Any, new_size: int) -> None:
        """Change the size; if samples have to leave, of each class those farthest from their centroids do."""
        self.max_size = new_size
        stored, before = self.memory[:], self.memory
        self.memory = Memory(new_size)
        self.memory.rng.set_state(before.rng.get_state())
        self.memory.rewritten = before.rewritten + 1  # so that the selection looks for its members again
        if not len(stored):
            return
        kept = stored[_nearest(stored.y, self.selection.distances(before), new_size)]
        self.memory.fit(kept)
        self.memory.add(kept)
        self._show(self.buffer)

    def _show(self, data: AvalancheDataset) -> None:
        """Let `buffer` be the samples of the data set that memory names."""
        self.buffer = data.subset(self.memory.extra(POSITION).tolist())
        n_stored = len(self.memory)
        self.memory.rewrite_extra(POSITION, torch.arange(n_stored), torch.arange(n_stored))


class DriftReducingPlugin(SupervisedPlugin):  # type: ignore[misc]
    """Plug-in of Avalanche for Drift-Reducing Rehearsal: replay chosen by COS, with CML and CDL added to the loss.

        loss = criterion(new) + criterion(replayed) + contrast · CML + distillation · CDL

    CML contrasts samples by the features of a layer: Eq. 16 of the paper, in the reading between samples. CDL holds the
    features of replayed samples where they were. An experience is a task; of an online stream, the whole one is that
    its parts come from. Made for one pass: with more epochs, samples are offered to memory again.

    Args:
        mem_size: samples.
        layer_name: of the layer of the model whose outputs are the features.
        batch_size_mem: samples that are replayed beside each mini-batch.
        contrast, distillation: weights of CML and of CDL.
        logit_scale, class_margin, task_margin: s, m^c and m^t, as in `drr`.
        seed: of all draws.
        options: of the selection `centroid`.
    """

    def __init__(
        self,
        mem_size: int,
        layer_name: str,
        *,
        batch_size_mem: int = 10,
        contrast: float = 1.0,
        distillation: float = 1.0,
        logit_scale: float = 10.0,
        class_margin: float = 0.01,
        task_margin: float = 0.1,
        seed: int = 0,
        **options: Any,
    ) -> None:
        super().__init__()
        self.layer_name = layer_name
        self.batch_size_mem = batch_size_mem
        self.contrast, self.distillation = contrast, distillation
        self.margins: dict[str, Any] = {"scale": logit_scale, "class_margin": class_margin, "task_margin": task_margin}
        self.selection = Centroid(**options)
        self.memory = Memory(mem_size, seed=seed)
        self._features = torch.zeros(0)  # that the model made last
        self._hook: Any = None

    def before_training(self, strategy: Any, **kwargs: Any) -> None:
        """Follow the features of the model from now on."""
        self.memory.device = str(strategy.device)
        layer = strategy.model.get_submodule(self.layer_name)
        self._hook = layer.register_forward_hook(self._note)

    def after_training(self, strategy: Any, **kwargs: Any) -> None:
        """Leave the model as it was."""
        self._hook.remove()
        self._features = torch.zeros(0)

    def before_backward(self, strategy: Any, **kwargs: Any) -> None:
        """Add replay, CML and CDL to the loss of the mini-batch."""
        new, features = self._batch(strategy), [self._features]
        old = new[:0]
        if len(self.memory):
            old = self.memory.draw(self.batch_size_mem)
            scores = avalanche_forward(strategy.model, old.x, old.extra[TASK_LABEL])
            features = [self._features, *features]
            strategy.loss = strategy.loss + strategy._criterion(scores, old.y)
            strategy.loss = strategy.loss + self.distillation * distillation_loss(features[0], old.extra[FEATURE])
        y, task = torch.cat([old.y, new.y]), torch.cat([old.task, new.task])
        is_old = torch.arange(len(y), device=y.device) < len(old)
        for is_anchor in (is_old, ~is_old):
            loss = paired_margin_loss(torch.cat(features), y, task, is_anchor=is_anchor, **self.margins)
            strategy.loss = strategy.loss + self.contrast * loss

    def after_update(self, strategy: Any, **kwargs: Any) -> None:
        """Offer the mini-batch to memory, with its features by the model that has just learned it."""
        new = self._batch(strategy)
        feature = self._embed(strategy.model, new.x, new.extra[TASK_LABEL])
        batch = self.selection.with_extras(new.with_extra(**{FEATURE: feature}), None)  # type: ignore[arg-type]
        self.memory.fit(batch, beside=self.selection.bytes_beside(batch))
        self.selection.update(self.memory, batch, None)  # type: ignore[arg-type]

    def after_training_exp(self, strategy: Any, **kwargs: Any) -> None:
        """At the end of a task, take the features of its stored samples once more; then they stay."""
        if not getattr(strategy.experience, "is_last_subexp", True) or not len(self.memory):
            return
        slots = (self.memory.task == self._task(strategy)).nonzero().flatten()
        if len(slots):
            own = self.memory[slots]
            feature = self._embed(strategy.model, own.x, own.extra[TASK_LABEL])
            self.memory.rewrite_extra(FEATURE, slots, feature)

    @staticmethod
    def _task(strategy: Any) -> int:
        """Return the number of the experience; of the whole one that an online part is from."""
        experience = strategy.experience
        return int(getattr(experience, "origin_experience", experience).current_experience)

    def _batch(self, strategy: Any) -> Batch:
        """Return the mini-batch of the strategy."""
        y = strategy.mb_y
        task = torch.full_like(y, self._task(strategy))
        has_label = len(strategy.mbatch) > 2
        return Batch(strategy.mb_x, y, task, {TASK_LABEL: strategy.mb_task_id if has_label else torch.zeros_like(y)})

    def _embed(self, model: nn.Module, x: Tensor, task_label: Tensor) -> Tensor:
        """Return (n, d) features of inputs without gradient, as when predicting."""
        with predicting(model):
            avalanche_forward(model, x, task_label)
        return self._features

    def _note(self, layer: nn.Module, inputs: Any, output: Tensor) -> None:
        self._features = output.flatten(1)


def _looked_at(data: AvalancheDataset, strategy: Any, layer_name: str) -> tuple[Tensor, Tensor, Tensor]:
    """Return features (n, d), classes (n,) and task labels (n,) of a data set, as when predicting, on the CPU."""
    seen: list[Tensor] = []
    rows: list[tuple[Tensor, Tensor]] = []
    layer = strategy.model.get_submodule(layer_name)
    hook = layer.register_forward_hook(lambda *passed: seen.append(passed[2].flatten(1).float().cpu()))
    try:
        with predicting(strategy.model):
            for x, y, *rest in DataLoader(data.eval(), batch_size=strategy.eval_mb_size, collate_fn=data.collate_fn):
                task = rest[-1] if rest else torch.zeros_like(y)
                avalanche_forward(strategy.model, x.to(strategy.device), task.to(strategy.device))
                rows.append((y, task))
    finally:
        hook.remove()
    y, task = (torch.cat(column).long() for column in zip(*rows, strict=True))
    return torch.cat(seen), y, task


def _nearest(y: Tensor, distances: Tensor, size: int) -> Tensor:
    """Return the rows of `size` samples, as equally many of each class as there are, the nearest first."""
    rank = torch.empty_like(y)
    for c in set(y.tolist()):
        own = (y == c).nonzero().flatten()
        rank[own[distances[own].argsort()]] = torch.arange(len(own))
    return rank.argsort(stable=True)[:size].sort().values
