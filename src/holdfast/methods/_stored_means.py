"""Classifying by the nearest mean of stored samples."""

from __future__ import annotations

import torch
from torch import Tensor

from holdfast.core.classifiers import class_means, nearest_mean_scores
from holdfast.core.model import Model
from holdfast.memory.storage import Memory


def stored_means(model: Model, memory: Memory) -> tuple[Tensor, Tensor]:
    """Return (k, n_features), the mean of each class of each task in memory, and (k,) its class."""
    if not len(memory):
        return model.head.weight[:0], torch.zeros(0, dtype=torch.int64, device=model.device)
    pairs = torch.stack([memory.task, memory.y])
    keys, key_of_sample = torch.unique(pairs, dim=1, return_inverse=True)
    return class_means(model.embed(memory.x), key_of_sample, keys.shape[1], memory.weight), keys[1]


def stored_mean_scores(features: Tensor, means: Tensor, classes: Tensor, n_classes: int) -> Tensor:
    """Return (n, n_classes) cosines with the nearest mean of the class; -1, the least, for a class without samples.

    Args:
        features: (n, n_features). means, classes: what `stored_means` gives.
    """
    cosines = nearest_mean_scores(features, means)
    scores = cosines.new_full((len(features), n_classes), -1.0)
    return scores.scatter_reduce_(1, classes.expand(len(features), -1), cosines, "amax")
