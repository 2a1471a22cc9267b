from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

import pytest
import torch
from pydantic import ValidationError
from torch import nn

import holdfast
from holdfast.build import build_method, build_model, build_stream
from holdfast.core.batch import Batch
from holdfast.core.optimizers import SGD
from holdfast.memory.selection._base import Selection
from holdfast.methods._base import Method, ReplayMethod
from holdfast.methods.er import ER
from holdfast.methods.finetune import Finetune
from holdfast.parts import FOLDERS, Kind, Unknown, find, names
from holdfast.settings import LearnerSettings, Part, options_of
from holdfast.streams.joint import Joint
from tests.support.same import assert_same

SMALL = Part(name="mlp", options={"hidden": [5]})


@dataclass(kw_only=True, eq=False)
class Lazy(Method):
    """A method of another package."""

    effort: float = 0.1
    moods: list[str] = field(default_factory=list, init=False)

    def observe(self, batch: Batch) -> float:
        return self.effort


LAZY = f"{__name__}:Lazy"


# Names.


@pytest.mark.parametrize("kind", get_args(Kind))
def test_the_names_are_those_of_the_files(kind: Kind):
    folder = Path(holdfast.__file__).parent.joinpath(*FOLDERS[kind].split(".")[1:])
    files = sorted(path.stem for path in folder.glob("[!_]*.py"))
    assert names(kind) == files != []


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind in get_args(Kind) for name in names(kind)])
def test_every_file_holds_one_class_that_is_found_by_its_name(kind: Kind, name: str):
    found = find(kind, name)
    assert found.__module__ == f"{FOLDERS[kind]}.{name}"
    assert found.__name__.lower() == name.replace("_", "")


@pytest.mark.parametrize(
    ("kind", "name", "message"),
    [
        ("methods", "fintune", "no 'fintune' in methods: did you mean 'finetune'?"),
        ("backbones", "resnet_18", "no 'resnet_18' in backbones: did you mean 'resnet18'?"),
        ("selections", "reservoire", "no 'reservoire' in selections: did you mean 'reservoir'?"),
        ("streams", "permuted_digit", "no 'permuted_digit' in streams: did you mean 'permuted_digits'?"),
        ("retrievals", "xyzzy", "no 'xyzzy' in retrievals: there are old_tasks, shapley, uniform"),
        ("methods", "_base", "no '_base' in methods: "),
        ("methods", "", "no '' in methods: there are "),
    ],
)
def test_an_unknown_name_is_refused_with_the_nearest_that_exists(kind: Kind, name: str, message: str):
    with pytest.raises(Unknown) as caught:
        find(kind, name)
    assert str(caught.value).startswith(message)


def test_a_class_of_another_package_is_found_by_its_module():
    assert find("methods", LAZY) is Lazy


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("no_such_package:Thing", "no 'no_such_package:Thing' to import: No module named"),
        (f"{__name__}:Nothing", "no 'tests.test_build:Nothing' to import: .*has no attribute"),
        (f"{__name__}:LAZY", "is not a class: name one as package.module:Class"),
        (":Lazy", "no ':Lazy' to import"),
    ],
)
def test_a_class_of_another_package_that_is_not_there_is_refused(name: str, message: str):
    with pytest.raises(Unknown, match=message):
        find("methods", name)


@pytest.mark.parametrize("kind", get_args(Kind))
def test_a_class_of_another_kind_is_refused(kind: Kind):
    with pytest.raises(Unknown, match="pathlib:PurePath"):
        find(kind, "pathlib:PurePath")


# Settings that a caller leaves open.


@pytest.mark.parametrize(
    ("given", "passes"),
    [
        ({}, 1),
        ({"backbone": "identity"}, 1),
        ({"method": "drr"}, 1),
        ({"method": {"name": "er", "passes": 2}}, 2),
        ({"passes": 2}, 2),
        ({"backbone": "reduced_resnet18"}, 2),
        ({"backbone": {"name": "reduced_resnet18", "frozen": True}}, 1),
        ({"backbone": nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.Dropout())}, 1),
        ({"backbone": nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))}, 2),
        ({"backbone": nn.BatchNorm1d(3, track_running_stats=False)}, 2),
        ({"backbone": nn.InstanceNorm1d(3, track_running_stats=True)}, 2),
    ],
)
def test_a_learner_takes_one_pass_where_samples_of_a_pass_do_not_touch_each_other(given: dict[str, Any], passes: int):
    assert holdfast.Learner(**{"method": "er"} | given).settings.method.options["passes"] == passes


