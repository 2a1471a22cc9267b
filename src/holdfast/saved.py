"""Check the state of a learner that was read from a file, before anything of a size that it states is allocated.

The file may be made to do harm. What each part of a learner can rely on, its own `load_state_dict` checks; here is what
concerns several parts, and everything that decides how much the parts allocate when they are made.
"""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal

import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor, nn

from holdfast.build import build_method, build_model, make
from holdfast.core.batch import WEIGHT, TaskNumber
from holdfast.core.classes import learns_by_task
from holdfast.core.state import Count, State, is_finite
from holdfast.memory.storage import Memory
from holdfast.methods._base import Method, ReplayMethod
from holdfast.parts import Kind, find
from holdfast.settings import LearnerSettings, Part, options_of, resolved_settings

MAX_DIMENSIONS = 32  # of one sample
SMALL = 10_000  # numbers
Shape = Annotated[tuple[Annotated[int, Field(ge=1)], ...], Field(min_length=1, max_length=MAX_DIMENSIONS)]
FiniteFloat = Annotated[float, Field(allow_inf_nan=False)]


class SavedLearner(BaseModel):
    """Facts that a file states about a learner besides its settings."""

    model_config = ConfigDict(strict=True, arbitrary_types_allowed=True)

    own_backbone: bool
    scale: FiniteFloat | None
    mean: Tensor | FiniteFloat
    input_shape: Shape | None
    input_dtype: Literal["uint8", "float16", "bfloat16", "float32"] | None
    n_observed: Count
    running_task: TaskNumber | None
    method: dict[str, Any] | None


def stored_settings(saved: Any) -> LearnerSettings:
    """Return the settings in a file, which may be from before some options existed."""
    return resolved_settings(LearnerSettings.model_validate(saved), stored=True)


def restored_method(
    settings: LearnerSettings, state: State, backbone: nn.Module | None, device: torch.device
) -> Method | None:
    """Return the method of a saved learner, None if it had none; an error if the state does not fit the settings.

    The method is built anew, since the head of one that is in use may have grown beyond the saved one.

    Args:
        backbone: stands in for the backbone that is named; its weights become those that were saved.
    """
    saved = state["method"]
    if saved is not None:
        settings = resolved_settings(as_saved(settings, saved))
    check_saved(settings, state, backbone)
    if saved is None:
        return None
    model = build_model(
        settings,
        state["input_shape"],
        scale=state["scale"],
        mean=state["mean"],
        backbone=backbone,
        n_features=n_features_of(state, backbone),
    )
    find("methods", settings.method.name).check_state(saved, model)
    method = build_method(settings, model.to(device))
    method.load_state_dict(saved)
    check_extras(method, settings)
    return method


def as_saved(settings: LearnerSettings, method: State) -> LearnerSettings:
    """Return `settings` with the options that the parts had when they were saved, which may have been changed."""
    changed = {"method": _as_saved("methods", settings.method, method)}
    if "selection" in method:
        changed["selection"] = _as_saved("selections", settings.selection, method["selection"])
        changed["retrieval"] = _as_saved("retrievals", settings.retrieval, method["retrieval"])
    return settings.model_copy(update=changed)


