"""What holds for every method, with every selection, in every setting: a new file is tested once it exists."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from holdfast.checks.methods import (
    check_all_is_old,
    check_batches_of_one,
    check_future,
    check_going_back,
    check_learned,
    check_option_names,
    check_saving,
)
from holdfast.core.classes import SETTINGS, Setting
from holdfast.methods._base import ReplayMethod
from holdfast.parts import find, names
from tests.support.toy import settings_of

WRAPPED = [f"er+{name}" for name in names("wrappers")]
METHODS = [*names("methods"), *WRAPPED]
REPLAY_METHODS = [name for name in METHODS if issubclass(find("methods", name), ReplayMethod)]
PAIRS = [  # a method without a memory has no selection to vary
    (method, selection)
    for method in names("methods")
    for selection in (names("selections") if method in REPLAY_METHODS else ["reservoir"])
] + [*((method, "reservoir") for method in WRAPPED), ("er+mkd", "centroid")]

# They predict by what is stored and do not learn the head, by whose gradients this selection chooses. And a reservoir
# of 30 has lost all samples of one class here, so that its neighbours cannot name it.
UNFIT = {("scr", "gradient_diversity"), ("knn", "gradient_diversity"), ("knn", "reservoir")}
UNFIT |= {("hedge", "gradient_diversity"), ("er+ncm", "reservoir")}

REPLAYS_NOTHING = {"knn"}

each_pair = pytest.mark.parametrize(("method", "selection"), PAIRS)
each_setting = pytest.mark.parametrize("setting", SETTINGS)


@pytest.mark.parametrize("method", METHODS)
def test_no_option_is_called_like_an_argument_of_a_learner(method: str) -> None:
    check_option_names(method)


@each_setting
@each_pair
def test_it_learns_a_toy_stream_and_when_saved_goes_on_to_the_same_bits(
    method: str, selection: str, setting: Setting, tmp_path: Path
) -> None:
    settings = settings_of(method, selection, setting)
    learner = check_saving(settings, tmp_path)
    if (method, selection) not in UNFIT:
        check_learned(learner, settings, at_least=0.9)


@pytest.mark.parametrize("method", [*METHODS, {"name": "drr", "classifier": "memory"}], ids=str)
def test_a_method_in_use_that_goes_back_to_an_earlier_state_scores_as_it_did_then(method: str | dict[str, Any]) -> None:
    check_going_back(
        {
            "method": method,
            "setting": "class",
            "memory": 30,
            "lr": 0.05,
            "backbone": {"name": "mlp", "hidden": [16]},
            "n_classes": None,
        }
    )


@each_setting
@each_pair
def test_it_survives_batches_of_one(method: str, selection: str, setting: Setting) -> None:
    check_batches_of_one(settings_of(method, selection, setting))


@each_setting
@pytest.mark.parametrize("method", METHODS)
def test_a_run_never_shows_it_the_future(method: str, setting: Setting, tmp_path: Path) -> None:
    check_future(settings_of(method, "reservoir", setting), tmp_path)


@each_pair
def test_in_a_free_stream_all_that_is_stored_is_old(method: str, selection: str) -> None:
    replayed = check_all_is_old(settings_of(method, selection, "free"))
    assert replayed == (method in REPLAY_METHODS and method not in REPLAYS_NOTHING)
