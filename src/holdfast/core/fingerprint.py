"""Fingerprint of a program: a short hash for each module that given modules can reach.

The hash is taken from the parsed program. Comments, docstrings, layout, the order of imports and the annotations of
functions do not count; every literal, name and operator does.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import lru_cache

Fingerprint = dict[str, str]  # by module without the package's name, a short hash of what the module does

HASH_LENGTH = 8  # hexadecimal digits for a module
DIGEST_LENGTH = 12  # for a whole fingerprint


def fingerprint(
    sources: Mapping[str, str], roots: Iterable[str], *, leaves: Collection[str] = (), apart: Collection[str] = ()
) -> Fingerprint:
    """Return the hash of each module that `roots` reach by imports, those inside functions included.

    Args:
        sources: by the whole name of a module, its source; imports of anything else are not followed.
        roots: names of modules; 'package.module:name' counts only that definition and what it uses of its module.
        leaves: modules that count, but whose imports are not followed.
        apart: modules that do not count.

    A root that is not among `sources` raises LookupError, and a source that is no program SyntaxError.

    Example:
        >>> sources = {"p.er": "from p.loss import mean", "p.loss": "mean = sum", "p.ewc": "decay = 0.9"}
        >>> sorted(fingerprint(sources, ["p.er"]))
        ['er', 'loss']
    """
    whole, chosen = _by_module(roots)
    hashes: dict[str, str | None] = {}
    waiting = sorted(whole | chosen.keys())
    if missing := [name for name in waiting if name not in sources]:
        raise LookupError(f"no module {', '.join(missing)} among the sources: name modules that are there")
    while waiting:
        name = waiting.pop()
        if name in hashes or name in apart:
            continue
        wanted = None if name in whole or name not in chosen else tuple(sorted(chosen[name]))
        hashes[name], imports = _module(sources[name], name, wanted)
        reached = {name, *(() if name in leaves else imports)}
        # The outermost package is the door for users and holds no algorithm.
        waiting += {each for one in reached for each in (one, *_packages(one)) if "." in each and each in sources}
    return {name.partition(".")[2]: digest for name, digest in sorted(hashes.items()) if digest is not None}


def digest_of(code: Fingerprint) -> str:
    """Return one short hash of a whole fingerprint.

    Example:
        >>> digest_of({"core.batch": "0" * 8}) == digest_of({"core.batch": "1" * 8})
        False
    """
    text = "\n".join(f"{name} {code[name]}" for name in sorted(code))
    return hashlib.sha256(text.encode()).hexdigest()[:DIGEST_LENGTH]


def changed_modules(code: Fingerprint, other: Fingerprint) -> list[str]:
    """Return the modules that are not the same in both, by name.

    Example:
        >>> changed_modules({"er": "a", "loss": "b"}, {"er": "c", "loss": "b", "margin": "d"})
        ['er', 'margin']
    """
    return sorted(name for name in code.keys() | other.keys() if code.get(name) != other.get(name))


def program_hash(source: str, *, module: str = "") -> str:
    """Return a short hash of what a whole module does; SyntaxError if it is no program.

    Example:
        >>> program_hash("x = 1") == program_hash("x = 1  # one") != program_hash("x = 2")
        True
    """
    return _module(source, module, None)[0] or "0" * HASH_LENGTH


def imported_modules(source: str, *, module: str = "") -> set[str]:
    """Return the names that a source imports, as modules and as 'module.name'; `module` is its own name."""
    return _imports(ast.parse(source).body, module)


def _by_module(roots: Iterable[str]) -> tuple[set[str], dict[str, set[str]]]:
    """Split roots into whole modules and, by module, chosen definitions."""
    whole: set[str] = set()
    chosen: dict[str, set[str]] = {}
    for root in roots:
        module, separator, name = root.partition(":")
        if separator:
            chosen.setdefault(module, set()).add(name)
        else:
            whole.add(module)
    return whole, chosen


def _packages(name: str) -> Iterator[str]:
    """Yield the packages that hold a module."""
    while name := name.rpartition(".")[0]:
        yield name


@lru_cache(maxsize=1024)
def _module(source: str, name: str, chosen: tuple[str, ...] | None) -> tuple[str | None, frozenset[str]]:
    """Return a module's hash, of chosen definitions only if any are, and what it imports; no hash if it is empty."""
    body = ast.parse(source).body
    if chosen is not None:
        body = _used(body, chosen, name)
    words = sorted({line for node in body if isinstance(node, ast.Import | ast.ImportFrom) for line in _lines(node)})
    rest = [node for node in body if not isinstance(node, ast.Import | ast.ImportFrom) and not _says_nothing(node)]
    if not words and not rest:
        return None, frozenset()
    _write(rest, words, in_class=False)
    digest = hashlib.sha256("\n".join(words).encode("utf-8", "surrogatepass")).hexdigest()[:HASH_LENGTH]
    return digest, frozenset(_imports(body, name))


def _lines(node: ast.Import | ast.ImportFrom) -> Iterator[str]:
    """Yield a line for each name that an import makes."""
    if isinstance(node, ast.Import):
        yield from (f"import {alias.name} as {alias.asname}" for alias in node.names)
    elif node.module != "__future__":  # which only changes how annotations are kept
        yield from (f"from {node.level} {node.module} import {alias.name} as {alias.asname}" for alias in node.names)