def test_an_experiment_takes_the_passes_that_its_settings_state():
    settings = LearnerSettings(method=Part(name="er"))
    assert holdfast.Learner.from_settings(settings).settings.method.options["passes"] == 2


def test_a_method_with_one_kind_of_pass_is_given_no_option():
    assert "passes" not in holdfast.Learner("er_ace").settings.method.options


# Options.


@pytest.mark.parametrize(
    ("kind", "name", "options"),
    [
        ("methods", "finetune", {"steps_per_batch": 1, "average": None, "against": "task"}),
        (
            "methods",
            "er",
            {"steps_per_batch": 1, "average": None, "replay_size": 10, "weighting": "equal", "passes": 2},
        ),
        ("methods", LAZY, {"steps_per_batch": 1, "average": None, "effort": 0.1}),
        ("backbones", "mlp", {"hidden": (256, 256), "initialisation": "torch", "frozen": False}),
        (
            *("backbones", "resnet18"),
            {"layout": "standard", "initialisation": "torch", "precision": "float32", "frozen": False},
        ),
        ("retrievals", "uniform", {}),
        ("selections", "reservoir", {}),
        ("selections", "ring", {"per_class": None}),
    ],
)
def test_options_are_what_one_may_choose_with_what_one_gets_otherwise(kind: Kind, name: str, options: dict[str, Any]):
    assert options_of(kind, name) == options


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind in get_args(Kind) for name in names(kind)])
def test_every_option_has_a_value_that_one_could_write_down(kind: Kind, name: str):
    plain = (type(None), bool, int, float, str, tuple)
    odd = {option: value for option, value in options_of(kind, name).items() if not isinstance(value, plain)}
    assert odd == {}


def test_the_options_of_streams_are_not_where_data_are_and_which_seed():
    assert not {"data", "seed", "of"} & set(options_of("streams", "permuted_digits"))


def settings_of(**given: Any) -> LearnerSettings:
    return LearnerSettings.model_validate({"backbone": SMALL, "n_classes": 3} | given)


def method_of(**given: Any) -> Method:
    settings = settings_of(**given)
    return build_method(settings, build_model(settings, (4,)))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"method": {"name": "er", "replay_sise": 5}},
            "no 'replay_sise' in the options of 'er': did you mean 'replay_size'?",
        ),
        ({"method": {"name": "er", "model": None}}, "no 'model' in the options of 'er': "),
        (
            {"selection": {"name": "ring", "per_clas": 5}},
            "no 'per_clas' in the options of 'ring': did you mean 'per_class'?",
        ),
        (
            {"backbone": {"name": "mlp", "input_shape": [9]}},
            "no 'input_shape' in the options of 'mlp': there are frozen, hidden",
        ),
        ({"method": "eer"}, "no 'eer' in methods: did you mean 'er'?"),
    ],
)
def test_an_unknown_option_is_refused_with_the_nearest_that_exists(given: dict[str, Any], message: str):
    with pytest.raises(Unknown) as caught:
        method_of(**given)
    assert str(caught.value).startswith(message)


def test_a_part_may_be_a_name_or_a_table():
    for given in ("er", {"name": "er"}, Part(name="er")):
        assert Part.model_validate(given) == Part(name="er")
    part = Part.model_validate({"name": "er", "replay_size": 64})
    assert part == Part(name="er", options={"replay_size": 64})
    assert part.model_dump() == {"name": "er", "replay_size": 64}
    assert Part.model_validate(part.model_dump()) == part


@pytest.mark.parametrize(
    ("given", "place"),
    [
        ({"lr": 0}, "lr"),
        ({"lr": "fast"}, "lr"),
        ({"lr": float("nan")}, "lr"),
        ({"momentum": 1.0}, "momentum"),
        ({"n_classes": 0}, "n_classes"),
        ({"setting": "hard"}, "setting"),
        ({"optimizer": "sdg"}, "optimizer"),
        ({"head": "round"}, "head"),
        ({"seed": -1}, "seed"),
        ({"memory": 0}, "a memory of 0 samples holds nothing"),
        ({"memory": "5 apples"}, "'5 apples' is no size"),
        ({"surprise": 1}, "surprise"),
        ({"method": 5}, "method"),
    ],
)
def test_settings_that_make_no_sense_are_refused(given: dict[str, Any], place: str):
    with pytest.raises(ValidationError, match=place):
        settings_of(**given)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"lr": -1}, "lr: .*greater than 0, not -1"),
        ({"momentun": 0.9}, "no 'momentun' in the settings of a learner: did you mean 'momentum'?"),
        ({"replay_sise": 5}, "no 'replay_sise' in the settings of a learner: did you mean 'replay_size'?"),
        ({"memory": "5 apples"}, "'5 apples' is no size"),
    ],
)
def test_a_learner_says_which_of_its_settings_is_wrong(given: dict[str, Any], message: str):
    with pytest.raises(Unknown, match=message):
        holdfast.Learner("er", **given)


