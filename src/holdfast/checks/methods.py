"""Contracts of a method: what every one of them holds, with every selection and in every setting."""

from __future__ import annotations

import copy
import inspect
import math
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import torch

from holdfast.checks._base import Check, Failed, expect
from holdfast.checks.same import assert_same
from holdfast.checks.toy import N_FEATURES, Toy, toy_batches, toy_learner
from holdfast.core.classes import SETTINGS
from holdfast.experiments.experiment import Experiment
from holdfast.experiments.results import ResultStore
from holdfast.experiments.run import run
from holdfast.learner import Learner
from holdfast.loading import load_learner
from holdfast.methods._base import ReplayMethod
from holdfast.settings import LearnerSettings, Part, options_of

SAVED_AFTER = (0, 7, 11, 12, 20)  # batches: the first one, inside tasks, on both sides of a change of task
ENOUGH = 0.7  # accuracy on the last task of the toy stream, where chance is at most 0.5


def method_checks(method: Part, settings: dict[str, Any]) -> Iterator[Check]:
    """Yield the checks of a method.

    Args:
        settings: of the learner, as {"lr": 0.01}, in place of those that the checks take.
    """
    yield Check("no option is named like an argument of a learner", lambda _: check_option_names(method.name))
    given = {"backbone": {"name": "mlp", "hidden": [16]}, "memory": 30, "lr": 0.05, **settings}
    for setting in [given.pop("setting")] if "setting" in given else SETTINGS:
        stated = {"method": method.model_dump(), "setting": setting, **given}
        for sentence, function in (
            ("it learns a toy stream", partial(_check_learning, stated)),
            ("a saved learner continues with the same bits", partial(check_saving, stated)),
            ("it learns batches of one sample", partial(_apart, check_batches_of_one, stated)),
            ("weights of samples do what `takes_weights` says", partial(_apart, check_sample_weights, stated)),
            ("predicting changes nothing", partial(_apart, check_predicting, stated)),
            ("an earlier state scores as it did then", partial(_apart, check_going_back, stated)),
            ("a run never shows it the future", partial(check_future, stated)),
        ):
            yield Check(f"{sentence} ({setting})", function)
    if settings.get("setting", "free") == "free":
        free = {"method": method.model_dump(), "setting": "free", **given}
        yield Check("where tasks are unknown, all stored samples are old", partial(_apart, check_all_is_old, free))
    frozen = {"method": method.model_dump(), "setting": settings.get("setting", "class"), **given}
    frozen["backbone"] = {"name": "mlp", "hidden": [16], "frozen": True}
    yield Check("a frozen backbone keeps its weights", partial(_apart, check_frozen_backbone, frozen))


def check_option_names(method: str) -> None:
    """Check that no option of a method has the name of an argument or a setting of a learner."""
    taken = {*inspect.signature(Learner.__init__).parameters, *LearnerSettings.model_fields}
    both = sorted(taken & set(options_of("methods", method)))
    expect(not both, f"the options {', '.join(both)} are arguments of a learner: give them other names")


def check_saving(settings: dict[str, Any], folder: Path) -> Learner:
    """Check that a learner that is saved and loaded on the way ends like one that never was; returns the learner."""
    never_saved, learner = toy_learner(settings), toy_learner(settings)
    for i, (x, y, task) in enumerate(toy_batches(settings["setting"])):
        never_saved.observe(x, y, task)
        loss = learner.observe(x, y, task)
        expect(isinstance(loss, float) and math.isfinite(loss), f"observe returned {loss!r}, not a finite number")
        if i in SAVED_AFTER:
            learner.save(folder / "learner")
            learner = load_learner(folder / "learner", trust_code=True)
    assert_same(learner.state_dict(), never_saved.state_dict())
    return learner


def check_learned(learner: Learner, settings: dict[str, Any], *, at_least: float = ENOUGH) -> None:
    """Check that a learner of the toy stream names the classes of its last task."""
    last = Toy(shared=settings["setting"] == "domain")[-1]
    test = last.test[:]
    predicted = learner.predict(test.x, last.id if settings["setting"] == "task" else None)
    accuracy = (predicted == test.y).double().mean().item()
    expect(
        accuracy > at_least,
        f"accuracy {accuracy:.2f} on the last of three easy tasks, directly after it; more than {at_least} is "
        "expected: try --set lr=0.01 or --set lr=0.2",
    )


def check_batches_of_one(settings: dict[str, Any]) -> None:
    """Check that a method learns and predicts one sample at a time."""
    learner = toy_learner(settings)
    for x, y, task in toy_batches(settings["setting"])[::6]:
        loss = learner.observe(x[:1], y[:1], task)
        expect(loss >= 0, f"the loss of a batch of one sample is {loss}")
    predicted = learner.predict(torch.zeros(1, N_FEATURES), 0 if settings["setting"] == "task" else None)
    expect(predicted.shape == (1,), f"predict returned shape {tuple(predicted.shape)} for one sample")


