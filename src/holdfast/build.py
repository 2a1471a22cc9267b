"""The one place that turns names and settings into objects."""

from __future__ import annotations

import difflib
import importlib
import inspect
import pkgutil
import sys
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, get_type_hints

import torch
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, model_serializer, model_validator
from torch import Tensor, nn

from holdfast.core.classes import Setting
from holdfast.core.model import HeadKind, Model, predicting
from holdfast.core.optimizers import OptimizerName, make_optimizer
from holdfast.memory.retrieval._base import Retrieval
from holdfast.memory.selection._base import Selection
from holdfast.memory.storage import Memory, parse_bytes
from holdfast.methods._base import Method, ReplayMethod
from holdfast.streams._base import Stream
from holdfast.streams.joint import Joint

Kind = Literal["methods", "selections", "retrievals", "streams", "backbones"]
FOLDERS: dict[Kind, str] = {
    "methods": "holdfast.methods",
    "selections": "holdfast.memory.selection",
    "retrievals": "holdfast.memory.retrieval",
    "streams": "holdfast.streams",
    "backbones": "holdfast.backbones",
}


BASES: dict[Kind, type] = {
    "methods": Method,
    "selections": Selection,
    "retrievals": Retrieval,
    "streams": Stream,
    "backbones": nn.Module,
}


class Unknown(ValueError):
    """A name or an option that does not exist; the message suggests the nearest."""


def names(kind: Kind) -> list[str]:
    """The names of everything of a kind: its files."""
    return list(_files(FOLDERS[kind]))


@cache
def _files(folder: str) -> tuple[str, ...]:
    path = importlib.import_module(folder).__path__
    return tuple(sorted(module.name for module in pkgutil.iter_modules(path) if module.name[0] != "_"))


def find(kind: Kind, name: str) -> type[Any]:
    """The class that the file `name` holds, or the class of another package given as 'package.module:Class'."""
    if ":" in name:
        return foreign_class(name, BASES[kind], among=f"the {kind}")
    check_name(name, names(kind), among=kind)
    return public_class(importlib.import_module(f"{FOLDERS[kind]}.{name}"))


def foreign_class(name: str, base: type, *, among: str) -> type[Any]:
    """Import the class of another package given as 'package.module:Class', which has to be derived from `base`."""
    module_name, _, class_name = name.partition(":")
    try:
        found = getattr(_foreign(module_name), class_name)
    except (ImportError, AttributeError, ValueError) as error:
        raise Unknown(f"no '{name}' to import: {error}") from error
    if not isinstance(found, type):
        raise Unknown(f"'{name}' is not a class: name one as package.module:Class")
    if not issubclass(found, base):
        raise Unknown(f"'{name}' is not of {among}: derive it from {base.__name__}")
    return found


def public_class(module: ModuleType, base: type = object) -> type[Any]:
    """Return the one public class of a module that is derived from `base`."""
    (found,) = (
        value
        for value in vars(module).values()
        if isinstance(value, type) and value.__module__ == module.__name__ and value.__name__[0] != "_"
        if issubclass(value, base)
    )
    return found


last_places: list[str] = []  # folders where code of other packages is looked for when it is nowhere else


def _foreign(name: str) -> ModuleType:
    """Import a module of another package. Only names that a user gave may come here, none that a file holds.

    The last place that it comes from stays on the path, behind all others: its own later imports and processes that
    are started from this one need it.
    """
    added = [place for place in last_places if place not in sys.path]
    sys.path += added
    module = None
    try:
        module = importlib.import_module(name)
    finally:
        for place in added:
            if module is None or not _comes_from(module, place):
                sys.path.remove(place)
    return module


def _comes_from(module: ModuleType, place: str) -> bool:
    files = [module.__file__] if getattr(module, "__file__", None) else list(getattr(module, "__path__", []))
    return any(file is not None and Path(file).is_relative_to(place) for file in files)


def check_name(name: str, known: list[str], *, among: str) -> None:
    """Raise if `name` is not `known`, with the nearest that is."""
    if name in known:
        return
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    advice = f"did you mean '{near[0]}'?" if near else f"there are {', '.join(known)}"
    raise Unknown(f"no '{name}' in {among}: {advice}")