# The objects that are built.


def test_a_method_without_a_memory_gets_none():
    method = method_of(method="finetune")
    assert isinstance(method, Finetune)
    assert not isinstance(method, ReplayMethod)


def test_a_method_with_a_memory_gets_the_parts_that_are_named():
    method = method_of(
        method={"name": "er", "replay_size": 7},
        selection={"name": "ring", "per_class": 2},
        retrieval="old_tasks",
        memory="1 KB",
        optimizer="sgd",
        lr=0.3,
        momentum=0.5,
    )
    assert isinstance(method, ER)
    assert method.replay_size == 7
    assert method.selection.per_class == 2
    assert isinstance(method.selection, Selection)
    assert isinstance(method.retrieval, find("retrievals", "old_tasks"))
    assert method.memory.max_bytes == 1000
    group = method.optimizer.param_groups[0]
    assert (type(method.optimizer), group["lr"], group["momentum"]) == (SGD, 0.3, 0.5)


def test_a_method_of_another_package_is_built_with_its_options():
    method = method_of(method={"name": LAZY, "effort": 0.5, "steps_per_batch": 2})
    assert (type(method), method.effort, method.steps_per_batch) == (Lazy, 0.5, 2)


def test_weights_depend_on_the_seed_and_the_global_generator_is_left_alone():
    before = torch.get_rng_state()
    model, same, other = (build_model(settings_of(seed=seed), (4,)) for seed in (1, 1, 2))
    assert torch.equal(torch.get_rng_state(), before)
    assert_same(dict(model.state_dict()), dict(same.state_dict()))
    assert not torch.equal(model.backbone.layers[0].weight, other.backbone.layers[0].weight)
    assert not torch.equal(model.head.weight, other.head.weight)


def test_a_head_without_a_number_of_classes_begins_with_one():
    assert build_model(settings_of(n_classes=None), (4,)).head.n_classes == 1


def test_a_backbone_of_ones_own_stands_in_and_is_asked_for_its_features():
    backbone = nn.Sequential(nn.Flatten(), nn.Linear(12, 9), nn.BatchNorm1d(9))
    model = build_model(settings_of(), (3, 2, 2), backbone=backbone)
    assert model.backbone is backbone
    assert model.head.weight.shape == (3, 9)
    assert backbone[2].num_batches_tracked == 0
    assert backbone.training


def test_a_backbone_that_makes_no_rows_of_features_is_refused():
    with pytest.raises(ValueError, match=r"makes features of shape \(2, 6, 6\): make it \(n, n_features\)"):
        build_model(settings_of(), (3, 8, 8), backbone=nn.Conv2d(3, 2, 3))


# Streams.


def test_joint_needs_to_know_what_it_joins():
    with pytest.raises(Unknown, match=r"'joint' is made of another stream: say which, as in of='permuted_digits'"):
        build_stream(Part(name="joint"), None, 0)


def test_joint_gives_its_options_to_the_stream_that_it_joins():
    stream = build_stream(Part(name="joint", options={"of": "permuted_digits", "n_tasks": 2}), None, 0)
    assert isinstance(stream, Joint)
    assert len(stream) == 1
    assert len(stream.of) == 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"of": "permuted_digit"}, "no 'permuted_digit' in streams: did you mean 'permuted_digits'?"),
        (
            {"of": "permuted_digits", "n_task": 2},
            "no 'n_task' in the options of 'permuted_digits': did you mean 'n_tasks'?",
        ),
    ],
)
def test_joint_of_what_does_not_exist_is_refused(options: dict[str, Any], message: str):
    with pytest.raises(Unknown) as caught:
        build_stream(Part(name="joint", options=options), None, 0)
    assert str(caught.value) == message


def test_colour_pictures_get_a_smaller_rate_only_where_none_is_asked_for() -> None:
    x, y = torch.zeros(2, 3, 8, 8, dtype=torch.uint8), [0, 1]
    rates = []
    for learner in (holdfast.Learner(), holdfast.Learner("er"), holdfast.Learner(lr=0.2)):
        learner.observe(x, y)
        rates.append(learner.settings.lr)
    assert rates == [0.03, 0.1, 0.2]
