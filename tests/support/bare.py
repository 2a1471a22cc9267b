"""Learners as experiments have them: nothing around the method, and inputs as they come."""

from __future__ import annotations

from typing import Any

from holdfast import Learner


def bare(method: Any = "er", **options: Any) -> Learner:
    """Return a learner without standardisation, calibration and recovery, so that a loss can be worked out by hand."""
    learner = Learner(method, standardise=False, **options)
    learner.practice = None
    return learner


def replaying(method: str, **options: Any) -> Learner:
    """Return a bare learner of a small network that replays from all of a small memory."""
    return bare(method, memory=30, retrieval="uniform", backbone={"name": "mlp", "hidden": [8]}, **options)
