"""A stream that anything should learn, the one of `holdfast check`, and settings with which every method learns it."""

from __future__ import annotations

from typing import Any

from holdfast.checks.toy import N_FEATURES, Toy, toy_batches
from holdfast.core.classes import Setting
from holdfast.learner import Learner

__all__ = ["N_FEATURES", "Toy", "settings_of", "shown", "toy_batches"]

# They add up features, or store them, and train no backbone: here an input is its own features.
UNTRAINED = {"ncm", "slda", "analytic", "randumb", "knn", "hedge"}
# The default of er+mkd is for streams a hundred times as long. The other two take so many steps, or numbers.
FITTED = {"er+mkd": {"teacher_weight": 1.0}, "mer": {"replay_size": 1}, "randumb": {"width": 100}}


def settings_of(method: str, selection: str, setting: Setting) -> dict[str, Any]:
    return {
        "method": {"name": method, **FITTED.get(method, {})},
        "selection": selection,
        "retrieval": "old_tasks",
        "setting": setting,
        "backbone": "identity" if method in UNTRAINED else {"name": "mlp", "hidden": [16]},
        "memory": 30,
        "lr": 0.1 if method == "er_ace" else 0.05,  # which learns new classes more slowly
    }


def shown(learner: Learner, n_batches: int) -> Learner:
    """The learner, once it has observed so many batches of the toy stream, which has twelve a task."""
    for x, y, task in toy_batches(learner.settings.setting)[:n_batches]:
        learner.observe(x, y, task)
    return learner
