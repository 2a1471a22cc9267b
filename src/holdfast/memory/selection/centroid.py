from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor

from holdfast.core.batch import Batch
from holdfast.core.model import Model
from holdfast.core.state import Count, check_tensor
from holdfast.memory.selection._base import Key, Selection, check_keys, check_slots, keys_of, place, slots_by_key
from holdfast.memory.storage import Memory

FEATURE, OWNER = "feature", "centroid"  # what is kept beside a sample
ROUNDING = 1.001  # a length that exceeds another by this factor is the longer one, however both were worked out
TIE = 1e-5  # numbers that differ by less than this part count as equal: rounding would decide between them
Array = NDArray[Any]


@dataclass(eq=False)
class Centroid(Selection):
    """COS: the samples nearest to the centroids that each class forms while it streams by (Algorithm 1).

    Each class of each task has centroids in the space of un-normalised features. A sample farther than `epsilon`
    from all of them opens a new one; otherwise it moves the nearest, a running mean. The sample then enters memory
    with the probability p(i) = N_i / Σ N_j of its centroid. If its class is over its share, the member of that centroid
    that is farthest from it leaves.

    A centroid without a member gets one with the probability k p(i), which is its part of the k slots of the class. The
    class gives up the farthest member of the centroid that exceeds its part most. Where every sample opens a centroid
    of its own, memory is therefore a uniform sample of the class (a reservoir).

    `memory.rng` breaks every tie: of nearest centroids, of farthest members, of centroids that exceed their parts
    equally, and of largest classes. The generator is used for a tie only, and is saved with the memory.

    Args:
        epsilon: ε, in units of the features, or of the class's spread if `relative`.
        per_class: slots of each class; without it, classes share the memory equally (m / |C|), anew with each class.
        fill_first: take every sample while its class is below its share. The draw alone leaves memory under-filled
            where centroids are many.
        relative: ε is a multiple of the class's running root-mean-square distance to its mean.
        max_centroids: a class opens no more than so many, so that a stream without end needs no memory without end;
            None for no bound. In a memory that counts bytes, theirs count, and there are no more of them than slots.
    """

    derived: ClassVar[frozenset[str]] = frozenset({"_reach", "_changes"})
    extras: ClassVar[frozenset[str]] = frozenset({FEATURE, OWNER})

    epsilon: float = 8.0
    per_class: int | None = None
    fill_first: bool = False
    relative: bool = False
    max_centroids: int | None = 2048

    # By task and class: centroids, in the first rows of (≥ k, d), and N, the samples that each has seen.
    centres: dict[Key, Tensor] = field(default_factory=dict, init=False)
    counts: dict[Key, list[Count]] = field(default_factory=dict, init=False)
    # Samples seen, their mean, and the sum of their squared distances to it.
    seen: dict[Key, Count] = field(default_factory=dict, init=False)
    means: dict[Key, Tensor] = field(default_factory=dict, init=False)
    squares: dict[Key, Annotated[float, Field(ge=0, allow_inf_nan=False)]] = field(default_factory=dict, init=False)
    slots_by_key: dict[Key, list[int]] = field(default_factory=dict, init=False)
    rearranged: Count = field(default_factory=int, init=False)  # of memory, when last seen
    # No member of a centroid is farther from it than this; what comes from farther away is turned away by it alone.
    _reach: dict[Key, dict[int, float]] = field(default_factory=dict, init=False)
    _changes: int = field(default_factory=int, init=False)  # of memory not made here, when last seen

    def __post_init__(self) -> None:
        if self.epsilon <= 0:
            raise ValueError(f"epsilon is {self.epsilon}: give a distance above 0")
        for name, value in (("per_class", self.per_class), ("max_centroids", self.max_centroids)):
            if value is not None and value < 1:
                raise ValueError(f"{name} is {value}: give 1 or more")

    def check(self, memory: Memory, model: Model) -> None:
        n_features = model.head.weight.shape[1]
        check_keys(self.counts, model)
        keys = set(self.counts)
        if not set(self.centres) == set(self.seen) == keys >= set(self.means) | set(self.squares):
            raise ValueError("the saved centroids are not those of the classes seen")
        for key, counts in self.counts.items():
            check_tensor(self.centres[key], like=torch.zeros(0, n_features), name="a table of centroids")
            if not 0 < len(counts) <= len(self.centres[key]) or 0 in counts or not self.seen[key]:
                raise ValueError(f"the centroids of class {key[1]} have seen {counts[:5]} samples")
        for mean in self.means.values():
            check_tensor(mean, like=torch.zeros(n_features), name="the mean of a class")
            if len(mean) != n_features:
                raise ValueError(f"the mean of a class has {len(mean)} features, not {n_features}")
        memory.require_extra(FEATURE, torch.float32, (n_features,))
        owners = memory.require_extra(OWNER, torch.int64, ()).tolist()
        stored = keys_of(memory)
        if not set(stored) <= keys:
            raise ValueError("a class is in memory, but has no centroids")
        if not all(0 <= i < len(self.counts[key]) for key, i in zip(stored, owners, strict=True)):
            raise ValueError("a sample in memory belongs to a centroid that is not there")
        if memory.rearranged == self.rearranged:
            check_slots(self.slots_by_key, memory)
            if set(self.slots_by_key) != keys:
                raise ValueError("the saved slots are not those of the classes with centroids")

    def with_extras(self, batch: Batch, model: Model) -> Batch:
        """Beside each sample its features, by the model that has just learned it, and room for its centroid."""
        feature = batch.extra[FEATURE] if FEATURE in batch.extra else model.embed(batch.x)
        return batch.with_extra(**{FEATURE: feature, OWNER: torch.zeros_like(batch.y)})

    def bytes_beside(self, batch: Batch) -> int:
        """A centroid, and how many samples it has seen."""
        return batch.extra[FEATURE][0].nbytes + 8

    def update(self, memory: Memory, batch: Batch, model: Model) -> None:
        if memory.rearranged != self.rearranged:
            self._look_again(memory)
            self._bring_centroids_down(memory)
        if (changes := memory.rearranged + memory.rewritten) != self._changes:
            self._changes = changes
            self._reach.clear()
        uniform = torch.rand(len(batch), generator=memory.rng, dtype=torch.float64).tolist()
        # On arrays as small as these NumPy is several times faster. On a CPU these are the columns themselves.
        features: Array = batch.extra[FEATURE].cpu().numpy()
        stored: Array = memory.column(FEATURE).cpu().numpy()
        owners: Array = memory.column(OWNER).cpu().numpy()
        owner_by_row = np.zeros(len(batch), np.int64)
        sample_by_slot: dict[int, int] = {}
        n_filled, n_classes = len(memory), len(self.counts)

        for row, key in enumerate(keys_of(batch)):
            f = features[row]
            self.counts.setdefault(key, [])
            share = self.share(memory)
            i, distance = self._assign(key, f, self._most_centroids(memory), memory.rng)
            owner_by_row[row] = i
            slots = self.slots_by_key.setdefault(key, [])
            members = np.array(slots, np.int64)
            members = members[owners.take(members) == i]
            probability = self.counts[key][i] / self.seen[key] * (1 if len(members) else share)
            drawn = uniform[row] < probability
            if not drawn and not (self.fill_first and len(slots) < share):
                continue
            slot: int | None
            if len(slots) >= share and len(members):
                slot = self._victim(key, i, f, distance, members, stored, memory.rng)
            elif len(slots) >= share:  # the paper is silent on a centroid without a member
                slot = self._surplus(key, stored, owners, memory.rng)
            elif n_filled < memory.capacity:
                slot, n_filled = n_filled, n_filled + 1
                slots.append(slot)
            else:  # a new class in a full memory: the largest gives a slot up
                slot = self._taken_from_the_largest(stored, owners, memory.rng)
                slots.append(slot)
            if slot is not None:
                sample_by_slot[slot] = row
                stored[slot], owners[slot] = f, i

        owner = torch.from_numpy(owner_by_row).to(batch.y.device)
        place(memory, batch.with_extra(**{OWNER: owner}), sample_by_slot)
        if len(self.counts) > n_classes:
            self._trim(memory)
            self._bring_centroids_down(memory)
            self._reach.clear()

    def share(self, memory: Memory) -> int:
        """Slots of each class: m / |C|, or the fixed number."""
        return self.per_class or self._equal_part(memory)

    def all_centroids(self) -> tuple[Tensor, Tensor, Tensor]:
        """(k, d) the centroids of all classes, (k,) the class of each, and (k,) how many samples it has seen."""
        centres = [self.centres[key][: len(counts)] for key, counts in self.counts.items()]
        classes = [key[1] for key, counts in self.counts.items() for _ in counts]
        seen = [n for counts in self.counts.values() for n in counts]
        return torch.cat(centres), torch.tensor(classes), torch.tensor(seen)

    def _equal_part(self, memory: Memory) -> int:
        """m / |C|, at least one."""
        return max(1, memory.capacity // len(self.counts))

    def _most_centroids(self, memory: Memory) -> int | None:
        """How many centroids a class may have; None for no bound."""
        if memory.max_bytes is None:
            return self.max_centroids
        return min(self._equal_part(memory), self.max_centroids or memory.capacity)

    def _assign(self, key: Key, f: Array, most: int | None, rng: torch.Generator) -> tuple[int, float]:
        """Find the centroid of a sample with features f (d,), moved for it, or opened if the class has not `most` yet.

        Returns:
            The number of the centroid, and the distance of the sample from it.
        """
        counts = self.counts[key]
        self.seen[key] = self.seen.get(key, 0) + 1
        epsilon = self.epsilon * self._spread(key, f) if self.relative else self.epsilon
        if counts:
            centres: Array = self.centres[key].numpy()
            squares = _squares(centres[: len(counts)] - f)
            smallest = squares.min()
            if math.sqrt(smallest) <= epsilon or (most is not None and len(counts) >= most):
                i = _one_of((squares <= (1 + TIE) ** 2 * smallest).nonzero()[0], rng)
                distance, n = math.sqrt(squares[i]), counts[i] + 1
                centres[i] = (counts[i] * centres[i] + f) / n
                counts[i] = n
                if i in (reach := self._reach.get(key, {})):
                    reach[i] += distance / n  # as far as it has moved
                return i, distance * (1 - 1 / n)
        self._open(key, f, most)
        return len(counts) - 1, 0.0

    def _open(self, key: Key, f: Array, most: int | None) -> None:
        counts = self.counts[key]
        centres = self.centres.setdefault(key, torch.zeros(0, len(f)))
        if len(counts) == len(centres):  # twice the room, so that opening many costs little each
            room = max(4, 2 * len(centres))
            larger = torch.zeros(room if most is None else min(room, most), len(f))
            larger[: len(centres)] = centres
            self.centres[key] = larger
        self.centres[key][len(counts)] = torch.from_numpy(f)
        counts.append(1)

    def _spread(self, key: Key, f: Array) -> float:
        """The class's root-mean-square distance to its mean, f included (Welford)."""
        mean: Array = self.means.setdefault(key, torch.zeros(len(f))).numpy()
        step = f - mean
        mean += step / self.seen[key]
        self.squares[key] = self.squares.get(key, 0.0) + float(step @ (f - mean))
        return float((self.squares[key] / self.seen[key]) ** 0.5)

    def _surplus(self, key: Key, stored: Array, owners: Array, rng: torch.Generator) -> int:
        """Find the slot that a class gives up: the farthest member of the centroid that exceeds its part most.

        The part of centroid i is k N_i / Σ N_j of the k slots that the class has.
        """
        slots = np.array(sorted(self.slots_by_key[key]))
        n_seen = np.array(self.counts[key])
        members = np.bincount(owners[slots], minlength=len(n_seen))
        beyond = np.where(members > 0, members - len(slots) * (n_seen / n_seen.sum()), -np.inf)
        i = _one_of((beyond >= beyond.max() - TIE).nonzero()[0], rng)
        rivals = slots[owners[slots] == i]
        distances = _norms(stored[rivals] - self.centres[key].numpy()[i])
        self._reach.pop(key, None)  # the centroid may be left without a member, and with room for any
        return int(rivals[_farthest(distances, rng)])

    def _victim(
        self, key: Key, i: int, f: Array, distance: float, members: Array, stored: Array, rng: torch.Generator
    ) -> int | None:
        """Find the slot of the member of centroid i that is farthest from it; None if that is the newcomer f itself.

        Args:
            distance: of the newcomer from its centroid.
            members: (k,) slots of the centroid's members, at least one.
        """
        reach = self._reach.setdefault(key, {})
        if distance > ROUNDING * reach.get(i, math.inf):
            return None
        members.sort()
        centre: Array = self.centres[key].numpy()[i]
        offsets = stored.take(members, axis=0)
        offsets -= centre
        distances = np.append(_norms(offsets), _norms(f - centre))
        reach[i] = float(distances[:-1].max())
        farthest = _farthest(distances, rng)
        return int(members[farthest]) if farthest < len(members) else None

    def _taken_from_the_largest(self, stored: Array, owners: Array, rng: torch.Generator) -> int:
        most = max(map(len, self.slots_by_key.values()))
        largest = [key for key, slots in self.slots_by_key.items() if len(slots) == most]
        key = largest[_one_of(np.arange(len(largest)), rng)]
        slot = self._surplus(key, stored, owners, rng)
        self.slots_by_key[key].remove(slot)
        return slot

    def _trim(self, memory: Memory) -> None:
        """Bring every class down to its share, which a new class has made smaller.

        Centroids keep samples in proportion to what they have seen, p(i) again; of each the farthest leave first. The
        farthest of all would be the members of large centroids, and what is left the odd ones out, which have a
        centroid to themselves.
        """
        share = self.share(memory)
        for key in self.counts:
            while len(self.slots_by_key[key]) > share:
                stored, owners = memory.column(FEATURE).cpu().numpy(), memory.column(OWNER).cpu().numpy()
                memory.remove(self._surplus(key, stored, owners, memory.rng))
                self._look_again(memory)

    def _bring_centroids_down(self, memory: Memory) -> None:
        """Leave every class no more centroids than it may have: those that have seen least join the nearest other.

        Of several that have seen equally few, some at random join.
        """
        most = self._most_centroids(memory)
        for key, centres in self.centres.items():
            if most is None or len(centres) <= most:
                continue
            n = torch.tensor(self.counts[key])
            if len(n) <= most:  # room for more that will not come
                self.centres[key] = centres[:most].clone()
                continue
            shuffled = torch.randperm(len(n), generator=memory.rng)
            kept = shuffled[n[shuffled].argsort(descending=True, stable=True)[:most]].sort().values
            joined = torch.cdist(centres[: len(n)], centres[kept]).argmin(dim=1)
            joined[kept] = torch.arange(most)  # also where two lie in one place
            summed = torch.zeros(most, centres.shape[1], dtype=torch.float64)
            summed.index_add_(0, joined, n[:, None] * centres[: len(n)].double())
            n_joined = torch.zeros_like(n[:most]).index_add_(0, joined, n)
            self.centres[key] = (summed / n_joined[:, None]).to(centres.dtype)
            self.counts[key] = n_joined.tolist()
            slots, owners = self.slots_by_key.get(key, []), memory.column(OWNER)
            owners[slots] = joined.to(owners.device)[owners[slots]]

    def _look_again(self, memory: Memory) -> None:
        """Find the slots of each class after samples were moved."""
        self.slots_by_key = {key: [] for key in self.counts} | slots_by_key(memory)
        self.rearranged = memory.rearranged


def _squares(rows: Array) -> Array:
    """(…) the squared length of each row (…, d)."""
    squares: Array = np.vecdot(rows, rows)
    return squares


def _norms(rows: Array) -> Array:
    """(…) the length of each row (…, d)."""
    norms: Array = np.sqrt(_squares(rows))
    return norms


def _one_of(candidates: Array, rng: torch.Generator) -> int:
    """Draw one of the numbers (k,); a single one needs no draw."""
    return int(candidates[0 if len(candidates) == 1 else int(torch.randint(len(candidates), (), generator=rng))])


def _farthest(distances: Array, rng: torch.Generator) -> int:
    """Find the place of the largest distance; draw among those that are equal up to rounding."""
    return _one_of((distances >= (1 - TIE) * distances.max()).nonzero()[0], rng)
