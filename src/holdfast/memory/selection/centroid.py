from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Annotated, ClassVar

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from holdfast.core.batch import CENTROID, FEATURE, Batch
from holdfast.core.model import Model
from holdfast.core.options import option
from holdfast.core.state import Count, State, check_tensor
from holdfast.memory.selection._base import ENTRY, Key, Prototypes, Selection, check_keys, keys_of, place
from holdfast.memory.selection._members import ROUNDING, TIE, Array, Members, norms, one_of, squares
from holdfast.memory.storage import Memory

MOST_CENTROIDS = 64  # of a class, unless told otherwise: the time to find the nearest does not grow with the memory


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

    A class that has all the centroids it may have merges two when one more is opened: the pair whose merging adds least
    to the squared distances of samples from their centroids (Ward). The merged centroid is the mean of the two,
    weighted by N_i, and has the members of both.

    `memory.rng` breaks every tie: of nearest centroids, of pairs to merge, of farthest members, of centroids that
    exceed their parts equally, and of largest classes. The generator is saved with the memory.

    The time of an update depends on the number of centroids of a class, and hardly on the number of slots.

    Args:
        epsilon: ε, in units of the features, or of the class's spread if `relative`.
        per_class: slots of each class; without it, classes share the memory equally (m / |C|), anew with each class.
        fill_first: take every sample while its class is below its share. The draw alone leaves memory under-filled
            where centroids are many.
        relative: ε is a multiple of the class's running root-mean-square distance to its mean.
        max_centroids: the most centroids of a class; without it, as many as the class has slots, and at most 64. A
            memory that counts bytes has no more centroids than slots in any case, and counts theirs.
    """

    derived: ClassVar[frozenset[str]] = frozenset({"_members", "_n_slots", "_changes"})
    replaced: ClassVar[frozenset[str]] = frozenset({"centres", "counts", "seen", "means", "squares"})
    extras: ClassVar[frozenset[str]] = frozenset({FEATURE, CENTROID})

    epsilon: Annotated[float, Field(gt=0)] = 8.0
    per_class: Annotated[int, Field(ge=1)] | None = None
    fill_first: bool = False
    relative: bool = False
    # Runs that were stored before centroids merged had 2048.
    max_centroids: Annotated[int, Field(ge=1)] | None = option(None, before=2048)

    # By task and class: centroids, in the first rows of (≥ k, d), and N, the samples that each has seen.
    centres: dict[Key, Tensor] = field(default_factory=dict, init=False)
    counts: dict[Key, list[Count]] = field(default_factory=dict, init=False)
    # Samples seen, their mean, and the sum of their squared distances to it.
    seen: dict[Key, Count] = field(default_factory=dict, init=False)
    means: dict[Key, Tensor] = field(default_factory=dict, init=False)
    squares: dict[Key, Annotated[float, Field(ge=0, allow_inf_nan=False)]] = field(default_factory=dict, init=False)
    _members: dict[Key, list[Members]] = field(default_factory=dict, init=False)  # of each centroid
    _n_slots: dict[Key, int] = field(default_factory=dict, init=False)
    _changes: int | None = field(default=None, init=False)  # of memory not made here, when the members were indexed

    def load_state_dict(self, state: State) -> None:
        """Restore; the slots of each class, which earlier versions saved, are found again from the memory."""
        if isinstance(state, dict):
            state = {name: value for name, value in state.items() if name not in ("slots_by_key", "rearranged")}
        super().load_state_dict(state)

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
        owners = memory.require_extra(CENTROID, torch.int64, ()).tolist()
        stored = keys_of(memory)
        if not set(stored) <= keys:
            raise ValueError("a class is in memory, but has no centroids")
        if not all(0 <= i < len(self.counts[key]) for key, i in zip(stored, owners, strict=True)):
            raise ValueError("a sample in memory belongs to a centroid that is not there")

    def with_extras(self, batch: Batch, model: Model) -> Batch:
        """Beside each sample its features, by the model that has just learned it, and room for its centroid."""
        feature = batch.extra[FEATURE] if FEATURE in batch.extra else model.embed(batch.x)
        return batch.with_extra(**{FEATURE: feature, CENTROID: torch.zeros_like(batch.y)})

    def bytes_beside(self, batch: Batch) -> int:
        """Return the bytes of a centroid and of its count."""
        return batch.extra[FEATURE][0].nbytes + 8

    def bytes_of_classes(self, batch: Batch) -> int:
        """Return the bytes of a centroid and the counts of each class, and of its mean if ε is relative.

        A class has a centroid even where classes are more than slots, so this one is counted apart from those beside
        slots.
        """
        n_classes = len(self.counts.keys() | set(keys_of(batch)))
        length = batch.extra[FEATURE][0].nbytes + 8
        return n_classes * (length * (2 if self.relative else 1) + 2 * ENTRY)

    def update(self, memory: Memory, batch: Batch, model: Model) -> None:
        if memory.rearranged + memory.rewritten != self._changes:
            self._index(memory)
            self._merge_down(memory)
        uniform = torch.rand(len(batch), generator=memory.rng, dtype=torch.float64).tolist()
        # On arrays as small as these NumPy is several times faster. On a CPU these are the columns themselves.
        features: Array = batch.extra[FEATURE].cpu().numpy()
        stored: Array = memory.column(FEATURE).cpu().numpy()
        owners: Array = memory.column(CENTROID).cpu().numpy()
        sample_by_slot: dict[int, int] = {}
        kept: set[Key] = set()
        n_filled, n_classes = len(memory), len(self.counts)

        for row, key in enumerate(keys_of(batch)):
            f = features[row]
            if key not in kept:
                self._keep(memory, key)
                kept.add(key)
            self.counts.setdefault(key, [])
            self._members.setdefault(key, [])
            self._n_slots.setdefault(key, 0)
            share = self.share(memory)
            i, distance = self._assign(key, f, self._most_centroids(memory), owners, memory)
            members = self._members[key][i]
            p = self.counts[key][i] / self.seen[key]
            drawn = uniform[row] < (p if len(members) else share * p)
            is_full = self._n_slots[key] >= share
            if not drawn and not (self.fill_first and not is_full):
                continue
            slot: int | None
            if is_full and len(members):
                slot = self._victim(members, self.centres[key].numpy()[i], distance, stored, memory.rng)
                if slot is None:
                    continue
            else:
                if is_full:  # the paper is silent on a centroid without a member
                    slot = self._given_up(key, stored, memory.rng)
                elif n_filled < memory.capacity:
                    slot, n_filled = n_filled, n_filled + 1
                else:  # a new class in a full memory
                    slot = self._given_up(self._largest(memory.rng), stored, memory.rng)
                members.add(slot, distance)
                self._n_slots[key] += 1
            sample_by_slot[slot] = row
            memory.undo.item(stored, slot)
            memory.undo.item(owners, slot)
            stored[slot], owners[slot] = f, i

        self._place(memory, batch, sample_by_slot, owners)
        if len(self.counts) > n_classes:
            self._trim(memory)
            self._merge_down(memory)

    def share(self, memory: Memory) -> int:
        """Slots of each class: m / |C|, or the fixed number."""
        return self.per_class or self._equal_part(memory)

    def prototypes(self) -> Prototypes:
        """Return the centroids of all classes."""
        centres = [self.centres[key][: len(counts)] for key, counts in self.counts.items()]
        y = [key[1] for key, counts in self.counts.items() for _ in counts]
        n_seen = [n for counts in self.counts.values() for n in counts]
        features = torch.cat(centres) if centres else torch.zeros(0, 0)
        return Prototypes(features, torch.tensor(y, dtype=torch.int64), torch.tensor(n_seen, dtype=torch.int64))

    def distances(self, memory: Memory) -> Tensor:
        """(n,) Return how far the stored feature of each sample is from the centroid that it belongs to."""
        owners = memory.extra(CENTROID).tolist()
        rows = [self.centres[key][owner] for key, owner in zip(keys_of(memory), owners, strict=True)]
        return (memory.extra(FEATURE).cpu() - torch.stack(rows)).square().sum(dim=1).sqrt()

    def _equal_part(self, memory: Memory) -> int:
        """Return m / |C|, at least one."""
        return max(1, memory.capacity // len(self.counts))

    def _most_centroids(self, memory: Memory) -> int:
        """Return the number of centroids that a class may have."""
        most = self.max_centroids or min(self.share(memory), MOST_CENTROIDS)
        return most if memory.max_bytes is None else min(most, self._equal_part(memory))

    def _assign(self, key: Key, f: Array, most: int, owners: Array, memory: Memory) -> tuple[int, float]:
        """Find the centroid of a sample with features f (d,), moved for it, or opened for it.

        Returns:
            The number of the centroid, and the distance of the sample from it.
        """
        counts, rng = self.counts[key], memory.rng
        self.seen[key] = self.seen.get(key, 0) + 1
        epsilon = self.epsilon * self._spread(key, f) if self.relative else self.epsilon
        if counts:
            centres: Array = self.centres[key].numpy()[: len(counts)]
            distances = squares(centres - f)
            nearest = distances.min()
            if math.sqrt(nearest) <= epsilon:
                i = one_of((distances <= (1 + TIE) ** 2 * nearest).nonzero()[0].tolist(), rng)
                self._join(key, i, f, 1, away=math.sqrt(distances[i]))
                return i, float(norms(f - centres[i]))
        if len(counts) < most:
            self._append(key, f, most)
            return len(counts) - 1, 0.0
        kept, gone = _closest_pair(np.vstack([centres, f]), [*counts, 1], rng)
        if gone == len(counts):  # the new centroid itself
            self._join(key, kept, f, 1, away=float(norms(f - centres[kept])))
            return kept, float(norms(f - centres[kept]))
        self._merge(key, kept, gone, owners, memory)
        centres[gone], counts[gone] = f, 1
        return gone, 0.0

    def _append(self, key: Key, f: Array, most: int) -> None:
        """Give a class one more centroid, at f (d,)."""
        counts = self.counts[key]
        centres = self.centres.setdefault(key, torch.zeros(0, len(f)))
        if len(counts) == len(centres):  # twice the room, so that opening many costs little each
            larger = torch.zeros(min(max(4, 2 * len(centres)), most), len(f))
            larger[: len(centres)] = centres
            self.centres[key] = larger
        self.centres[key][len(counts)] = torch.from_numpy(f)
        counts.append(1)
        self._members[key].append(Members())

    def _join(self, key: Key, i: int, mean: Array, n: int, *, away: float) -> None:
        """Let n samples with a `mean` (d,) join centroid i: it moves to the mean of all that it has seen then.

        Args:
            away: distance of the mean from the centroid, of which it goes the part n / (N_i + n).
        """
        counts, centre = self.counts[key], self.centres[key].numpy()[i]
        centre[:] = (counts[i] * centre + n * mean) / (counts[i] + n)
        counts[i] += n
        self._members[key][i].travel += away * n / counts[i]

    def _merge(self, key: Key, kept: int, gone: int, owners: Array, memory: Memory) -> None:
        """Let centroid `gone` join `kept` with its members; its own number is free then."""
        members, centres = self._members[key], self.centres[key].numpy()
        away = float(norms(centres[gone] - centres[kept]))
        self._join(key, kept, centres[gone], self.counts[key][gone], away=away)
        members[kept].join(members[gone])
        memory.undo.rows(owners, members[gone].slots.copy())
        owners[members[gone].slots] = kept
        members[gone] = Members()

    def _spread(self, key: Key, f: Array) -> float:
        """Return the class's root-mean-square distance to its mean, f included (Welford)."""
        mean: Array = self.means.setdefault(key, torch.zeros(len(f))).numpy()
        step = f - mean
        mean += step / self.seen[key]
        self.squares[key] = self.squares.get(key, 0.0) + float(step @ (f - mean))
        return float((self.squares[key] / self.seen[key]) ** 0.5)

    def _victim(
        self, members: Members, centre: Array, distance: float, stored: Array, rng: torch.Generator
    ) -> int | None:
        """Find the slot of the member that is farthest from the centroid, and give it to a newcomer.

        Args:
            distance: of the newcomer from the centroid; the answer is None if the newcomer is the farthest.
        """
        if distance > ROUNDING * members.reach():
            return None
        farthest = members.farthest(centre, stored, distance, rng)
        if farthest is None:
            return None
        members.replace(farthest, distance)
        return int(members.slots[farthest])

    def _given_up(self, key: Key, stored: Array, rng: torch.Generator) -> int:
        """Take a slot from a class: the farthest member of the centroid that exceeds its part most.

        The part of centroid i is k N_i / Σ N_j of the k slots that the class has.
        """
        n_members = np.array([len(members) for members in self._members[key]])
        n_seen = np.array(self.counts[key])
        beyond = np.where(n_members > 0, n_members - self._n_slots[key] * (n_seen / n_seen.sum()), -np.inf)
        i = one_of((beyond >= beyond.max() - TIE).nonzero()[0].tolist(), rng)
        members = self._members[key][i]
        farthest = members.farthest(self.centres[key].numpy()[i], stored, None, rng)
        assert farthest is not None  # no newcomer competes
        slot = int(members.slots[farthest])
        members.remove(farthest)
        self._n_slots[key] -= 1
        return slot

    def _largest(self, rng: torch.Generator) -> Key:
        """Find the class that has most slots."""
        most = max(self._n_slots.values())
        return one_of([key for key in self.counts if self._n_slots[key] == most], rng)

    def _place(self, memory: Memory, batch: Batch, sample_by_slot: dict[int, int], owners: Array) -> None:
        """Put the chosen samples into memory, each with the centroid that it belongs to by now."""
        column = memory.column(CENTROID)
        if column.device.type != "cpu":  # else `owners` is the column itself
            memory.undo.rows(column, torch.arange(len(column), device=column.device))
            column.copy_(torch.from_numpy(owners))
        slots = list(sample_by_slot)
        owner_by_row = torch.zeros(len(batch), dtype=torch.int64)
        owner_by_row[[sample_by_slot[slot] for slot in slots]] = torch.from_numpy(owners[slots])
        place(memory, batch.with_extra(**{CENTROID: owner_by_row.to(batch.y.device)}), sample_by_slot)

    def _trim(self, memory: Memory) -> None:
        """Bring every class down to its share, which a new class has made smaller.

        Centroids keep samples in proportion to what they have seen, p(i) again; of each the farthest leave first. The
        farthest of all would be the members of large centroids, and what is left the odd ones out, which have a
        centroid to themselves.
        """
        share = self.share(memory)
        stored = memory.column(FEATURE).cpu().numpy()
        given_up: list[int] = []
        for key in self.counts:
            n_surplus = self._n_slots[key] - share
            given_up.extend(self._given_up(key, stored, memory.rng) for _ in range(n_surplus))
        if given_up:
            memory.remove_all(given_up)
            self._index(memory)

    def _keep(self, memory: Memory, key: Key) -> None:
        """Write down what is known of a class, which is about to change."""
        of_spread = (self.means, self.squares) if self.relative else ()
        for table in (self.centres, self.counts, self.seen, *of_spread):
            memory.undo.item(table, key)

    def _merge_down(self, memory: Memory) -> None:
        """Leave every class no more centroids than it may have, and no more room than for those."""
        if not self.counts:
            return
        most, column = self._most_centroids(memory), memory.column(CENTROID)
        owners: Array = column.cpu().numpy()
        for key, counts in self.counts.items():
            if len(self.centres[key]) <= most:
                continue
            self._keep(memory, key)
            centres: Array = self.centres[key].numpy()
            members = self._members[key]
            while len(counts) > most:
                kept, gone = _closest_pair(centres[: len(counts)], counts, memory.rng)
                self._merge(key, kept, gone, owners, memory)
                memory.undo.rows(owners, members[-1].slots.copy())
                centres[gone] = centres[len(counts) - 1]  # the last takes the number that is free
                counts[gone], members[gone] = counts[-1], members[-1]
                owners[members[gone].slots] = gone
                del counts[-1], members[-1]
            self.centres[key] = self.centres[key][:most].clone()
        if column.device.type != "cpu":  # else `owners` is the column itself
            memory.undo.rows(column, torch.arange(len(column), device=column.device))
            column.copy_(torch.from_numpy(owners))

    def _index(self, memory: Memory) -> None:
        """Find the members of each centroid, after samples were moved or their features taken anew."""
        self._members = {key: [Members() for _ in counts] for key, counts in self.counts.items()}
        self._n_slots = dict.fromkeys(self.counts, 0)
        self._changes = memory.rearranged + memory.rewritten
        if not len(memory):
            return
        columns = torch.stack([memory.task, memory.y, memory.extra(CENTROID)]).cpu().numpy()
        slots = np.lexsort(columns[::-1])
        columns = columns[:, slots]
        begins = (columns[:, 1:] != columns[:, :-1]).any(axis=0).nonzero()[0] + 1
        for own, (task, y, i) in zip(np.split(slots, begins), columns[:, [0, *begins]].T.tolist(), strict=True):
            self._members[task, y][i] = Members(own)
            self._n_slots[task, y] += len(own)


def _closest_pair(centres: Array, counts: list[int], rng: torch.Generator) -> tuple[int, int]:
    """Find the two of the centroids (n, d) that are best merged, the first of them first.

    A merge adds N_i N_j / (N_i + N_j) ||c_i - c_j||² to the sum of squared distances of samples from their centroids
    (Ward, JASA 1963). The smallest addition wins. The distance alone would let one centroid in the
    middle of a class swallow nearly all others.
    """
    offsets = centres.astype(np.float64)
    offsets -= offsets.mean(axis=0)
    lengths, n = squares(offsets), np.array(counts, np.float64)
    between = lengths[:, None] + lengths - 2 * offsets @ offsets.T
    rounding = 1e-12 * lengths.max()
    added = (between.clip(min=0) + rounding) * (n[:, None] * n / (n[:, None] + n))
    added[np.tri(len(n), dtype=bool)] = np.inf  # each pair once
    smallest = (added <= (1 + TIE) ** 2 * added.min()).ravel().nonzero()[0]
    kept, gone = divmod(one_of(smallest.tolist(), rng), len(n))
    return kept, gone