class Part(BaseModel):
    """A name and what differs from its defaults: `er`, or {name = "er", replay_size = 64}."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    options: dict[str, Any] = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _from_short(cls, given: Any) -> Any:
        if isinstance(given, str):
            return {"name": given}
        if isinstance(given, dict) and "options" not in given:
            return {"name": given.get("name"), "options": {k: v for k, v in given.items() if k != "name"}}
        return given

    @model_serializer
    def _short(self) -> dict[str, Any]:
        return {"name": self.name, **self.options}

    def with_options(self, **options: Any) -> Part:
        return Part(name=self.name, options={**self.options, **options})


class LearnerSettings(BaseModel):
    """Everything that decides how a learner learns; the rest is data."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    method: Part = Part(name="er")
    setting: Setting = "free"
    backbone: Part = Part(name="mlp")
    head: HeadKind | None = None  # None: as the method wants it
    cosine_scale: float = Field(default=10.0, gt=0)
    n_classes: int | None = Field(default=None, ge=1)  # None: the head grows with the classes that come
    memory: int | str = 1000  # samples, or bytes as "5 MB"
    selection: Part = Part(name="reservoir")  # unless the method wants another
    retrieval: Part = Part(name="uniform")
    optimizer: OptimizerName = "sgd"
    lr: float = Field(default=0.1, gt=0)
    momentum: float = Field(default=0.0, ge=0, lt=1)
    seed: int = Field(default=0, ge=0)

    @model_validator(mode="before")
    @classmethod
    def _selection_as_the_method_wants(cls, given: Any) -> Any:
        if not isinstance(given, dict) or "selection" in given:
            return given
        method = given.get("method")
        name = method.name if isinstance(method, Part) else method.get("name") if isinstance(method, dict) else method
        # Code of another package is not imported to validate settings, which may be of a file from a stranger.
        if name not in names("methods"):
            return given
        return {**given, "selection": getattr(find("methods", name), "selects", "reservoir")}

    @model_validator(mode="after")
    def _memory_is_a_size(self) -> LearnerSettings:
        if isinstance(self.memory, str):
            parse_bytes(self.memory)
        elif self.memory < 1:
            raise ValueError(f"a memory of {self.memory} samples holds nothing: give 1 or more")
        return self


PARTS: dict[str, Kind] = {
    "method": "methods",
    "selection": "selections",
    "retrieval": "retrievals",
    "backbone": "backbones",
    "stream": "streams",
}
FOR_EVERY_BACKBONE = {"frozen": False}  # attributes of the object, which its class need not know
_BUILT_HERE = {"model", "optimizer", "memory", "selection", "retrieval"}  # fields of methods that are no options


def options_of(kind: Kind, name: str) -> dict[str, Any]:
    """The options that `name` takes, with their defaults (None where there is none)."""
    found = find(kind, name)
    if issubclass(found, Method):
        return {
            f.name: None if f.default is MISSING else f.default
            for f in fields(found)
            if f.init and f.name not in _BUILT_HERE
        }
    hidden = {"self", "input_shape", "data", "seed", "of", "args", "kwargs"}
    parameters = inspect.signature(found).parameters.values()
    options = {
        p.name: None if p.default is inspect.Parameter.empty else p.default for p in parameters if p.name not in hidden
    }
    return options | FOR_EVERY_BACKBONE if kind == "backbones" else options


def make(kind: Kind, part: Part, *given: Any, **built: Any) -> Any:
    """An object of the class that `part` names, from its options and what was built already."""
    check_options(kind, part)
    if kind != "backbones":
        return find(kind, part.name)(*given, **built, **part.options)
    own = {name: value for name, value in part.options.items() if name not in FOR_EVERY_BACKBONE}
    backbone = find(kind, part.name)(*given, **built, **own)
    for name in FOR_EVERY_BACKBONE.keys() & part.options.keys():
        setattr(backbone, name, part.options[name])
    return backbone


def check_options(kind: Kind, part: Part) -> None:
    """Raise if `part` has an option that does not exist, or a value of the wrong kind for one that does."""
    found = find(kind, part.name)
    hints = get_type_hints(found if is_dataclass(found) else found.__init__)
    if kind == "backbones":
        hints |= {name: type(default) for name, default in FOR_EVERY_BACKBONE.items()}
    _check_given(part, hints, sorted(options_of(kind, part.name)))


def check_options_of(found: type[Any], part: Part) -> None:
    """Raise if `part` has an option that is no field of the dataclass `found`, or a value of the wrong kind."""
    _check_given(part, get_type_hints(found), sorted(option.name for option in fields(found) if option.init))


def _check_given(part: Part, hints: dict[str, Any], known: list[str]) -> None:
    for option, value in part.options.items():
        check_name(option, known, among=f"the options of '{part.name}'")
        try:
            TypeAdapter(hints[option]).validate_python(value)
        except ValidationError as error:
            raise Unknown(f"{part.name}.{option}: {error.errors()[0]['msg']}, not {value!r}") from error


def check_parts(settings: LearnerSettings) -> None:
    """Raise if a part of `settings` does not exist or has options that make no sense."""
    for field, kind in PARTS.items():
        if field in LearnerSettings.model_fields:
            check_options(kind, getattr(settings, field))


def build_model(
    settings: LearnerSettings,
    input_shape: tuple[int, ...],
    *,
    scale: float | None = None,
    mean: Tensor | float = 0.0,
    backbone: nn.Module | None = None,
    n_features: int | None = None,
) -> Model:
    """The model of `settings` for samples of `input_shape`; `backbone` stands in for the one that is named.

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
    """The method of `settings`, learning `model`."""
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
    """The stream that `part` names; `joint` takes the stream that it joins as the option `of`."""
    if part.name == "joint":
        options = dict(part.options)
        base = options.pop("of", None)
        if base is None:
            raise Unknown("'joint' joins the tasks of another stream: say which, as in of='permuted_digits'")
        return Joint(build_stream(Part(name=base, options=options), data, seed))
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
