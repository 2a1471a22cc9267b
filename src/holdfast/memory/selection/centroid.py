from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import torch
from torch import Tensor

from holdfast.core.batch import Batch
from holdfast.core.model import Model
from holdfast.memory.selection._base import Selection
from holdfast.memory.storage import Memory

Key = tuple[int, int]  # task and class
FEATURE, OWNER = "feature", "centroid"  # what is kept beside a sample


@dataclass(eq=False)
class Centroid(Selection):
    """COS: the samples nearest to the centroids that each class forms while it streams by (Algorithm 1).

    Each class of each task has centroids in the space of un-normalised features. A sample farther than `epsilon`
    from all of them opens a new one; otherwise it moves the nearest, a running mean. It then enters memory with the
    probability N_i / Σ N_j of its centroid, and if its class is over its share, the member of that centroid that is
    farthest from it leaves.

    Args:
        epsilon: ε, in units of the features, or of the class's spread if `relative`.
        per_class: slots of each class; without it, classes share the memory equally (m / |C|), anew with each class.
        fill_first: take every sample while its class is below its share. The draw alone leaves memory under-filled
            where centroids are many.
        relative: ε is a multiple of the class's running root-mean-square distance to its mean.
        max_centroids: a class opens no more than so many.
    """

    epsilon: float = 8.0
    per_class: int | None = None
    fill_first: bool = False
    relative: bool = False
    max_centroids: int | None = None

    # By task: (k, d) centroids, (k,) samples seen by each, (k,) its class.
    centres: dict[int, Tensor] = field(default_factory=dict, init=False)
    counts: dict[int, Tensor] = field(default_factory=dict, init=False)
    classes: dict[int, Tensor] = field(default_factory=dict, init=False)
    # By task and class: samples seen, their mean, and the sum of their squared distances to it.
    seen: dict[Key, int] = field(default_factory=dict, init=False)
    means: dict[Key, Tensor] = field(default_factory=dict, init=False)
    spreads: dict[Key, float] = field(default_factory=dict, init=False)
    n_classes: int = field(default_factory=int, init=False)  # |C|, each class counted in each task

    def __post_init__(self) -> None:
        if self.epsilon <= 0:
            raise ValueError(f"epsilon is {self.epsilon}: give a distance above 0")
        for name in ("per_class", "max_centroids"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} is {value}: give 1 or more")

    def with_extras(self, batch: Batch, model: Model) -> Batch:
        """Beside each sample its features, by the model that has just learned it, and room for its centroid."""
        feature = batch.extra[FEATURE] if FEATURE in batch.extra else model.embed(batch.x)
        return batch.with_extra(**{FEATURE: feature, OWNER: torch.zeros_like(batch.y)})

    def update(self, memory: Memory, batch: Batch, model: Model) -> None:
        uniform = torch.rand(len(batch), generator=memory.rng, dtype=torch.float64).tolist()
        keys = list(zip(batch.task.tolist(), batch.y.tolist(), strict=True))
        for rows in _rounds(keys):
            task = keys[rows[0]][0]
            owners, counts = self._assign(task, batch.y[rows], batch.extra[FEATURE][rows])
            for row, owner, count in zip(rows, owners, counts, strict=True):
                key = keys[row]
                if self.seen[key] == 1:
                    self.n_classes += 1
                    self._trim(memory)
                if uniform[row] < count / self.seen[key] or (self.fill_first and self._has_room(memory, key)):
                    self._keep(memory, batch[row : row + 1], key, owner)

    def share(self, memory: Memory) -> int:
        """Slots of each class: m / |C|, or the fixed number."""
        return self.per_class or max(1, memory.capacity // self.n_classes)

    def _assign(self, task: int, y: Tensor, feature: Tensor) -> tuple[list[int], list[int]]:
        """The centroid of each sample, opened or moved for it, and how many samples that has seen.

        The samples are of one task and of different classes, so that none changes what another finds.
        """
        if task not in self.centres:
            self.centres[task] = feature[:0].clone()
            self.counts[task], self.classes[task] = y[:0].clone(), y[:0].clone()
        keys = [(task, label) for label in y.tolist()]
        self._note(keys, feature)

        other_class = self.classes[task] != y[:, None]
        distance = _distances(feature, self.centres[task]).masked_fill(other_class, torch.inf)
        opens = torch.ones_like(y, dtype=torch.bool)
        owner = torch.zeros_like(y)
        if distance.shape[1]:
            nearest, owner = distance.min(dim=1)
            opens = nearest > self._thresholds(keys, nearest)
            if self.max_centroids is not None:
                n_open = (~other_class).sum(dim=1)
                opens &= (n_open < self.max_centroids) | (n_open == 0)

        joins = ~opens
        i = owner[joins]
        n = self.counts[task][i][:, None]
        self.centres[task][i] = (n * self.centres[task][i] + feature[joins]) / (n + 1)
        self.counts[task][i] += 1

        if bool(opens.any()):
            first = len(self.classes[task])
            self.centres[task] = torch.cat([self.centres[task], feature[opens]])
            self.counts[task] = torch.cat([self.counts[task], torch.ones_like(y[opens])])
            self.classes[task] = torch.cat([self.classes[task], y[opens]])
            owner[opens] = torch.arange(first, len(self.classes[task]), device=owner.device)
        return owner.tolist(), self.counts[task][owner].tolist()

    def _note(self, keys: list[Key], feature: Tensor) -> None:
        """Count the samples of each class and, where ε depends on it, follow the class's spread (Welford)."""
        for key, f in zip(keys, feature, strict=True):
            self.seen[key] = self.seen.get(key, 0) + 1
            if self.relative:
                mean = self.means.get(key, torch.zeros_like(f))
                step = f - mean
                self.means[key] = mean + step / self.seen[key]
                self.spreads[key] = self.spreads.get(key, 0.0) + float(step @ (f - self.means[key]))

    def _thresholds(self, keys: list[Key], like: Tensor) -> Tensor | float:
        if not self.relative:
            return self.epsilon
        spreads = [(self.spreads[key] / self.seen[key]) ** 0.5 for key in keys]
        return self.epsilon * torch.tensor(spreads, dtype=like.dtype, device=like.device)

    def _keep(self, memory: Memory, sample: Batch, key: Key, owner: int) -> None:
        """Store a sample; if that makes its class exceed its share, the farthest of its centroid leaves."""
        sample.extra[OWNER].fill_(owner)
        slots = _slots_of(memory, key)
        if len(slots) < self.share(memory):
            if len(memory) < memory.capacity:
                memory.add(sample)
            else:  # more classes than slots: the largest class gives one up
                memory.write([self._farthest(memory, _slots_of(memory, _largest(memory)))], sample)
            return
        rivals = slots[memory.extra(OWNER)[slots] == owner]
        # A centroid without a member would never get one: then the whole class is looked at.
        victim = self._farthest(memory, rivals if len(rivals) else slots)
        newcomer = float((sample.extra[FEATURE][0] - self.centres[key[0]][owner]).norm())
        if not len(rivals) or newcomer < float(self._own_distances(memory, rivals).max()):
            memory.write([victim], sample)

    def _trim(self, memory: Memory) -> None:
        """Bring every class down to its share, which a new class has made smaller; the farthest leave first."""
        if self.per_class is not None:
            return
        share = self.share(memory)
        for key in list(self.seen):
            while len(slots := _slots_of(memory, key)) > share:
                memory.remove(self._farthest(memory, slots))

    def _has_room(self, memory: Memory, key: Key) -> bool:
        return len(_slots_of(memory, key)) < self.share(memory)

    def _farthest(self, memory: Memory, slots: Tensor) -> int:
        """The slot, of one class, whose stored features are farthest from the centroid of their own."""
        return int(slots[self._own_distances(memory, slots).argmax()])

    def _own_distances(self, memory: Memory, slots: Tensor) -> Tensor:
        task = int(memory.task[slots[0]])
        centres = self.centres[task][memory.extra(OWNER)[slots]]
        distances: Tensor = torch.linalg.vector_norm(memory.extra(FEATURE)[slots] - centres, dim=1)
        return distances


def _rounds(keys: list[Key]) -> list[list[int]]:
    """Rows in groups of one task without a class twice, each class's rows in order: what can be done at once."""
    rounds: dict[tuple[int, int], list[int]] = {}
    occurrences: dict[Key, int] = {}
    for row, key in enumerate(keys):
        n = occurrences[key] = occurrences.get(key, 0) + 1
        rounds.setdefault((key[0], n), []).append(row)
    return list(rounds.values())


def _slots_of(memory: Memory, key: Key) -> Tensor:
    return ((memory.task == key[0]) & (memory.y == key[1])).nonzero().flatten()


def _largest(memory: Memory) -> Key:
    keys = Counter(zip(memory.task.tolist(), memory.y.tolist(), strict=True))
    return keys.most_common(1)[0][0]


def _distances(a: Tensor, b: Tensor) -> Tensor:
    """(n, k) Euclidean distances between the rows of a (n, d) and b (k, d), as one matrix product."""
    return torch.cdist(a, b, compute_mode="use_mm_for_euclid_dist")
