"""Learners whose state is a sum: what they learned can be added up and taken back."""

from __future__ import annotations

import torch

from holdfast.core.batch import NO_TASK, Batch
from holdfast.core.inputs import Array, checked_inputs
from holdfast.core.journaled import journaled
from holdfast.learning import Labelled, Learning


class Merging(Learning):
    """Base class with what methods such as `slda` and `ncm` can do, since sums have no order."""

    def merge(self, other: Merging) -> None:
        """Add what another learner of the same settings has learned, for a method whose state is a sum.

        Afterwards this learner has the bits that it would have if it had learned all batches itself, its own and the
        other's, in any order. The other one keeps what it has. ValueError if the two do not fit together; then nothing
        has changed.

        Example:
            >>> from holdfast import Learner
            >>> both, one, two = (Learner("slda", backbone="identity", n_classes=2) for _ in range(3))
            >>> x, y = torch.tensor([[0.0, 1.0], [0.1, 1.1], [2.0, 0.0], [2.2, 0.3]]), torch.tensor([0, 0, 1, 1])
            >>> _ = one.observe(x[::2], y[::2]), two.observe(x[1::2], y[1::2]), both.observe(x, y)
            >>> one.merge(two)
            >>> torch.equal(one.scores(x), both.scores(x))
            True
        """
        if self.opened_journal is not None:
            raise ValueError("a merge cannot stand in a journal: close_journal, merge, save, and journal_into another")
        if other is self:
            raise ValueError("a learner cannot be merged with itself: every sample would count twice")
        first, second = sorted((self, other), key=id)  # two threads that merge crosswise do not wait for each other
        with first._held, second._held:
            self._check_mergeable(other)
            if other._method is not None:
                self.change(lambda: self._merge(other))

    def _merge(self, other: Merging) -> None:
        begins = self._method is None
        method = self._built(tuple(other.input_shape or ())) if self._method is None else self._method
        method.merge(other.method)  # which raises before it changes anything
        if begins:
            self._method, self.input_shape = method, other.input_shape
        self.input_dtype = self.input_dtype or other.input_dtype
        method.model.seen.join(other.method.model.seen)
        self.n_observed += other.n_observed

    @journaled
    def forget(self, x: Array, y: Labelled) -> None:
        """Take samples back that were learned, for a method whose state is a sum: as if they had never come.

        A class of which no sample is left is no longer known. ValueError if the samples cannot have been learned; then
        nothing has changed. Which samples were learned is not stored: to forget others of the same class and size
        leaves sums that belong to no set of samples.

        Example:
            >>> from holdfast import Learner
            >>> learner, without = (Learner("ncm", backbone="identity", n_classes=2) for _ in range(2))
            >>> x, y = torch.tensor([[0.0, 1.0], [0.1, 1.1], [2.0, 0.3]]), torch.tensor([0, 0, 1])
            >>> _ = learner.observe(x, y), without.observe(x[[0, 2]], y[[0, 2]])
            >>> learner.forget(x[[1]], y[[1]])
            >>> torch.equal(learner.scores(x), without.scores(x))
            True
        """
        self.change(lambda: self._forget(x, y))

    def _forget(self, x: Array, y: Array) -> None:
        inputs = checked_inputs(x, shape=self.input_shape, dtype=self.input_dtype)
        classes, n_classes, _ = self._classes_of(y, len(inputs))
        method = self.method
        if n_classes > method.model.seen.n_classes:
            raise ValueError(f"label {n_classes - 1} was never learned: forget only what was")
        batch = Batch(inputs, classes, torch.full_like(classes, NO_TASK))
        gone = method.forget(batch if self.device.type == "cpu" else batch.to(self.device))
        method.model.seen.remove(gone)

    def _check_mergeable(self, other: Merging) -> None:
        if other.settings != self.settings:
            raise ValueError("the two learners have other settings: only those of the same settings can be merged")
        if self._method is None or other._method is None:
            return
        for name in ("input_shape", "scale"):
            if getattr(self, name) != getattr(other, name):
                raise ValueError(f"the two learners have another {name}: {getattr(self, name)}, {getattr(other, name)}")
        if None not in (self.input_dtype, other.input_dtype) and self.input_dtype != other.input_dtype:
            raise ValueError(f"the two learners take {self.input_dtype} and {other.input_dtype}: convert one's samples")
        if not self.method.model.has_the_backbone_of(other.method.model):
            raise ValueError("the two learners have other backbones: their features cannot be added up")
