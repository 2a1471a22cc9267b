"""Settings as plain data, and the one place where every option of a part is stated and checked."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import MISSING
from functools import lru_cache
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, model_serializer, model_validator
from pydantic.fields import FieldInfo

from holdfast.core.classes import Setting
from holdfast.core.model import HeadKind
from holdfast.core.optimizers import OptimizerName
from holdfast.core.options import Before, Option, declared, shown
from holdfast.memory.storage import parse_bytes
from holdfast.methods._base import Method
from holdfast.parts import AROUND, Kind, Unknown, check_name, find, is_ours, names
from holdfast.streams._wrapped import WrappedStream

LARGEST = 2**63 - 1  # of a seed and of samples in memory


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

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

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
    seed: int = Field(default=0, ge=0, le=LARGEST)

    @model_validator(mode="before")
    @classmethod
    def _selection_as_the_method_wants(cls, given: Any) -> Any:
        if not isinstance(given, dict) or "selection" in given:
            return given
        method = given.get("method")
        name = method.name if isinstance(method, Part) else method.get("name") if isinstance(method, dict) else method
        # Code of another package is not imported to validate settings, which may be of a file from a stranger.
        if not isinstance(name, str) or not is_ours("methods", name):
            return given
        return {**given, "selection": getattr(find("methods", name), "selects", "reservoir")}

    @model_validator(mode="after")
    def _memory_is_a_size(self) -> LearnerSettings:
        if isinstance(self.memory, str):
            parse_bytes(self.memory)
        elif self.memory < 1:
            raise ValueError(f"a memory of {self.memory} samples holds nothing: give 1 or more")
        elif self.memory > LARGEST:
            raise ValueError(f"a memory of {shown(self.memory)} samples is more than can be counted: give fewer")
        return self


PARTS: dict[str, Kind] = {
    "method": "methods",
    "selection": "selections",
    "retrieval": "retrievals",
    "backbone": "backbones",
    "stream": "streams",
}
FOR_EVERY_BACKBONE = "frozen"  # an attribute of the object, which the constructor of its class need not know
_BUILT_HERE = frozenset({"model", "optimizer", "memory", "selection", "retrieval"})  # fields of methods, not options
_GIVEN_HERE = frozenset({"self", "input_shape", "data", "seed", "of"})  # parameters of others that are no options

S = TypeVar("S", bound=LearnerSettings)


def declared_options(kind: Kind, name: str) -> Mapping[str, Option]:
    """Return the options that the part `name` declares."""
    found = find(kind, name)
    options = declared(found, _BUILT_HERE if issubclass(found, Method) else _GIVEN_HERE)
    if kind != "backbones":
        return options
    frozen = Option(FOR_EVERY_BACKBONE, bool, default=getattr(found, FOR_EVERY_BACKBONE, False), before=False)
    return {**options, FOR_EVERY_BACKBONE: frozen}


def options_of(kind: Kind, name: str) -> dict[str, Any]:
    """Return the options that the part `name` takes, with their defaults (None where there is none)."""
    options = declared_options(kind, name).values()
    return {each.name: None if each.default is MISSING else each.default for each in options}


def resolved(kind: Kind, part: Part, *, stored: bool = False, fields: Mapping[str, Any] | None = None) -> Part:
    """Return `part` with every option stated; Unknown if one does not exist, is of another type or out of range.

    Options are stated as plain values, as a file has them. A default that cannot be written down is left out.

    Args:
        stored: the part is of a file. An option that it does not state counts as its neutral value, if it declares one.
            A part of another package stays as it is, since what a file names is not imported.
        fields: settings beside the parts, by name, which an error may point at.

    Example:
        >>> resolved("selections", Part(name="ring")).options
        {'per_class': None}
        >>> resolved("selections", Part(name="centroid", options={"epsilon": -1}))
        Traceback (most recent call last):
        ...
        holdfast.parts.Unknown: centroid.epsilon: Input should be greater than 0, not -1
    """
    if stored and ":" in part.name:
        return part
    if kind == "streams" and is_wrapped(part, stored=stored):
        return _resolved_wrapped(part, stored=stored)
    known = declared_options(kind, part.name)
    for name in part.options:
        if name not in known:
            raise _unknown_option(kind, part, name, list(known), fields or LearnerSettings.model_fields)
    stated = {name: _stated(part, each, stored=stored) for name, each in known.items()}
    return Part(name=part.name, options={name: value for name, value in stated.items() if value is not MISSING})


def option_values(kind: Kind, part: Part) -> dict[str, Any]:
    """Return the options of `part`, all stated, as its class takes them."""
    known = declared_options(kind, part.name)
    stated = resolved(kind, part).options
    return {name: known[name].checked(value) for name, value in stated.items() if name in known}


def checked_options(found: type[Any], part: Part) -> dict[str, Any]:
    """Return what `part` says for the fields of the dataclass `found`, as the class takes it."""
    known = declared(found)
    for name in part.options:
        check_name(name, sorted(known), among=f"the options of '{part.name}'")
    return {name: known[name].checked(_stated(part, known[name], stored=False)) for name in part.options}


def resolved_settings(settings: S, *, stored: bool = False) -> S:
    """Return `settings` with resolved parts, and with the head and the selection that the method wants.

    Args:
        stored: the settings are of a file, as in `resolved`.
    """
    fields = type(settings).model_fields
    changed: dict[str, Any] = {}
    if not (stored and ":" in settings.method.name):
        method = find("methods", settings.method.name)
        changed["head"] = settings.head or getattr(method, "head", None)
        if "selection" not in settings.model_fields_set:
            changed["selection"] = Part(name=getattr(method, "selects", "reservoir"))
    for field, kind in PARTS.items():
        if field in fields:
            part = changed.get(field, getattr(settings, field))
            changed[field] = resolved(kind, part, stored=stored, fields=fields)
    return settings.model_copy(update=changed)


def filled(kind: Kind, part: Part) -> Part:
    """Return a part of a file with the neutral values of the options that it does not state; nothing is checked.

    What the file says stays as it is, and an option without a neutral value stays unknown. Nothing that the file names
    is imported but parts of this package.

    Example:
        >>> filled("selections", Part(name="centroid", options={"epsilon": 4.0})).options
        {'epsilon': 4.0, 'max_centroids': 2048}
    """
    options = _with_inner(part.options, filled) if kind == "streams" else part.options
    unsaid = {name: value for name, value in _neutral_values(kind, part).items() if name not in options}
    return part if not unsaid and options is part.options else Part(name=part.name, options={**options, **unsaid})


def without_neutral(kind: Kind, part: Part) -> Part:
    """Return a part without the options that have their neutral values, as a run has it that does not know them.

    Example:
        >>> without_neutral("selections", Part(name="centroid", options={"epsilon": 4, "max_centroids": 2048})).options
        {'epsilon': 4}
    """
    options = _with_inner(part.options, without_neutral) if kind == "streams" else part.options
    neutral = _neutral_values(kind, part)
    said = {name: value for name, value in options.items() if name not in neutral or neutral[name] != value}
    return part if len(said) == len(part.options) and options is part.options else Part(name=part.name, options=said)


def neutral_fields(fields: Mapping[str, FieldInfo]) -> dict[str, Any]:
    """Return by name the neutral values of fields of settings; a field says it as `Before` in its type."""
    named = {name: [each for each in field.metadata if isinstance(each, Before)] for name, field in fields.items()}
    return {name: found[0].value for name, found in named.items() if found}


def _neutral_values(kind: Kind, part: Part) -> Mapping[str, Any]:
    """Return the neutral values of the options of a part of this package; of any other part none."""
    own, base = _neutral_of(kind, part.name), part.options.get("of")
    if kind == "streams" and isinstance(base, str):
        return {**_neutral_of(kind, base), **own}
    return own


@lru_cache(maxsize=1024)
def _neutral_of(kind: Kind, name: str) -> Mapping[str, Any]:
    if not is_ours(kind, name):
        return {}
    known = declared_options(kind, name).values()
    return {each.name: each.plain(each.before) for each in known if each.before is not MISSING}


def _with_inner(options: dict[str, Any], change: Callable[[Kind, Part], Part]) -> dict[str, Any]:
    """Return the options of a stream with `change` made in the stream that it is made of, if that is stated whole."""
    base = options.get("of")
    if not isinstance(base, dict) or not isinstance(base.get("name"), str):
        return options
    return {**options, "of": change("streams", Part.model_validate(base)).model_dump()}


def is_wrapped(part: Part, *, stored: bool = False) -> bool:
    """Tell whether a stream is made of another one, its option `of`.

    Args:
        stored: the part is of a file, so a class of another package is not looked at.
    """
    return not (stored and ":" in part.name) and issubclass(find("streams", part.name), WrappedStream)


def inner_stream(part: Part) -> Part:
    """Return the stream that a wrapped one is made of, with the options that the wrapped one does not have itself.

    Example:
        >>> inner_stream(Part(name="i_blurry", options={"of": "split_cub", "n_slices": 3, "size": 84}))
        Part(name='split_cub', options={'size': 84})
    """
    own, base = declared_options("streams", part.name), part.options.get("of")
    rest = {name: value for name, value in part.options.items() if name != "of" and name not in own}
    if isinstance(base, str):
        base = {"name": base}
    if not isinstance(base, dict) or not isinstance(base.get("name"), str):
        raise Unknown(f"'{part.name}' is made of another stream: say which, as in of='permuted_digits'")
    inner = Part.model_validate(base)
    if inner.name == "joint":
        raise Unknown(f"'{part.name}' cannot be made of 'joint': name another stream, as in of='permuted_digits'")
    return inner.with_options(**rest)


def _resolved_wrapped(part: Part, *, stored: bool) -> Part:
    """Return a wrapped stream with its own options and those of the inner one stated."""
    inner, own = inner_stream(part), declared_options("streams", part.name)
    said = Part(name=part.name, options={name: value for name, value in part.options.items() if name in own})
    stated = {name: _stated(said, each, stored=stored) for name, each in own.items()}
    options = {name: value for name, value in stated.items() if value is not MISSING}
    base = resolved("streams", inner, stored=stored)
    if is_wrapped(inner, stored=stored):
        return Part(name=part.name, options={"of": base.model_dump(), **options})
    return Part(name=part.name, options={"of": base.name, **options, **base.options})


def owners_of(option: str, *, but: Kind | None = None, fields: Mapping[str, Any] = LearnerSettings.model_fields) -> str:
    """Return in words whose option or setting `option` is; '' if nobody has it.

    Args:
        but: the kind of part that was asked for it, which comes last.
        fields: settings beside the parts, by name.

    Example:
        >>> owners_of("fill_first", but="methods")
        "it is an option of the selection 'centroid' (selection.fill_first)"
        >>> owners_of("lr", but="methods")
        "it is a setting of its own: 'lr'"
    """
    if option in fields and option not in PARTS:
        return f"it is a setting of its own: '{option}'"
    told = []
    for field, kind in sorted(PARTS.items(), key=lambda item: item[1] == but):
        having = [name for name in names(kind) if option in declared_options(kind, name)]
        if having:
            quoted = ", ".join(f"'{name}'" for name in having[:4]) + (" and others" if len(having) > 4 else "")
            told.append(f"of the {field}{'s' if len(having) > 1 else ''} {quoted} ({field}.{option})")
        elif kind == "methods":
            around = [name for name in names("wrappers") if option in declared_options("wrappers", name)]
            told += [f"of the wrapper '{name}' (as in er{AROUND}{name}: method.{option})" for name in around]
    return f"it is an option {' and '.join(told)}" if told else ""


def check_setting(name: str, known: list[str], *, among: str, fields: Mapping[str, Any]) -> None:
    """Raise if `name` is not `known`; an option of a part is answered with the part that has it."""
    if name not in known and (owners := owners_of(name, fields=fields)):
        raise Unknown(f"no '{name}' in {among}: {owners}")
    check_name(name, known, among=among)


def _unknown_option(kind: Kind, part: Part, option: str, known: list[str], fields: Mapping[str, Any]) -> Unknown:
    among = f"the options of '{part.name}'"
    is_near = difflib.get_close_matches(option, known, n=1, cutoff=0.85)
    if not is_near and (owners := owners_of(option, but=kind, fields=fields)):
        return Unknown(f"no '{option}' in {among}: {owners}")
    try:
        check_name(option, sorted(known), among=among)
    except Unknown as error:
        return error
    return Unknown(f"no '{option}' in {among}")


def _stated(part: Part, option: Option, *, stored: bool) -> Any:
    """Return the plain value of an option; MISSING for a default that cannot be written down."""
    if option.name not in part.options:
        value = option.before if stored and option.before is not MISSING else option.default
        if value is MISSING:
            raise Unknown(f"'{part.name}' needs the option '{option.name}', which has no default: give it")
        try:
            return option.plain(value)
        except ValueError:
            return MISSING
    value = part.options[option.name]
    try:
        return option.plain(value)
    except ValueError as error:
        raise Unknown(f"{part.name}.{option.name}: {error}, not {shown(value)}") from error
