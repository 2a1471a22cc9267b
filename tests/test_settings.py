"""Every option is stated and checked in one place: existence, type and range."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, get_args

import pytest
import torch
from pydantic import Field

from holdfast import Learner, load_learner
from holdfast.core.checkpoint import CorruptCheckpoint, read_checkpoint, write_checkpoint
from holdfast.core.options import MISSING, Before, declared, option
from holdfast.core.state import State
from holdfast.experiments.experiment import Experiment
from holdfast.experiments.recipes import Recipe
from holdfast.methods._base import Method
from holdfast.methods.finetune import Finetune
from holdfast.parts import Kind, Unknown, names
from holdfast.settings import (
    PARTS,
    LearnerSettings,
    Part,
    declared_options,
    is_wrapped,
    options_of,
    resolved,
    resolved_settings,
)

# Streams made of another one, which has to be named.
WRAPPED = [name for name in names("streams") if is_wrapped(Part(name=name))]
ALL = [(kind, name) for kind in get_args(Kind) for name in names(kind) if name not in WRAPPED]
NUMBERED = [
    (kind, name, each.name)
    for kind, name in ALL
    for each in declared_options(kind, name).values()
    if {int, float} & {type(each.default)} or "int" in str(each.type) or "float" in str(each.type)
]


class Colour(Enum):
    RED = "red"


@dataclass(kw_only=True, eq=False)
class Decayed(Finetune):
    """A method of another package whose options have what a file cannot hold as it is."""

    decay: Annotated[float, Field(gt=0, le=1)] = option(0.9, before=1.0)
    steps: tuple[int, ...] = (1, 2)
    place: Path = Path("here")
    colour: Colour = Colour.RED


DECAYED = f"{__name__}:Decayed"


# Stated


@pytest.mark.parametrize(("kind", "name"), ALL)
def test_a_resolved_part_states_every_option_and_stays_as_it_is_when_resolved_again(kind: Kind, name: str):
    needed = {each.name: "given" for each in declared_options(kind, name).values() if each.default is MISSING}
    part = resolved(kind, Part(name=name, options=needed))
    assert part.options.keys() == options_of(kind, name).keys()
    assert resolved(kind, part) == resolved(kind, part, stored=True) == part
    assert Part.model_validate_json(part.model_dump_json()) == part


def test_values_are_written_down_in_one_form():
    part = resolved("selections", Part(name="centroid", options={"epsilon": 4}))
    assert repr(part.options["epsilon"]) == "4.0"
    assert resolved("backbones", Part(name="mlp")).options["hidden"] == [256, 256]
    assert resolved("methods", Part(name=DECAYED)).options["steps"] == [1, 2]
    said = Part(name=DECAYED, options={"place": "there", "colour": "red", "steps": [3]})
    assert resolved("methods", said).options == options_of("methods", DECAYED) | {
        "place": "there",
        "colour": "red",
        "steps": [3],
    }


def test_a_class_gets_values_of_its_own_types():
    method = Learner({"name": DECAYED, "place": "there", "steps": [3]}, input_shape=[2]).method
    assert (method.place, method.colour, method.steps) == (Path("there"), Colour.RED, (3,))


def test_head_and_selection_are_what_the_method_wants_unless_said():
    settings = resolved_settings(LearnerSettings(method=Part(name="drr")))
    assert (settings.head, settings.selection.name) == ("cosine", "centroid")
    said = resolved_settings(LearnerSettings.model_validate({"method": "drr", "head": "linear", "selection": "ring"}))
    assert (said.head, said.selection.name) == ("linear", "ring")
    assert Learner("gem", input_shape=[2]).settings.selection == Part(name="ring", options={"per_class": None})


# Options that are added


def test_a_stored_part_counts_as_run_with_the_neutral_value_of_an_option_that_it_does_not_know():
    known = declared(Decayed)["decay"]
    assert (known.default, known.before) == (0.9, 1.0)
    frozen = declared_options("backbones", "mlp")["frozen"]
    assert frozen.before is False
    assert resolved("backbones", Part(name="mlp"), stored=True).options["frozen"] is False


def test_a_parameter_of_a_constructor_names_its_neutral_value_in_its_type():
    class Turned:
        def __init__(self, turns: Annotated[int, Field(ge=1), Before(1)] = 4, size: int = 3) -> None: ...

    options = declared(Turned)
    assert (options["turns"].default, options["turns"].before) == (4, 1)
    assert options["size"].before is MISSING
    with pytest.raises(ValueError, match="greater than or equal to 1"):
        options["turns"].plain(0)


def test_a_part_of_another_package_in_a_file_is_not_imported():
    part = Part(name="no_such_module:Mine", options={"strength": 1})
    assert resolved("methods", part, stored=True) == part
    with pytest.raises(Unknown, match="no_such_module"):
        resolved("methods", part)


# Ranges


@pytest.mark.parametrize(("kind", "name", "of"), NUMBERED)
def test_no_number_is_without_a_range(kind: Kind, name: str, of: str):
    for value in (math.nan, math.inf, -(10**400)):
        with pytest.raises(Unknown, match=rf"{name}\.{of}: "):
            resolved(kind, Part(name=name, options={of: value}))


@pytest.mark.parametrize(
    ("kind", "name", "options", "message"),
    [
        ("methods", "er", {"replay_size": -1}, "er.replay_size: Input should be greater than or equal to 0, not -1"),
        ("methods", "er", {"steps_per_batch": 10**12}, "less than or equal to 10000, not 1000000000000"),
        ("methods", "er", {"steps_per_batch": True}, "should be a valid integer, not True"),
        ("methods", "er", {"steps_per_batch": "2"}, "should be a valid integer, not '2'"),
        ("methods", "er", {"steps_per_batch": 1.5}, "should be a valid integer, not 1.5"),
        ("methods", "er", {"weighting": "fair"}, "should be 'equal' or 'pooled', not 'fair'"),
        ("methods", "er", {"average": 1.0}, "should be less than 1, not 1.0"),
        ("methods", "er", {"average": 0.0}, "greater than 0"),
        ("methods", "ewc", {"strength": -1.0}, "greater than or equal to 0"),
        ("methods", "ewc", {"consolidate_every": 0}, "greater than or equal to 1"),
        ("methods", "ewc", {"fisher_rate": 1.5}, "less than or equal to 1"),
        ("methods", "si", {"damping": 0}, "greater than 0, not 0"),
        ("methods", "der", {"label_weight": -1.0}, "greater than or equal to 0"),
        ("methods", "gem", {"memory_strength": -0.5}, "greater than or equal to 0"),
        ("methods", "mega1", {"smallest_loss": -1.0}, "greater than or equal to 0"),
        ("methods", "soft_gem", {"epsilon": 1.5}, "less than or equal to 1"),
        ("methods", "mer", {"within_batch_rate": 0.0}, "greater than 0"),
        ("methods", "mdmt_r", {"class_margin": 4.0}, "less than 3.14"),
        ("methods", "drr", {"task_margin": -0.1}, "greater than or equal to 0"),
        ("methods", "drr", {"new_against": "all"}, "'task', 'before' or 'seen' or Input should be 'batch', not 'all'"),
        ("methods", "scr", {"projection": 10**9}, "less than or equal to"),
        ("methods", "scr", {"temperature": 0.0}, "greater than 0"),
        ("methods", "knn", {"k": 0}, "greater than or equal to 1"),
        ("methods", "analytic", {"ridge": 0.0}, "greater than 0"),
        ("methods", "analytic", {"width": 65_537}, "less than or equal to 65536"),
        ("methods", "randumb", {"gamma": 0.0}, "greater than 0"),
        ("selections", "centroid", {"epsilon": 0}, "greater than 0"),
        ("selections", "centroid", {"max_centroids": 0}, "greater than or equal to 1"),
        ("selections", "ring", {"per_class": -1}, "greater than or equal to 1"),
        ("selections", "mean_of_features", {"per_class": 0}, "greater than or equal to 1"),
        ("selections", "gradient_diversity", {"n_references": 0}, "greater than or equal to 1"),
        ("selections", "shapley", {"k": 0}, "greater than or equal to 1"),
        ("retrievals", "shapley", {"n_candidates": 0}, "greater than or equal to 1"),
        ("backbones", "mlp", {"hidden": [1] * 257}, "at most 256 items"),
        ("backbones", "mlp", {"hidden": []}, "at least 1 item"),
        ("backbones", "mlp", {"hidden": [0]}, "greater than or equal to 1"),
        ("backbones", "mlp", {"initialisation": "kaiming"}, "should be 'torch' or 'agem', not 'kaiming'"),
        ("backbones", "mlp", {"frozen": 1}, "valid boolean"),
        ("backbones", "resnet18", {"layout": "tiny"}, "should be 'standard' or 'agem'"),
        ("backbones", "resnet18", {"precision": "float8"}, "should be 'float32' or 'bfloat16'"),
        ("backbones", "reduced_resnet18", {"width": 0}, "greater than or equal to 1"),
        ("streams", "split_cifar100", {"turns": 5}, "less than or equal to 4"),
        ("streams", "split_cub", {"size": 0}, "greater than or equal to 1"),
        ("streams", "permuted_mnist", {"n_tasks": 0}, "greater than or equal to 1"),
        ("streams", "permuted_mnist", {"tasks": "some"}, "should be 'tuning', 'report' or 'all', not 'some'"),
        ("streams", "joint", {"of": "permuted_mnist", "n_tasks": 0}, "permuted_mnist.n_tasks: "),
    ],
)
def test_a_value_out_of_range_or_of_another_type_is_refused(
    kind: Kind, name: str, options: dict[str, Any], message: str
):
    with pytest.raises(Unknown) as caught:
        resolved(kind, Part(name=name, options=options))
    assert message in str(caught.value)


def test_ranges_are_checked_before_any_data_are_read():
    recipe = Recipe("mine", {"stream": "permuted_mnist"}, {}, ())
    for name, value in (("method.replay_size", -1), ("stream.n_tasks", 0), ("selection.per_class", 5)):
        with pytest.raises(Unknown):
            recipe.experiment("er", changes={name: value})


@pytest.mark.parametrize(("kind", "name", "of"), [each for each in NUMBERED if each[0] in ("methods", "selections")])
def test_a_saved_learner_is_held_to_the_same_ranges(tmp_path: Path, kind: Kind, name: str, of: str):
    parts: dict[str, Any] = {"method": name} if kind == "methods" else {"method": "er", "selection": name}
    if name == "analytic":
        parts["ridge"] = 1.0
    learner = Learner(**parts, backbone="identity", input_shape=[2, 8, 8], setting="task", memory=3)
    learner.save(tmp_path / "learner")
    state = read_checkpoint(tmp_path / "learner")
    _put(state["method"] if kind == "methods" else state["method"]["selection"], of)
    write_checkpoint(tmp_path / "learner", state)
    with pytest.raises(CorruptCheckpoint, match=of):
        load_learner(tmp_path / "learner")


def _put(state: State, of: str) -> None:
    assert of in state
    state[of] = -(10**30) if not isinstance(state[of], float) else -1e30


# The part that has the option


@pytest.mark.parametrize(
    ("name", "whose"),
    [
        ("method.epsilon", "of the selection 'centroid' (selection.epsilon)"),
        ("method.lr", "it is a setting of its own: 'lr'"),
        ("method.batch_size", "it is a setting of its own: 'batch_size'"),
        ("method.n_tasks", "(stream.n_tasks)"),
        ("stream.replay_size", "(method.replay_size)"),
        ("stream.hidden", "of the backbone 'mlp' (backbone.hidden)"),
        ("backbone.old_tasks_only", "of the retrieval 'shapley' (retrieval.old_tasks_only)"),
        ("method.strength", "of the methods 'ewc', 'mas', 'rwalk', 'si' (method.strength)"),
        ("epsilon", "(selection.epsilon)"),
        ("turns", "(stream.turns)"),
    ],
)
def test_an_option_of_another_part_is_answered_with_its_owner(name: str, whose: str):
    recipe = Recipe("mine", {"stream": "permuted_digits"}, {}, ())
    with pytest.raises(Unknown) as caught:
        recipe.experiment("er", changes={name: 4})
    assert whose in str(caught.value)
    assert f"no '{name.rpartition('.')[2]}' in " in str(caught.value)


@pytest.mark.parametrize(("kind", "name"), ALL)
def test_every_option_of_every_part_is_told_from_any_other_part(kind: Kind, name: str):
    (field,) = (field for field, each in PARTS.items() if each == {"wrappers": "methods"}.get(kind, kind))
    other: Kind = "retrievals" if kind != "retrievals" else "selections"
    for of in options_of(kind, name):
        with pytest.raises(Unknown, match=rf"[ (]{field}\.{of}\)"):
            resolved(other, Part(name="uniform" if other == "retrievals" else "reservoir", options={of: 1}))


def test_a_learner_answers_with_the_owner_too():
    with pytest.raises(Unknown, match=r"no 'epsilon' in the settings of a learner: .*\(selection\.epsilon\)"):
        Learner("er", epsilon=4)


def test_an_experiment_of_another_seed_or_batch_has_bounds():
    for field, value in (("seed", 2**63), ("seed", -1), ("batch_size", 0), ("lr", math.inf), ("memory", 10**30)):
        with pytest.raises(ValueError, match=field):
            Experiment.model_validate({"stream": "permuted_digits", field: value})


def test_a_method_with_options_of_any_type_is_still_built():
    @dataclass(kw_only=True, eq=False)
    class Odd(Method):
        kernel: torch.dtype = torch.float32

    assert declared(Odd)["kernel"].default is torch.float32


def test_a_wrapped_stream_states_its_own_options_and_those_of_the_inner_one():
    said = Part(name="i_blurry", options={"of": "split_cifar100", "held_out": 0, "n_slices": 3})
    found = resolved("streams", said)
    assert found.options["of"] == "split_cifar100"
    assert (found.options["held_out"], found.options["n_slices"], found.options["disjoint_classes"]) == (0, 3, 50.0)
    assert resolved("streams", found) == found
    with pytest.raises(Unknown, match="no 'slices' in the options of 'split_cifar100'"):
        resolved("streams", said.with_options(slices=3))


def test_wrapped_streams_are_nested_by_an_inner_one_in_full():
    said = Part(name="gaussian", options={"of": {"name": "long_tail", "of": "split_cifar100", "imbalance": 10}})
    found = resolved("streams", said)
    assert found.options["of"]["imbalance"] == 10.0
    assert found.options["of"]["held_out"] == 15
    assert resolved("streams", found) == found


def test_a_stored_inner_stream_of_another_package_is_not_imported():
    said = Part(name="i_blurry", options={"of": "no_such_module_at_all:Evil"})
    assert resolved("streams", said, stored=True).options["of"] == "no_such_module_at_all:Evil"