def check_saved(settings: LearnerSettings, state: State, own_backbone: nn.Module | None) -> None:
    """Raise an error, a ValueError where it is foreseen, unless a learner of `settings` may have this state.

    Args:
        settings: with the options that the state has, as `as_saved` gives them.
        own_backbone: stands in for the backbone that is named.
    """
    saved = SavedLearner.model_validate({name: state[name] for name in SavedLearner.model_fields})
    shape = saved.input_shape
    if saved.running_task is not None and not (saved.running_task >= 0 and learns_by_task(settings.setting)):
        raise ValueError(f"task {saved.running_task} cannot run in the setting '{settings.setting}'")
    if isinstance(saved.mean, Tensor):
        if shape is not None and not _broadcasts(saved.mean.shape, shape):
            raise ValueError(f"a mean of shape {tuple(saved.mean.shape)} is none of inputs of shape {shape}")
        if saved.mean.is_complex() or not is_finite(saved.mean):
            raise ValueError("the mean of inputs has numbers that are complex, NaN or infinite")
    if (shape is None) != (saved.method is None) or (saved.input_dtype and saved.method is None):
        raise ValueError(f"the saved state has input_shape={shape} and input_dtype={saved.input_dtype} for its method")
    if shape is None or saved.method is None:
        return
    if (memory := saved.method.get("memory")) is not None:
        _check_memory(settings, memory, shape, saved.input_dtype)
    scaling = saved.method["model"]["_extra_state"].get("scaling")
    if scaling is not None and tuple(scaling["mean"].shape) != shape:
        raise ValueError(
            f"a standardisation of {tuple(scaling['mean'].shape)} numbers is none of inputs of shape {shape}"
        )
    rows, n_features = saved.method["model"]["head.weight"].shape
    if rows < 1 or n_features < 1:
        raise ValueError(f"head.weight has shape {(rows, n_features)}: a row without features")
    if (settings.n_classes or 1) > rows:
        raise ValueError(f"the settings ask for {settings.n_classes} classes, but the file holds {rows}")
    if own_backbone is None:
        _check_backbone(settings.backbone, saved.method["model"], shape, n_features)


def n_features_of(state: State, own_backbone: nn.Module | None) -> int | None:
    """Return the number of features of the head; None if a backbone of one's own is to be tried on a sample.

    It is not tried on one of more numbers than the file has weights.
    """
    model = state["method"]["model"]
    n_weights = sum(tensor.numel() for tensor in model.values() if isinstance(tensor, Tensor))
    if own_backbone is not None and math.prod(state["input_shape"]) <= max(n_weights, SMALL):
        return None
    n_features: int = model["head.weight"].shape[1]
    return n_features


def check_extras(method: Method, settings: LearnerSettings) -> None:
    """Raise ValueError if memory keeps more beside samples than the parts put there, where these are all our own."""
    parts = (settings.method, settings.selection)
    if not isinstance(method, ReplayMethod) or not method.memory.columns or any(":" in part.name for part in parts):
        return
    expected = method.extras | method.selection.extras
    if method.memory.extras - {WEIGHT} != expected:
        raise ValueError(
            f"the saved memory keeps {sorted(method.memory.extras)} beside its samples, not {sorted(expected)}"
        )


def _as_saved(kind: Kind, part: Part, state: State) -> Part:
    return part.with_options(**{name: state[name] for name in options_of(kind, part.name) if name in state})


def _check_memory(settings: LearnerSettings, memory: State, shape: tuple[int, ...], dtype: str | None) -> None:
    allowed = Memory(settings.memory)
    if (memory["max_samples"], memory["max_bytes"]) != (allowed.max_samples, allowed.max_bytes):
        raise ValueError(f"the memory saved is not one of {settings.memory}, as the settings say")
    x = memory["columns"].get("x")
    if x is not None and (tuple(x.shape[1:]) != shape or str(x.dtype) != f"torch.{dtype}"):
        raise ValueError(
            f"memory keeps {x.dtype} of shape {tuple(x.shape[1:])}, but this learner takes {dtype} of shape {shape}"
        )


def _check_backbone(part: Part, saved: State, shape: tuple[int, ...], n_features: int) -> None:
    """Compare its shapes with those in the file, on torch's meta device, where nothing is allocated.

    No pass is made there: that would import torch's compiler.
    """
    with torch.device("meta"):
        backbone = make("backbones", part, shape)
    if backbone.n_features != n_features:
        raise ValueError(f"head.weight has {n_features} features, but the settings lead to {backbone.n_features}")
    for name, tensor in backbone.state_dict().items():
        found = saved.get(f"backbone.{name}")
        if found is None or found.shape != tensor.shape:
            shown = None if found is None else tuple(found.shape)
            raise ValueError(f"backbone.{name} has shape {shown}, but the settings lead to {tuple(tensor.shape)}")


def _broadcasts(mean: torch.Size, shape: tuple[int, ...]) -> bool:
    """Return True if a mean of this shape can be subtracted from inputs (n, *shape) and leaves their shape."""
    wanted = (1, *shape)
    return len(mean) <= len(wanted) and all(n in (1, m) for n, m in zip(mean[::-1], wanted[::-1], strict=False))
