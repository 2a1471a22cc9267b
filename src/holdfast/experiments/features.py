"""Compute the features of a stream's samples once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from torch import Tensor

from holdfast.build import build_model, build_stream
from holdfast.core.model import PREDICT_SIZE, Model
from holdfast.settings import LearnerSettings, Part, options_of, resolved
from holdfast.streams._base import Samples
from holdfast.streams._feature_file import FeatureFile, FeatureTable

WHOLE = {"tasks": "all", "n_tasks": None, "samples_per_task": None}  # options that choose samples, and those for all


def compute_features(
    stream: Part,
    backbone: Part,
    *,
    data: Path | None = None,
    seed: int = 1234,
    progress: Callable[[int, int], None] | None = None,
) -> FeatureFile:
    """Compute the features of every sample of a stream, whatever task it is in, as the model sees it when predicting.

    Args:
        seed: of the stream and of a backbone that is not pre-trained.
        progress: called with the number of samples done, and of how many.
    """
    resolved("backbones", backbone)
    taken = options_of("streams", stream.name)
    chosen = stream.with_options(**{name: value for name, value in WHOLE.items() if name in taken})
    built = build_stream(chosen, data, seed)
    tasks = list(built)
    settings = LearnerSettings(method=Part(name="ncm"), backbone=backbone, seed=seed)
    model = build_model(settings, built.input_shape, scale=built.scale, mean=built.mean)
    train, test = _once([task.train for task in tasks]), _once([task.test for task in tasks])
    n_samples, done = len(train) + len(test), 0

    def embedded(samples: Samples) -> FeatureTable:
        nonlocal done
        parts = []
        for i in range(0, len(samples), PREDICT_SIZE):
            parts.append(_embed(model, samples[i : i + PREDICT_SIZE].x))
            done += len(parts[-1])
            if progress:
                progress(done, n_samples)
        return FeatureTable(samples.rows, torch.cat(parts))

    return FeatureFile(embedded(train), embedded(test), stream.model_dump(), backbone.model_dump())


def _embed(model: Model, x: Tensor) -> Tensor:
    return model.embed(x).float().cpu()


def _once(parts: Sequence[Samples]) -> Samples:
    """Join the samples of all tasks, each row of the data set once, in the order of rows."""
    first = parts[0]
    if any(part.read is not first.read for part in parts):
        raise ValueError("this stream changes inputs from task to task: features would be of one task only")
    rows = torch.cat([part.rows for part in parts])
    y = torch.cat([part.y for part in parts])
    rows, first_of = _unique(rows)
    return Samples(first.read, rows, y[first_of], torch.zeros_like(rows))


def _unique(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Give the rows (k,) in rising order, each once, and where (k,) it stands first."""
    order = rows.argsort(stable=True)
    ordered = rows[order]
    is_first = torch.ones_like(ordered, dtype=torch.bool)
    is_first[1:] = ordered[1:] != ordered[:-1]
    return ordered[is_first], order[is_first]
