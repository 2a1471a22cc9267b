"""Parts of a result that probes of this package left: checked when they are read, and summed up in numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from pydantic import BaseModel

from holdfast.experiments.anytime import (
    area_under_accuracy,
    average_anytime_accuracy,
    minimum_accuracy,
    worst_case_accuracy,
)
from holdfast.experiments.probes.confusion import ConfusionPart
from holdfast.experiments.probes.cost import CostPart
from holdfast.experiments.probes.curve import CurvePart
from holdfast.experiments.probes.prequential import PrequentialPart

Parts = Mapping[str, dict[str, Any]]

MODELS: dict[str, type[BaseModel]] = {
    "confusion": ConfusionPart,
    "cost": CostPart,
    "curve": CurvePart,
    "prequential": PrequentialPart,
}


def check_parts(parts: Parts) -> None:
    """Raise ValueError if a part of a probe of this package is not what the probe leaves."""
    for name, part in parts.items():
        if name in MODELS:
            MODELS[name].model_validate(part)


def curve_of(parts: Parts) -> CurvePart | None:
    """Return the learning curve; None if it was not measured."""
    return CurvePart.model_validate(parts["curve"]) if "curve" in parts else None


def prequential_of(parts: Parts) -> PrequentialPart | None:
    """Return the prequential accuracies; None if they were not measured."""
    return PrequentialPart.model_validate(parts["prequential"]) if "prequential" in parts else None


def confusion_of(parts: Parts) -> ConfusionPart | None:
    """Return the confusion matrix; None if it was not measured."""
    return ConfusionPart.model_validate(parts["confusion"]) if "confusion" in parts else None


def metrics_of(parts: Parts) -> dict[str, float]:
    """Return the numbers that follow from the parts, by name; those that were not measured are left out."""
    found: dict[str, float] = {}
    if (curve := curve_of(parts)) is not None and curve.steps:
        found |= _of_curve(curve)
    if (prequential := prequential_of(parts)) is not None:
        found["prequential_accuracy"] = prequential.accuracy
        if shares := [right / n for right, n in prequential.by_class.values() if n]:
            found["prequential_class_accuracy"] = sum(shares) / len(shares)
    if "cost" in parts and (flops := CostPart.model_validate(parts["cost"]).flops_per_batch) is not None:
        found["gigaflops_per_batch"] = flops / 1e9
    return {name: value for name, value in found.items() if not math.isnan(value)}


def _of_curve(curve: CurvePart) -> dict[str, float]:
    found = {"area_under_accuracy": area_under_accuracy(curve.samples, curve.seen)}
    n_tasks = max(len(row) for row in curve.accuracies)
    accuracies = np.full((len(curve.steps), n_tasks), np.nan)
    for i, row in enumerate(curve.accuracies):
        accuracies[i, : len(row)] = [np.nan if value is None else value for value in row]
    if not np.isnan(accuracies).all(axis=1).any():
        found["average_anytime_accuracy"] = average_anytime_accuracy(accuracies)
    if len(curve.learned) == n_tasks and not np.isnan(accuracies[curve.learned[-1]]).any():  # learned in turn
        found["minimum_accuracy"] = minimum_accuracy(accuracies, curve.learned)
        found["worst_case_accuracy"] = worst_case_accuracy(accuracies, curve.learned)
    return found
