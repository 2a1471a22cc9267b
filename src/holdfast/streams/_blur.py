"""Draws of streams whose tasks share classes: disjoint classes stay in one task, blurry ones leak into the others."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from holdfast.streams._base import Samples, shuffled
from holdfast.streams._pool import rows_by_class


def blurred(
    samples: Samples,
    disjoint: Sequence[Sequence[int]],
    blurry: Sequence[Sequence[int]],
    *,
    blurry_samples: float,
    generator: torch.Generator,
) -> list[Tensor]:
    """Draw the samples of each task: positions (k,) in `samples`, a list an entry of `disjoint`.

    Every sample of a disjoint class goes to the task of the class. So does a sample of a blurry class, but for
    `blurry_samples` per cent of each blurry class, rounded: these go to the other tasks, drawn uniformly.
    """
    n_tasks = len(disjoint)
    rows = rows_by_class(samples)
    parts: list[list[Tensor]] = [[] for _ in range(n_tasks)]
    for task, classes in enumerate(disjoint):
        parts[task] += [rows[c] for c in classes]
    for task, classes in enumerate(blurry):
        others = torch.tensor([other for other in range(n_tasks) if other != task])
        for c in classes:
            order = rows[c][torch.randperm(len(rows[c]), generator=generator)]
            n_moved = round(blurry_samples / 100 * len(order)) if len(others) else 0
            moved, stay = order[:n_moved], order[n_moved:]
            parts[task].append(stay)
            if n_moved:
                to = others[torch.randint(len(others), (n_moved,), generator=generator)]
                for other in others.tolist():
                    parts[other].append(moved[to == other])
    return [torch.cat(part).sort().values if part else torch.empty(0, dtype=torch.int64) for part in parts]


def divided(classes: Sequence[int], disjoint_classes: float, generator: torch.Generator) -> tuple[list[int], list[int]]:
    """Draw which classes are disjoint, `disjoint_classes` per cent of them, rounded; the others are blurry."""
    order = shuffled(classes, generator)
    n_disjoint = round(disjoint_classes / 100 * len(order))
    return order[:n_disjoint], order[n_disjoint:]


def even_groups(classes: Sequence[int], n_groups: int) -> list[list[int]]:
    """Cut classes into groups whose sizes differ by one at most."""
    return [list(classes[i::n_groups]) for i in range(n_groups)]


def random_groups(classes: Sequence[int], n_groups: int, generator: torch.Generator) -> list[list[int]]:
    """Put each class into a group drawn uniformly; a group may stay empty."""
    to = torch.randint(n_groups, (len(classes),), generator=generator).tolist()
    return [[c for c, group in zip(classes, to, strict=True) if group == each] for each in range(n_groups)]
