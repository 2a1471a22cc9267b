"""The one place that turns settings into objects."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from pydantic import ValidationError
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from holdfast.core.model import Model, predicting
from holdfast.core.optimizers import make_optimizer
from holdfast.core.options import readable
from holdfast.memory.retrieval._base import Retrieval
from holdfast.memory.selection._base import Selection
from holdfast.memory.storage import Memory
from holdfast.methods._base import Method, ReplayMethod
from holdfast.methods.hedge import FEW
from holdfast.parts import Kind, Unknown, find
from holdfast.settings import (
    FOR_EVERY_BACKBONE,
    LearnerSettings,
    Part,
    check_setting,
    inner_stream,
    is_wrapped,
    option_values,
    options_of,
    resolved_settings,
)
from holdfast.streams._base import Stream

PASSES = "passes"  # the option of methods that can take new and replayed samples in one pass
COLOUR_RATE = 0.03  # learning rate of colour pictures on an MLP


def asked_settings(
    method: str | dict[str, Any], fields: dict[str, Any], options: dict[str, Any], *, network: nn.Module | None = None
) -> LearnerSettings:
    """Return the settings that a caller asks for, with every option stated; Unknown says what is wrong with them.

    New and replayed samples take one pass, unless the caller says so or the network mixes the samples of a pass.

    Args:
        fields: fields of `LearnerSettings` beside the method.
        options: options of the method.
        network: it takes the place of the backbone that is named.
    """
    part = Part.model_validate(method)
    known = sorted({*LearnerSettings.model_fields, *options_of("methods", part.name)})
    for name in options:
        check_setting(name, known, among="the settings of a learner", fields=LearnerSettings.model_fields)
    try:
        settings = LearnerSettings.model_validate({"method": part.with_options(**options), **fields})
    except ValidationError as error:
        raise Unknown(readable(error)) from error
    if PASSES in known and PASSES not in settings.method.options and not _mixes_samples(settings.backbone, network):
        settings = settings.model_copy(update={"method": settings.method.with_options(**{PASSES: 1})})
    return resolved_settings(settings)


def _mixes_samples(part: Part, network: nn.Module | None) -> bool:
    """Return False if the features of a sample cannot depend on the other samples of its pass, while learning."""
    if network is not None:
        stateless = not any(isinstance(each, _BatchNorm) or each._buffers for each in network.modules())
        return not (stateless or getattr(network, FOR_EVERY_BACKBONE, False))
    kept_as_it_is = part.options.get(FOR_EVERY_BACKBONE, options_of("backbones", part.name)[FOR_EVERY_BACKBONE])
    return not kept_as_it_is and getattr(find("backbones", part.name), "mixes_samples", True)


def fitting_parts(input_shape: Sequence[int]) -> dict[str, Any]:
    """Return the method, the backbone and the learning rate for inputs of a shape, where a caller names none.

    Short vectors are often measurements, whose scales differ and whose classes depend on the moment. Long ones are
    often features, where one covariance for all classes is exact and the learning rate does not matter. Colour pictures
    have three times the numbers of grey ones, and want a smaller rate: `benchmarks/defaults.py` measures it.

    Example:
        >>> fitting_parts((8,)), fitting_parts((1280,))
        ({'method': 'hedge', 'backbone': 'identity'}, {'method': 'slda', 'backbone': 'identity'})
        >>> fitting_parts((3, 32, 32))
        {'method': 'er', 'backbone': 'mlp', 'lr': 0.03}
    """
    if len(input_shape) == 1:
        return {"method": "hedge" if input_shape[0] <= FEW else "slda", "backbone": "identity"}
    is_colour = len(input_shape) == 3 and input_shape[0] == 3
    return {"method": "er", "backbone": "mlp", **({"lr": COLOUR_RATE} if is_colour else {})}


def usable_device(device: str | torch.device) -> torch.device:
    """Return the device; ValueError if it cannot be used here."""
    try:
        found = torch.device(device)
        torch.empty(0, device=found)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise ValueError(f"device '{device}' cannot be used here ({reason}): 'cpu' always can") from error
    return found


def make(kind: Kind, part: Part, *given: Any, **built: Any) -> Any:
    """Return an object of the class that `part` names, from its options and what was built already."""
    options = option_values(kind, part)
    if kind != "backbones":
        return find(kind, part.name)(*given, **built, **options)
    frozen = options.pop(FOR_EVERY_BACKBONE)
    backbone = find(kind, part.name)(*given, **built, **options)
    if frozen != options_of(kind, part.name)[FOR_EVERY_BACKBONE]:
        setattr(backbone, FOR_EVERY_BACKBONE, frozen)
    return backbone


def build_model(
    settings: LearnerSettings,
    input_shape: tuple[int, ...],
    *,
    scale: float | None = None,
    mean: Tensor | float = 0.0,
    backbone: nn.Module | None = None,
    n_features: int | None = None,
) -> Model:
    """Return the model of `settings` for samples of `input_shape`; `backbone` takes the place of the named one.

    A backbone of one's own is tried on one sample, unless the number of its features is given.
    """
    # Layers initialise themselves from torch's global generator, which is left as it was.
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(settings.seed)
        network: nn.Module = backbone if backbone is not None else make("backbones", settings.backbone, input_shape)
    return Model(
        network,
        n_features=n_features or _n_features(network, input_shape, declared=backbone is None),
        n_classes=settings.n_classes or 1,
        setting=settings.setting,
        head=settings.head or find("methods", settings.method.name).head,
        cosine_scale=settings.cosine_scale,
        scale=scale,
        mean=mean,
        seed=settings.seed,
    )


def build_method(settings: LearnerSettings, model: Model) -> Method:
    """Return the method of `settings`, learning `model`."""
    optimizer = make_optimizer(settings.optimizer, model, lr=settings.lr, momentum=settings.momentum)
    built: dict[str, Any] = {"model": model, "optimizer": optimizer}
    if issubclass(find("methods", settings.method.name), ReplayMethod):
        selection: Selection = make("selections", settings.selection)
        retrieval: Retrieval = make("retrievals", settings.retrieval)
        memory = Memory(settings.memory, seed=settings.seed, device=model.device)
        built |= {"memory": memory, "selection": selection, "retrieval": retrieval}
    method: Method = make("methods", settings.method, **built)
    return method


def build_stream(part: Part, data: Path | None, seed: int) -> Stream:
    """Build the stream that `part` names; one that is made of another takes that as the option `of`."""
    if is_wrapped(part):
        found = find("streams", part.name)
        taken = inspect.signature(found).parameters.keys()
        given = {name: value for name, value in (("data", data), ("seed", seed)) if name in taken}
        wrapped: Stream = found(build_stream(inner_stream(part), data, seed), **given, **option_values("streams", part))
        return wrapped
    stream: Stream = make("streams", part, data, seed=seed)
    return stream


def _n_features(backbone: nn.Module, input_shape: tuple[int, ...], *, declared: bool) -> int:
    if declared and isinstance(backbone.n_features, int):
        return backbone.n_features
    try:
        with predicting(backbone):
            features = backbone(torch.zeros(1, *input_shape))
    except RuntimeError as error:
        raise ValueError(f"the backbone does not take samples of shape {input_shape}: {error}") from error
    if features.ndim != 2:
        raise ValueError(f"the backbone makes features of shape {tuple(features.shape[1:])}: make it (n, n_features)")
    return int(features.shape[1])
