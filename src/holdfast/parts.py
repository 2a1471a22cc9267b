"""Names of parts, and the classes behind them: a file of the package, or a class of another package."""

from __future__ import annotations

import difflib
import importlib
import linecache
import pkgutil
import sys
import traceback
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

Kind = Literal["methods", "wrappers", "selections", "retrievals", "streams", "backbones"]
FOLDERS: dict[Kind, str] = {
    "methods": "holdfast.methods",
    "wrappers": "holdfast.methods.wrappers",
    "selections": "holdfast.memory.selection",
    "retrievals": "holdfast.memory.retrieval",
    "streams": "holdfast.streams",
    "backbones": "holdfast.backbones",
}
BASES: dict[Kind, tuple[str, str]] = {  # by module and name, since importing them imports torch
    "methods": ("holdfast.methods._base", "Method"),
    "wrappers": ("holdfast.methods.wrappers._base", "Wrapper"),
    "selections": ("holdfast.memory.selection._base", "Selection"),
    "retrievals": ("holdfast.memory.retrieval._base", "Retrieval"),
    "streams": ("holdfast.streams._base", "Stream"),
    "backbones": ("torch.nn", "Module"),
}
AROUND = "+"  # between a method and a wrapper, as in er+mkd


class Unknown(ValueError):
    """A name or an option that does not exist; the message suggests the nearest."""


def names(kind: Kind) -> list[str]:
    """Return the names of everything of a kind: its files."""
    return list(_files(FOLDERS[kind]))


@cache
def _files(folder: str) -> tuple[str, ...]:
    path = importlib.import_module(folder).__path__
    modules = (module for module in pkgutil.iter_modules(path) if not module.ispkg)
    return tuple(sorted(module.name for module in modules if module.name[0] != "_"))


def base_of(kind: Kind) -> type[Any]:
    """Return the class that everything of a kind is derived from."""
    module, name = BASES[kind]
    found: type[Any] = getattr(importlib.import_module(module), name)
    return found


def find(kind: Kind, name: str) -> type[Any]:
    """Return the class that the file `name` holds, or that another package has as 'package.module:Class'.

    A method may have wrappers, as in 'er+mkd': the class is then made of the method's and theirs.
    """
    (kind, name), *around = pieces(kind, name)
    found = _found(kind, name)
    for of, wrapper in around:
        found = _wrapped(found, _found(of, wrapper))  # type: ignore[arg-type]
    return found


def pieces(kind: Kind, name: str) -> list[tuple[Kind, str]]:
    """Return the part that is named, and the wrappers around it, each with its kind.

    Example:
        >>> pieces("methods", "er+mkd")
        [('methods', 'er'), ('wrappers', 'mkd')]
    """
    if kind != "methods":
        return [(kind, name)]
    method, *around = name.split(AROUND)
    return [(kind, method), *(("wrappers", wrapper) for wrapper in around)]


def is_ours(kind: Kind, name: str) -> bool:
    """Return True if the package has a part of that name, with whatever wrappers; no code is imported for it.

    Example:
        >>> is_ours("methods", "er+mkd"), is_ours("methods", "er+my_module:Mine"), is_ours("methods", "agme")
        (True, False, False)
    """
    return all(each in names(of) for of, each in pieces(kind, name))


def _found(kind: Kind, name: str) -> type[Any]:
    if ":" in name:
        return foreign_class(name, base_of(kind), among=f"the {kind}")
    check_name(name, names(kind), among=kind)
    return _own(kind, name)


@cache
def _wrapped(method: type[Any], wrapper: type[Any]) -> type[Any]:
    if refusal := wrapper.refusal(method):
        raise Unknown(f"'{wrapper.__name__}' cannot be put around {method.__name__}: {refusal}")
    made: type[Any] = wrapper.around(method)
    return made


@cache
def _own(kind: Kind, name: str) -> type[Any]:
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


@dataclass(frozen=True)
class Frame:
    """A line of code of another package, in which an error came up."""

    file: str
    line: int
    function: str
    text: str

    def __str__(self) -> str:
        return f"{self.file}, line {self.line}, in {self.function}"


def foreign_frames(error: BaseException) -> list[Frame]:
    """Return the lines of other packages' code that an error came through, the innermost last.

    Other packages are those of which a class was asked for, and what stands in `last_places`. Of an error that is
    raised while their modules are imported, the lines of the error behind it are returned.
    """
    frames = []
    for frame, line in traceback.walk_tb(error.__traceback__):
        file = frame.f_code.co_filename
        if _is_foreign(frame.f_globals.get("__name__", ""), file):
            text = linecache.getline(file, line).strip()
            frames.append(Frame(_shortest(file), line, frame.f_code.co_name, text))
    if isinstance(error, SyntaxError) and error.filename and _is_foreign("", error.filename):
        frames.append(Frame(_shortest(error.filename), error.lineno or 0, "<module>", (error.text or "").strip()))
    if not frames and error.__cause__ is not None:
        return foreign_frames(error.__cause__)
    return frames


def _is_foreign(module: str, file: str) -> bool:
    if module.split(".")[0] in _asked_for - {"holdfast"}:
        return True
    installed = [sys.prefix, sys.base_prefix, str(Path(__file__).parent)]
    places = [place for place in last_places if Path(file).is_relative_to(place)]
    return bool(places) and not any(Path(file).is_relative_to(place) for place in installed)


def _shortest(file: str) -> str:
    """Return the path relative to the current folder, where the file is in it."""
    path = Path(file)
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else file


_asked_for: set[str] = set()  # packages of which a user named a class
last_places: list[str] = []  # folders where code of other packages is looked for when it is nowhere else


def _foreign(name: str) -> ModuleType:
    """Import a module of another package. Only names that a user gave may come here, none that a file holds.

    The last place that it comes from stays on the path, behind all others: its own later imports and processes that
    are started from this one need it.
    """
    _asked_for.add(name.split(".")[0])
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
