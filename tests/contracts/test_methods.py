"""What holds for every method, with every selection, in every setting: a new file is tested once it exists."""

from __future__ import annotations

import copy
import inspect
from pathlib import Path
from typing import Any

import pytest
import torch

from holdfast import Learner, load_learner
from holdfast.core.classes import SETTINGS, Setting
from holdfast.experiments.experiment import Experiment
from holdfast.experiments.results import ResultStore
from holdfast.experiments.run import run
from holdfast.methods._base import ReplayMethod
from holdfast.parts import find, names
from holdfast.settings import LearnerSettings, Part, options_of
from tests.support.same import assert_same
from tests.support.toy import N_FEATURES, Toy, toy_batches

REPLAY_METHODS = [name for name in names("methods") if issubclass(find("methods", name), ReplayMethod)]
PAIRS = [  # a method without a memory has no selection to vary
    (method, selection)
    for method in names("methods")
    for selection in (names("selections") if method in REPLAY_METHODS else ["reservoir"])
]

# They predict by what is stored and do not learn the head, by whose gradients this selection chooses. And a reservoir
# of 30 has lost all samples of one class here, so that its neighbours cannot name it.
UNFIT = {("scr", "gradient_diversity"), ("knn", "gradient_diversity"), ("knn", "reservoir")}
UNFIT |= {("hedge", "gradient_diversity")}

# They add up features, or store them, and train no backbone: here an input is its own features.
UNTRAINED = {"ncm", "slda", "analytic", "randumb", "knn", "hedge"}
REPLAYS_NOTHING = {"knn"}

each_pair = pytest.mark.parametrize(("method", "selection"), PAIRS)
each_setting = pytest.mark.parametrize("setting", SETTINGS)


def settings_of(method: str, selection: str, setting: Setting) -> dict[str, Any]:
    few = {"replay_size": 2} if method == "mer" else {}  # which takes a step for each of them
    return {
        "method": {"name": method, **few},
        "selection": selection,
        "retrieval": "old_tasks",
        "setting": setting,
        "backbone": "identity" if method in UNTRAINED else {"name": "mlp", "hidden": [16]},
        "memory": 30,
        "lr": 0.1 if method == "er_ace" else 0.05,  # which learns new classes more slowly
    }


def learner_of(method: str, selection: str, setting: Setting) -> Learner:
    return Learner(**settings_of(method, selection, setting))


@pytest.mark.parametrize("method", names("methods"))
def test_no_option_is_called_like_an_argument_of_a_learner(method: str) -> None:
    taken = {*inspect.signature(Learner.__init__).parameters, *LearnerSettings.model_fields}
    assert not taken & set(options_of("methods", method))


@each_setting
@each_pair
def test_it_learns_a_toy_stream_and_when_saved_goes_on_to_the_same_bits(
    method: str, selection: str, setting: Setting, tmp_path: Path
) -> None:
    never_saved = learner_of(method, selection, setting)
    learner = learner_of(method, selection, setting)
    for i, (x, y, task) in enumerate(toy_batches(setting)):
        never_saved.observe(x, y, task)
        learner.observe(x, y, task)
        if i in (0, 7, 11, 12, 20):  # the first batch, inside tasks, on both sides of a change of task
            learner.save(tmp_path / "learner")
            learner = load_learner(tmp_path / "learner")
    assert_same(learner.state_dict(), never_saved.state_dict())

    if (method, selection) in UNFIT:
        return
    last = Toy(shared=setting == "domain")[-1]
    test = last.test[:]
    predicted = learner.predict(test.x, last.id if setting == "task" else None)
    assert (predicted == test.y).double().mean() > 0.9


@pytest.mark.parametrize("method", [*names("methods"), {"name": "drr", "classifier": "memory"}], ids=str)
def test_a_method_in_use_that_goes_back_to_an_earlier_state_scores_as_it_did_then(method: str | dict[str, Any]) -> None:
    learner = Learner(method, setting="class", memory=30, lr=0.05, backbone={"name": "mlp", "hidden": [16]})
    batches = toy_batches("class")
    for x, y, task in batches[:20]:
        learner.observe(x, y, task)
    earlier, scores = copy.deepcopy(learner.method.state_dict()), learner.scores(batches[0][0])
    learner.observe(*batches[20])
    assert not torch.equal(learner.scores(batches[0][0]), scores)
    learner.method.load_state_dict(earlier)
    assert torch.equal(learner.scores(batches[0][0]), scores)


@each_setting
@each_pair
def test_it_survives_batches_of_one(method: str, selection: str, setting: Setting) -> None:
    learner = learner_of(method, selection, setting)
    for x, y, task in toy_batches(setting)[::6]:
        assert learner.observe(x[:1], y[:1], task) >= 0
    assert learner.predict(torch.zeros(1, N_FEATURES), 0 if setting == "task" else None).shape == (1,)


@each_setting
@pytest.mark.parametrize("method", names("methods"))
def test_a_run_never_shows_it_the_future(method: str, setting: Setting, tmp_path: Path) -> None:
    accuracies = []
    for future in (0, 1):
        options = {"shared": setting == "domain", "future": future, "n_train": 40}
        stream = Part(name=f"{Toy.__module__}:Toy", options=options)
        experiment = Experiment(stream=stream, **settings_of(method, "reservoir", setting))
        accuracies.append(run(experiment, ResultStore(tmp_path / str(future))).accuracies)
    assert accuracies[0][:-1] == accuracies[1][:-1]


@each_pair
def test_in_a_free_stream_all_that_is_stored_is_old(method: str, selection: str) -> None:
    learner = learner_of(method, selection, "free")
    for x, y, _ in toy_batches("free")[:4]:
        learner.observe(x, y)
    if isinstance(learner.method, ReplayMethod) and method not in REPLAYS_NOTHING:
        learner.method.replay_size = 1000
        x, y, _ = toy_batches("free")[4]
        seen = []
        recall = learner.method.recall
        learner.method.__dict__["recall"] = lambda batch: seen.append(recall(batch)) or seen[-1]
        n_stored = len(learner.memory or ())
        learner.observe(x, y)
        assert n_stored > 0
        assert len(seen[0]) == n_stored
