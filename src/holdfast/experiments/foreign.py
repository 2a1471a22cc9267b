"""Code of other packages that an experiment names: a hash of what its modules do, which is a part of the identity.

Comments, docstrings and layout do not count, as in the fingerprint of this package. Counted are the module of each
part and all that it imports: modules of its own package, and modules that are neither of Python nor installed, such as
a file beside it.
"""

from __future__ import annotations

import inspect
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any
from weakref import WeakKeyDictionary

from holdfast import parts
from holdfast.core.fingerprint import Fingerprint, changed_modules, imported_modules, program_hash
from holdfast.parts import Kind, Unknown, find

OWN = __name__.partition(".")[0]
_INSTALLED = [Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "platstdlib", "purelib", "platlib")]
_known: WeakKeyDictionary[type[Any], dict[str, Fingerprint]] = WeakKeyDictionary()  # by class and name


class ChangedCode(ValueError):
    """Code of another package is not what it was when a run was asked for."""


def foreign_code(named: Iterable[tuple[Kind, str]]) -> Fingerprint:
    """Return by file, as 'package/module.py', a hash of the code behind parts of other packages, which is imported.

    Args:
        named: kinds and names of parts, of this package too, which are passed over.
    """
    code: Fingerprint = {}
    for kind, name in named:
        if ":" in name:
            code |= code_behind(name, find(kind, name))
    return dict(sorted(code.items()))


def code_behind(name: str, found: type[Any]) -> Fingerprint:
    """Return by file a hash of the code of a class that was named 'package.module:Class', and of what it imports.

    The hash is taken once for a class, close to its import: a file that is edited later is not what runs here.
    """
    known = _known.setdefault(found, {})
    if name not in known:
        known[name] = dict(_reached(name.partition(":")[0], found))
    return known[name]


def check_same(stated: Fingerprint, now: Fingerprint) -> None:
    """Raise ChangedCode if code that an experiment states is not that of today."""
    if stated and stated != now:
        changed = ", ".join(changed_modules(stated, now))
        raise ChangedCode(f"the code that the experiment names has changed since it was asked for: {changed}")


def _reached(named: str, found: type[Any]) -> Iterator[tuple[str, str]]:
    """Yield the file and the hash of each module that counts, beginning with the module `named`."""
    home = _home(sys.modules[named]) if named in sys.modules else None
    if home is None:
        yield f"{named.replace('.', '/')}.py", program_hash(_source_of(named, found))
        return
    package = named.partition(".")[0]
    places = [*([] if _is_installed(home) else [home]), *_places()]
    waiting, done = [named, found.__module__], set[str]()
    while waiting:
        name = waiting.pop()
        top = name.partition(".")[0]
        if name in done or top == OWN or (top != package and top in sys.stdlib_module_names):
            continue
        done.add(name)
        path = _path(name, [home] if top == package else places)
        if path is None:
            continue
        source = _read(path)
        # A package's file is the module '__init__' of it, which imports that begin with a dot are relative to.
        whole = f"{name}.__init__" if path.stem == "__init__" else name
        yield f"{whole.replace('.', '/')}.py", program_hash(source, module=whole)
        reached = {name, *imported_modules(source, module=whole)}
        waiting += sorted(each for one in reached for each in (one, *_packages(one)))


def _home(module: ModuleType) -> Path | None:
    """Return the folder that a module is imported from; None if it is of no file of Python."""
    file = getattr(module, "__file__", None)
    if file is None or Path(file).suffix != ".py" or module.__name__ == "__main__":
        return None
    path = Path(file).resolve()
    return path.parents[module.__name__.count(".") + (path.stem == "__init__")]


def _source_of(named: str, found: type[Any]) -> str:
    """Return the source of a class whose module has no file of its own: a script, or what was typed."""
    for of in (sys.modules.get(named), found):
        try:
            return inspect.getsource(of)  # type: ignore[arg-type]
        except (OSError, TypeError):
            continue
    raise Unknown(
        f"the source of '{named}:{found.__qualname__}' cannot be read, so nobody could tell when it changes: put it "
        "into a file"
    )


def _places() -> list[Path]:
    """Return the folders of modules that are neither of Python nor installed, in the order in which they count."""
    places = [Path(place or ".").resolve() for place in [*sys.path, *parts.last_places]]
    return [place for place in dict.fromkeys(places) if place.is_dir() and not _is_installed(place)]


def _is_installed(place: Path) -> bool:
    return any(place == known or known in place.parents for known in _INSTALLED)


def _path(name: str, places: list[Path]) -> Path | None:
    """Return the file of a module, if it is in one of the folders."""
    for place in places:
        base = place.joinpath(*name.split("."))
        for path in (base / "__init__.py", base.with_name(f"{base.name}.py")):
            if path.is_file():
                return path
    return None


def _read(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise Unknown(f"{path}, which an experiment needs, cannot be read: {error}") from error


def _packages(name: str) -> Iterator[str]:
    while name := name.rpartition(".")[0]:
        yield name
