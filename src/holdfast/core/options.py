"""Options of a part, as its class declares them: name, type with its range, default, and the neutral value.

A range stands in the type, as in `Annotated[float, Field(gt=0)]`. Numbers are finite unless the type says otherwise.
"""

from __future__ import annotations

import dataclasses
import inspect
import types
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from functools import cache
from typing import Annotated, Any, TypeVar, get_args, get_origin, get_type_hints

import pydantic_core
from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic.errors import PydanticUserError

T = TypeVar("T")

OPTION_CONFIG = ConfigDict(strict=True, allow_inf_nan=False, arbitrary_types_allowed=True)
_MAX_SHOWN = 60  # characters of a value in a message


@dataclass(frozen=True)
class Before:
    """Annotation: the value that a stored run counts as which did not know the option, or the field of settings.

    A value equal to it does not change the digest of an experiment.

    Example:
        >>> def constructor(turns: Annotated[int, Before(1)] = 4): ...
        >>> before_of(get_type_hints(constructor, include_extras=True)["turns"])
        1
    """

    value: Any


def option(default: T, *, before: Any = MISSING) -> T:
    """Return the field of a dataclass that is an option added after runs were stored.

    Args:
        default: the value of new runs.
        before: the neutral value, with which the code does what it did before it had the option. Stored runs that do
            not state the option count as run with it. A parameter of a constructor says it as `Before(value)` in an
            `Annotated` type.

    Example:
        >>> @dataclass
        ... class Decayed:
        ...     decay: Annotated[float, "a range"] = option(0.9, before=1.0)
        >>> declared(Decayed)["decay"].default, declared(Decayed)["decay"].before
        (0.9, 1.0)
    """
    made: T = field(default=default, metadata={} if before is MISSING else {"before": before})
    return made


@dataclass(frozen=True)
class Option:
    """One option of a part; `default` and `before` are MISSING where the class names none."""

    name: str
    type: Any
    default: Any = MISSING
    before: Any = MISSING

    def plain(self, value: Any) -> Any:
        """Return a value as it is written down: numbers, texts, lists; ValueError if the option cannot have it."""
        checked = self.checked(value)
        try:
            return pydantic_core.to_jsonable_python(checked, inf_nan_mode="constants")
        except (pydantic_core.PydanticSerializationError, UnicodeDecodeError) as error:
            raise ValueError(
                f"{type(checked).__name__} cannot be written down: give numbers, texts or lists"
            ) from error

    def checked(self, value: Any) -> Any:
        """Return a value as the class takes it; ValueError if it is of another type or out of range."""
        adapter = _adapter(self)
        if adapter is None:
            return value
        try:
            return adapter.validate_python(value)
        except ValidationError as error:
            if not isinstance(value, list | str):
                raise ValueError(_reasons(error)) from error
            # A file writes a tuple as a list, and a path or an enumeration as a text.
            try:
                return adapter.validate_json(pydantic_core.to_json(value))
            except (ValidationError, pydantic_core.PydanticSerializationError):
                raise ValueError(_reasons(error)) from error


def declared(owner: type, hidden: frozenset[str] = frozenset()) -> Mapping[str, Option]:
    """Return the options that a class declares, by name: fields of a dataclass, else parameters of its constructor.

    Args:
        hidden: fields and parameters that are no options.

    Example:
        >>> class Ring:
        ...     def __init__(self, per_class: int = 3): ...
        >>> declared(Ring)["per_class"].default
        3
    """
    return types.MappingProxyType({name: each for name, each in _declared(owner).items() if name not in hidden})


@cache
def _declared(owner: type) -> dict[str, Option]:
    hints = _hints(owner)
    if is_dataclass(owner):
        return {
            f.name: Option(
                f.name, hints.get(f.name, Any), _default(f), f.metadata.get("before", _before(hints, f.name))
            )
            for f in fields(owner)
            if f.init
        }
    named = [p for p in inspect.signature(owner).parameters.values() if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    return {
        p.name: Option(
            p.name, hints.get(p.name, Any), MISSING if p.default is p.empty else p.default, _before(hints, p.name)
        )
        for p in named
    }


def before_of(hint: Any) -> Any:
    """Return the value that `Before` in an annotation names; MISSING if it names none."""
    if get_origin(hint) is not Annotated:
        return MISSING
    return next((each.value for each in get_args(hint)[1:] if isinstance(each, Before)), MISSING)


def _before(hints: dict[str, Any], name: str) -> Any:
    return before_of(hints.get(name))


def _default(of: dataclasses.Field[Any]) -> Any:
    return of.default if of.default_factory is MISSING else of.default_factory()


def _hints(owner: type) -> dict[str, Any]:
    try:
        return get_type_hints(
            owner if is_dataclass(owner) else inspect.getattr_static(owner, "__init__"), include_extras=True
        )
    except (
        NameError,
        TypeError,
        AttributeError,
    ):  # types that are made inside a function, or imported for checkers only
        return {}


def _adapter(of: Option) -> TypeAdapter[Any] | None:
    try:
        return _adapter_of_type(of.type)
    except (PydanticUserError, TypeError):  # a type that cannot be checked
        return None


@cache
def _adapter_of_type(hint: Any) -> TypeAdapter[Any]:
    try:
        return TypeAdapter(hint, config=OPTION_CONFIG)
    except PydanticUserError:  # a type with a configuration of its own takes no other
        return TypeAdapter(hint)


def _reasons(error: ValidationError) -> str:
    return " or ".join(dict.fromkeys(str(problem["msg"]) for problem in error.errors()))


def readable(error: ValidationError) -> str:
    """Return in words, field by field, why settings are refused."""
    lines = []
    for problem in error.errors():
        where = ".".join(str(step) for step in problem["loc"])
        lines.append(f"{where or 'settings'}: {problem['msg']}, not {shown(problem['input'])}")
    return "; ".join(lines)


def shown(value: Any) -> str:
    """Return a value as a message shows it, cut where it is long.

    Example:
        >>> shown("five"), shown(10**100)
        ("'five'", 'a number of 101 digits')
    """
    if isinstance(value, int) and abs(value) >= 10**20:
        digits = int(abs(value).bit_length() * 0.30103) + 1
        return f"a number of {digits} digits"
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # of a list that holds such a number, or is deep
        return f"a {type(value).__name__}"
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}…"
