"""An experiment is whole, and what it is does not change with the defaults or the options of tomorrow."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Any

import pytest

from holdfast import settings as module
from holdfast.core.options import Before, Option
from holdfast.experiments.experiment import Experiment, parting, short_hash
from holdfast.methods.er import ER
from holdfast.settings import LearnerSettings, Part, declared_options, options_of

# A field that is added later has to name its neutral value, or no stored result is found again.
FIELDS = {
    "method", "setting", "backbone", "head", "cosine_scale", "n_classes", "memory", "selection", "retrieval",
    "optimizer", "lr", "momentum", "seed", "stream", "batch_size", "benchmark", "row",
}  # fmt: skip


def digits(**changes: Any) -> Experiment:
    return Experiment.model_validate({"stream": "split_digits"} | changes)


def test_every_option_of_every_part_is_stated():
    experiment = digits(method="drr")
    assert experiment.method.options.keys() == options_of("methods", "drr").keys()
    assert experiment.stream.options.keys() == options_of("streams", "split_digits").keys()
    assert (experiment.head, experiment.selection.name) == ("cosine", "centroid")
    assert Experiment.model_validate(experiment.model_dump(mode="json")) == experiment
    assert Experiment.stored(experiment.model_dump(mode="json")) == experiment


def test_what_is_stated_and_what_is_left_to_the_default_are_the_same():
    default = options_of("methods", "er")["replay_size"]
    assert digits().digest == digits(method={"name": "er", "replay_size": default}).digest
    assert digits().digest != digits(method={"name": "er", "replay_size": default + 1}).digest
    assert (
        digits(method={"name": "drr", "logit_scale": 8}).digest
        == digits(method={"name": "drr", "logit_scale": 8.0}).digest
    )


def test_a_changed_default_makes_another_experiment(monkeypatch: pytest.MonkeyPatch):
    before = digits()
    as_stored = before.model_dump(mode="json")
    real = declared_options("methods", "er")
    changed = {**real, "replay_size": replace(real["replay_size"], default=77)}
    monkeypatch.setattr(
        module, "declared_options", lambda kind, name: changed if name == "er" else declared_options(kind, name)
    )
    assert digits().method.options["replay_size"] == 77
    assert digits().digest != before.digest
    assert Experiment.stored(as_stored).digest == before.digest


@pytest.fixture
def added(monkeypatch: pytest.MonkeyPatch) -> None:
    """An option of `er` that is added later, whose default is not what older runs did."""
    real = declared_options
    new = Option("decay", float, default=0.9, before=1.0)
    monkeypatch.setattr(
        module, "declared_options", lambda kind, name: {**real(kind, name), **({"decay": new} if name == "er" else {})}
    )
    module._neutral_of.cache_clear()
    yield
    module._neutral_of.cache_clear()


def test_an_option_added_with_its_neutral_value_changes_no_digest_of_a_stored_run(request: pytest.FixtureRequest):
    old = digits()
    as_stored, digest, kind = old.model_dump(mode="json"), old.digest, old.kind
    request.getfixturevalue("added")
    found = Experiment.stored(as_stored)
    assert found.method.options["decay"] == 1.0
    assert (found.digest, found.kind) == (digest, kind)
    assert digits(method={"name": "er", "decay": 1.0}).digest == digest
    assert digits().method.options["decay"] == 0.9
    assert digits().digest != digest
    assert parting(digits(), found) == "method.decay=0.9, not None"


def test_an_option_that_a_stored_run_did_not_know_and_that_names_no_neutral_value_stays_unknown():
    as_stored = digits().model_dump(mode="json")
    del as_stored["method"]["weighting"]
    found = Experiment.stored(as_stored)
    assert "weighting" not in found.method.options
    assert found.digest == short_hash(found.identity) != digits().digest


def test_a_field_added_with_its_neutral_value_changes_no_digest():
    class Later(Experiment):
        warm_up: Annotated[int, Before(0)] = 5

    assert Later.stored is not None
    old = digits()
    content = old.model_dump(mode="json")
    assert Later.model_validate(content | {"warm_up": 0}).digest == old.digest
    assert Later.model_validate(content).digest != old.digest


def test_a_field_that_was_added_names_its_neutral_value():
    added = Experiment.model_fields.keys() - FIELDS
    assert added == module.neutral_fields(Experiment.model_fields).keys()
    assert LearnerSettings.model_fields.keys() <= FIELDS


def test_the_neutral_values_of_a_stream_that_another_is_made_of_count_too():
    said = {"name": "joint", "of": "split_cifar100", "tasks": "report"}
    old = Experiment.stored({"stream": said})
    assert old.stream.options["held_out"] == 15
    assert "held_out" not in old.identity["stream"]
    nested = Experiment.stored({"stream": {"name": "gaussian", "of": {"name": "split_cifar100", "tasks": "report"}}})
    assert nested.stream.options["of"]["classes_per_task"] == 5
    assert nested.identity["stream"]["of"] == {"name": "split_cifar100", "tasks": "report"}


def test_a_stored_experiment_may_hold_what_is_not_there_any_more():
    odd = {"method": {"name": "gone", "x": 1}, "stream": {"name": "split_digits", "gone": 2}, "selection": "ring"}
    found = Experiment.stored(odd)
    assert (found.method, found.stream.options["gone"]) == (Part(name="gone", options={"x": 1}), 2)
    with pytest.raises(ValueError, match="gone"):
        Experiment.model_validate(odd)


@dataclass(kw_only=True, eq=False)
class Mine(ER):
    """A method of another package."""


def test_code_of_another_package_is_a_part_of_the_experiment():
    experiment = digits(method=f"{__name__}:Mine")
    assert f"{__name__.replace('.', '/')}.py" in experiment.foreign_code
    assert experiment.identity["foreign_code"] == experiment.foreign_code
    assert "foreign_code" not in digits().identity
    content = experiment.model_dump(mode="json")
    content["foreign_code"] = dict.fromkeys(content["foreign_code"], "0" * 8)
    with pytest.raises(ValueError, match="has changed since it was asked for"):
        Experiment.model_validate(content)
    assert Experiment.stored(content).foreign_code == content["foreign_code"]