def _imports(body: list[ast.stmt], module: str) -> set[str]:
    found: set[str] = set()
    waiting: list[ast.AST] = list(body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                package = module.rsplit(".", node.level)[0] if module.count(".") >= node.level else ""
                base = f"{package}.{base}".strip(".")
            found |= {base, *(f"{base}.{alias.name}" for alias in node.names)}
        elif _is_for_types(node):
            waiting += node.orelse  # type: ignore[attr-defined]
        else:
            waiting += ast.iter_child_nodes(node)
    return found


def _is_for_types(node: ast.AST) -> bool:
    """Return whether a statement is `if TYPE_CHECKING:`, whose body never runs."""
    if not isinstance(node, ast.If):
        return False
    test = node.test
    return (isinstance(test, ast.Name) and test.id == "TYPE_CHECKING") or (
        isinstance(test, ast.Attribute) and test.attr == "TYPE_CHECKING"
    )


def _used(body: list[ast.stmt], chosen: tuple[str, ...], module: str) -> list[ast.stmt]:
    """Return the statements of a module that chosen definitions use, directly or through others, in their order."""
    makers: dict[str, list[int]] = {}  # by name, the statements that make it
    for i, node in enumerate(body):
        for name in _made(node):
            makers.setdefault(name, []).append(i)
    if missing := [name for name in chosen if name not in makers]:
        raise LookupError(f"no {', '.join(missing)} in {module}: name definitions that are there")
    # A statement that makes no name (a loop, a call) may do anything, so it always counts.
    kept = {i for i, node in enumerate(body) if not _made(node) and not _says_nothing(node)}
    waiting = [*chosen, *(name for i in kept for name in _names(body[i]))]
    seen: set[str] = set()
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        for i in makers.get(name, []):
            if i not in kept:
                kept.add(i)
                waiting += _names(body[i])
    return [_only(node, seen) for i, node in enumerate(body) if i in kept]


def _made(node: ast.stmt) -> list[str]:
    """Return the names that a statement of a module makes."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return [node.name]
    if isinstance(node, ast.Import | ast.ImportFrom):
        return [alias.asname or alias.name.partition(".")[0] for alias in node.names]
    if isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign):
        return [each.id for each in ast.walk(node) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)]
    return []


def _names(node: ast.AST) -> list[str]:
    """Return the names that a statement uses when it runs; annotations of functions are not among them."""
    found: list[str] = []
    waiting = [node]
    while waiting:
        each = waiting.pop()
        if isinstance(each, ast.Name):
            found.append(each.id)
        annotations = _annotations(each)
        waiting += [child for child in ast.iter_child_nodes(each) if child not in annotations]
    return found


def _annotations(node: ast.AST) -> list[ast.AST]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return [] if node.returns is None else [node.returns]
    if isinstance(node, ast.arg):
        return [] if node.annotation is None else [node.annotation]
    return []


def _only(node: ast.stmt, used: set[str]) -> ast.stmt:
    """Return an import without the names that are not used; any other statement as it is."""
    if isinstance(node, ast.ImportFrom):
        names = [alias for alias in node.names if (alias.asname or alias.name) in used]
        return ast.ImportFrom(module=node.module, names=names, level=node.level)
    return node


def _says_nothing(node: ast.AST) -> bool:
    """Return whether a statement does nothing: a docstring, any bare string or `...`, `pass`, imports for types."""
    if _is_for_types(node):
        return not node.orelse  # type: ignore[attr-defined]
    return isinstance(node, ast.Pass) or (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and (isinstance(node.value.value, str) or node.value.value is ...)
    )


_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


def _write(value: object, words: list[str], *, in_class: bool) -> None:
    """Append `value`, a node or a list of nodes, to `words`, the same for every version of Python.

    `ast.dump` differs from version to version in what it leaves out.

    Args:
        in_class: whether it stands in the body of a class, where annotations make fields and so count.
    """
    if isinstance(value, list):
        words.append("[")
        for each in value:
            if not _says_nothing(each):
                _write(each, words, in_class=in_class)
        words.append("]")
        return
    if not isinstance(value, ast.AST):
        words.append(f"{type(value).__name__} {value!r}")
        return
    if isinstance(value, ast.Constant):
        words.append(f"constant {type(value.value).__name__} {value.value!r}")
        return
    if isinstance(value, ast.Name):
        words.append(f"name {value.id}")
        return
    if _is_for_types(value):
        _write(value.orelse, words, in_class=in_class)  # type: ignore[attr-defined]
        return
    if isinstance(value, ast.AnnAssign) and not in_class:
        if value.value is not None:
            value = ast.Assign(targets=[value.target], value=value.value)
        else:
            return
    words.append(type(value).__name__)
    if isinstance(value, ast.ClassDef):
        in_class = True
    elif isinstance(value, _FUNCTIONS):
        in_class = False
    for name in value._fields:
        if name in _LEFT_OUT or (name == "annotation" and isinstance(value, ast.arg)):
            continue
        part = getattr(value, name, None)
        if part is None or part == []:
            continue
        words.append(name)
        _write(part, words, in_class=in_class)


# `ctx` (a name is read or written) follows from the place of the name; the others are annotations and comments.
_LEFT_OUT = frozenset({"ctx", "returns", "type_comment", "type_ignores", "type_params", "kind"})
