from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Annotated, ClassVar

import numpy as np
import torch
from pydantic import Field
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from holdfast.core.batch import FEATURE, Batch
from holdfast.core.model import Model
from holdfast.core.state import Count, check_tensor
from holdfast.memory.selection._base import ENTRY, Key, Selection, check_keys, check_slots, keys_of, place, slots_by_key
from holdfast.memory.storage import Memory


@dataclass(eq=False)
class MeanOfFeatures(Selection):
    """Herding: of each class the samples whose mean stays nearest to the mean of all that were seen.

    Rebuffi et al., "iCaRL: Incremental Classifier and Representation Learning", CVPR 2017.

    There the whole data of a class is at hand when its task ends. A stream is seen once. The mean is therefore a
    running mean of features at arrival, and the choice is among stored and new samples.

    Args:
        per_class: slots of each class; without it, classes share the memory equally, anew with each class.
    """

    replaced: ClassVar[frozenset[str]] = frozenset({"seen", "means", "slots_by_key"})
    extras: ClassVar[frozenset[str]] = frozenset({FEATURE})

    per_class: Annotated[int, Field(ge=1)] | None = None

    # By task and class: samples seen, and the mean of their un-normalised features.
    seen: dict[Key, Count] = field(default_factory=dict, init=False)
    means: dict[Key, Tensor] = field(default_factory=dict, init=False)
    slots_by_key: dict[Key, list[int]] = field(default_factory=dict, init=False)
    rearranged: Count = field(default_factory=int, init=False)  # of memory, when last seen

    def check(self, memory: Memory, model: Model) -> None:
        check_keys(self.seen, model)
        n_features = model.head.weight.shape[1]
        if self.seen.keys() != self.means.keys() or not set(self.slots_by_key) <= set(self.seen):
            raise ValueError("the saved means are not those of the classes seen")
        if 0 in self.seen.values() or not set(keys_of(memory)) <= set(self.seen):
            raise ValueError("a class is in memory, but was never seen")
        for mean in self.means.values():
            check_tensor(mean, like=torch.zeros(n_features), name="the mean of a class")
            if len(mean) != n_features:
                raise ValueError(f"the mean of a class has {len(mean)} features, not {n_features}")
        memory.require_extra(FEATURE, torch.float32, (n_features,))
        if memory.rearranged == self.rearranged:
            check_slots(self.slots_by_key, memory)

    def with_extras(self, batch: Batch, model: Model) -> Batch:
        """Beside each sample its features, by the model that has just learned it."""
        return batch if FEATURE in batch.extra else batch.with_extra(**{FEATURE: model.embed(batch.x)})

    def bytes_of_classes(self, batch: Batch) -> int:
        """Return the bytes of a mean, a count and a list for each class."""
        n_classes = len(self.seen.keys() | set(keys_of(batch)))
        return n_classes * (batch.extra[FEATURE][0].nbytes + 2 * ENTRY)

    def update(self, memory: Memory, batch: Batch, model: Model) -> None:
        if memory.rearranged != self.rearranged:
            self._look_again(memory)
        rows_by_key: dict[Key, list[int]] = {}
        for row, key in enumerate(keys_of(batch)):
            rows_by_key.setdefault(key, []).append(row)
        self._keep(memory, rows_by_key)
        self._move_means(batch.extra[FEATURE], rows_by_key)

        freed: list[int] = []
        room_by_key = self._room(memory, rows_by_key)
        for key, order in self._herded(memory, batch, rows_by_key, room_by_key).items():
            self._keep(memory, [key])
            slots, rows = self.slots_by_key[key], rows_by_key.get(key, [])
            kept = [slots[i] for i in order if i < len(slots)]
            freed += sorted(set(slots) - set(kept))
            self.slots_by_key[key] = kept
            rows_by_key[key] = [rows[i - len(slots)] for i in order if i >= len(slots)]
        self._store(memory, batch, rows_by_key, freed)

    def _keep(self, memory: Memory, keys: Iterable[Key]) -> None:
        """Write down what is known of these classes, which is about to change."""
        for key in keys:
            for table in (self.seen, self.means, self.slots_by_key):
                memory.undo.item(table, key)

    def _move_means(self, features: Tensor, rows_by_key: dict[Key, list[int]]) -> None:
        features = features.cpu()
        for key, rows in rows_by_key.items():
            self.seen[key] = self.seen.get(key, 0) + len(rows)
            mean = self.means.setdefault(key, torch.zeros_like(features[0]))
            mean += (features[rows] - mean).sum(dim=0) / self.seen[key]
            self.slots_by_key.setdefault(key, [])

    def _room(self, memory: Memory, rows_by_key: dict[Key, list[int]]) -> dict[Key, int]:
        """Return the number of slots of each class: its share, less if all shares exceed the memory."""
        share = self.per_class or max(1, memory.capacity // len(self.seen))
        room = {key: min(share, len(s) + len(rows_by_key.get(key, ()))) for key, s in self.slots_by_key.items()}
        for _ in range(sum(room.values()) - memory.capacity):
            room[max(room, key=lambda key: (room[key], key not in rows_by_key))] -= 1
        return room

    def _herded(
        self, memory: Memory, batch: Batch, rows_by_key: dict[Key, list[int]], room_by_key: dict[Key, int]
    ) -> dict[Key, list[int]]:
        """Return the samples that stay in classes with too many; numbers count stored samples first, then new ones.

        The first samples picked are what would have been picked of a smaller share, and they stay the first when
        picked again. So a share that shrinks keeps the best.
        """
        stored, new = memory.column(FEATURE), batch.extra[FEATURE]
        offsets: dict[Key, Tensor] = {}
        for key, slots in self.slots_by_key.items():
            rows = rows_by_key.get(key, [])
            if len(slots) + len(rows) > room_by_key[key]:
                features = torch.cat([stored[slots], new[rows]]) if rows else stored[slots]
                offsets[key] = features - self.means[key].to(features.device)
        if not offsets:
            return {}
        order = herd(list(offsets.values()), max(room_by_key[key] for key in offsets)).tolist()
        return {key: picks[: room_by_key[key]] for key, picks in zip(offsets, order, strict=True)}

    def _store(self, memory: Memory, batch: Batch, rows_by_key: dict[Key, list[int]], freed: list[int]) -> None:
        """Put the chosen rows into the slots that came free, then into new ones; remove what stays free."""
        free = iter([*freed, *range(len(memory), memory.capacity)])
        sample_by_slot: dict[int, int] = {}
        for key, rows in rows_by_key.items():
            for row in rows:
                slot = next(free)
                sample_by_slot[slot] = row
                self.slots_by_key[key].append(slot)
        place(memory, batch, sample_by_slot)
        left = sorted(set(freed) - set(sample_by_slot), reverse=True)
        for slot in left:  # the highest first, so that the last one, which moves there, is one that stays
            memory.remove(slot)
        if left:
            self._look_again(memory)

    def _look_again(self, memory: Memory) -> None:
        """Find the slots of each class after samples were moved."""
        self.slots_by_key = {key: [] for key in self.seen} | slots_by_key(memory)
        self.rearranged = memory.rearranged


def herd(offsets: list[Tensor], n_picks: int) -> Tensor:
    """Pick, for each class, the samples whose mean is nearest to the class's mean, one after the other.

        p_k = argmin_x || μ - (f(x) + Σ_{j<k} f(p_j)) / k ||                      iCaRL, Algorithm 4

    Written with g = f(x) - μ, it is the argmin of ||g + Σ g_j||² = const + g·g + 2 Σ g·g_j; no sample is picked twice.

    Args:
        offsets: for each class (n, d) its samples' features less their mean μ.
        n_picks: how many are wanted of each class.

    Returns:
        (classes, n_picks) numbers of samples in the order of their picking; meaningless from the n-th on.
    """
    padded = pad_sequence(offsets, batch_first=True)
    products = (padded @ padded.mT).cpu().numpy()  # on arrays as small as these NumPy is several times faster
    costs = np.diagonal(products, axis1=1, axis2=2).copy()
    for own, rows in zip(costs, offsets, strict=True):
        own[len(rows) :] = np.inf
    products *= 2
    classes = np.arange(len(offsets))
    order = np.empty((len(offsets), n_picks), np.int64)
    for k in range(n_picks):
        picked = order[:, k] = costs.argmin(axis=1)
        costs += products[classes, picked]
        costs[classes, picked] = np.inf
    return torch.from_numpy(order)