def check_sample_weights(settings: dict[str, Any]) -> None:
    """Check that weights of 1 change no bit, that 0 leaves a sample out, and that others count or are refused."""
    plain, ones, shorter, zeros, weighted = (toy_learner(settings) for _ in range(5))
    kept = torch.arange(10) % 4 != 1
    kind = None
    for x, y, task in toy_batches(settings["setting"])[::9]:
        plain.observe(x, y, task)
        ones.observe(x, y, task, sample_weight=torch.ones(10))
        shorter.observe(x[kept], y[kept], task)
        zeros.observe(x, y, task, sample_weight=kept)
        kind = plain.method.takes_weights
        if kind != "no":
            weighted.observe(x, y, task, sample_weight=1 + torch.arange(10) % 2)
    assert_same(ones.state_dict(), plain.state_dict())
    assert_same(zeros.state_dict(), shorter.state_dict())
    if kind == "no":
        with suppress(ValueError):
            weighted.observe(x, y, task, sample_weight=0.5)
            raise Failed("weights were taken, but `takes_weights` is 'no'")
    elif kind == "share":
        scores = (each.scores(x, task if settings["setting"] == "task" else None) for each in (weighted, plain))
        expect(not torch.equal(*scores), "weights change nothing: multiply each loss by `batch.weight`")


def check_predicting(settings: dict[str, Any]) -> None:
    """Check that a learner that is asked before and after each batch learns the same as one that is left alone."""
    asked, left_alone = toy_learner(settings), toy_learner(settings)
    by_task = settings["setting"] == "task"
    for x, y, task in toy_batches(settings["setting"])[10:14]:
        for learner in (left_alone, asked):
            learner.observe(x, y, task)
        for _ in range(2):
            asked.predict(x, task if by_task else None)
            asked.features(x)
    assert_same(asked.state_dict(), left_alone.state_dict())
    scores = [learner.scores(x, task if by_task else None) for learner in (asked, left_alone)]
    expect(torch.equal(*scores), "the learner that was asked all the time scores otherwise")


def check_going_back(settings: dict[str, Any]) -> None:
    """Check that a method whose earlier state is restored scores as it did then: nothing derived is left over."""
    learner = toy_learner({"n_classes": 6, **settings})
    batches = toy_batches(settings["setting"])
    task = 0 if settings["setting"] == "task" else None
    for x, y, number in batches[:20]:
        learner.observe(x, y, number)
    earlier, scores = copy.deepcopy(learner.method.state_dict()), learner.scores(batches[0][0], task)
    learner.observe(*batches[20])
    learner.scores(batches[0][0], task)
    learner.method.load_state_dict(earlier)
    expect(torch.equal(learner.scores(batches[0][0], task), scores), "the scores are others than before")


def check_future(settings: dict[str, Any], folder: Path) -> None:
    """Check that accuracies before the last task do not depend on what the last task will be."""
    accuracies = []
    for future in (0, 1):
        options = {"shared": settings["setting"] == "domain", "future": future, "n_train": 40}
        stream = Part(name=f"{Toy.__module__}:Toy", options=options)
        experiment = Experiment.model_validate({"stream": stream, **settings})
        accuracies.append(run(experiment, ResultStore(folder / str(future))).accuracies)
    expect(accuracies[0][:-1] == accuracies[1][:-1], f"{accuracies[0][:-1]} and {accuracies[1][:-1]}")


def check_all_is_old(settings: dict[str, Any]) -> bool:
    """Check that a replay method may replay every stored sample of a stream without tasks; returns if it replays."""
    learner = toy_learner(settings)
    batches = toy_batches("free")
    for x, y, _ in batches[:4]:
        learner.observe(x, y)
    if not isinstance(learner.method, ReplayMethod):
        return False
    learner.method.replay_size = 1000
    seen: list[int] = []
    recall = learner.method.recall

    def counted(batch: Any) -> Any:
        old = recall(batch)
        seen.append(len(old))
        return old

    learner.method.__dict__["recall"] = counted
    n_stored = len(learner.method.memory)
    expect(n_stored > 0, "nothing was stored: call self.remember(batch) in observe")
    learner.observe(*batches[4])
    if seen:  # a method may store samples and replay none
        expect(seen[0] == n_stored, f"{seen[0]} of {n_stored} stored samples could be replayed")
    return bool(seen)


def check_frozen_backbone(settings: dict[str, Any]) -> None:
    """Check that a method leaves the weights of a frozen backbone as they are."""
    learner = toy_learner({**settings, "input_shape": (N_FEATURES,)})
    before = {name: tensor.clone() for name, tensor in learner.method.model.backbone.state_dict().items()}
    for x, y, task in toy_batches(settings["setting"])[10:14]:
        learner.observe(x, y, task)
    assert_same(dict(learner.method.model.backbone.state_dict()), before, "backbone")


def _check_learning(settings: dict[str, Any], _: Path) -> None:
    learner = toy_learner(settings)
    for x, y, task in toy_batches(settings["setting"]):
        learner.observe(x, y, task)
    check_learned(learner, settings)


def _apart(function: Any, settings: dict[str, Any], _: Path) -> None:
    function(settings)
