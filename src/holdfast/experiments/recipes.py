"""Recipes: TOML files that say what to run, holding only what differs from the defaults in code."""

from __future__ import annotations

import dataclasses
import json
import tomllib
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, get_args

from pydantic import ValidationError

from holdfast.core.options import readable
from holdfast.experiments.experiment import Experiment
from holdfast.methods._base import Method, ReplayMethod
from holdfast.parts import AROUND, Unknown, check_name, find, is_ours, names
from holdfast.settings import PARTS, Part, check_setting, options_of

Size = Literal["cpu", "full"]

_FIELDS = Experiment.model_fields.keys() - {"foreign_code"}  # which follows from the parts
_OF_ONE_ROW = {"method", "stream", "seed", "benchmark", "row"}  # fields that say nothing about other rows


@dataclass(frozen=True)
class Recipe:
    """Recipe of a table: settings shared by all rows, and the changes of each row.

    Attributes:
        common: fields of Experiment; `method` among them is that of all rows.
        rows: by the name of the row, the fields that it changes and, beside them, options of its method.
        compare: the rows that `holdfast compare` runs if none are named.
        seeds: those that a whole table takes.
        cpu: what a size that one machine can run changes, as a row does; `seeds` and `rows` of its own may be in it. Or
            `recipe`, the name of another that stands for this one in that size.
        shared: options that every row has whose method takes them, unless the row says otherwise. In a size it also
            holds what that size changes, for methods without a row of their own.
    """

    name: str
    common: dict[str, Any]
    rows: dict[str, dict[str, Any]]
    compare: tuple[str, ...]
    seeds: tuple[int, ...] = (1234,)
    cpu: dict[str, Any] = field(default_factory=dict)
    shared: dict[str, Any] = field(default_factory=dict)

    def sized(self, size: Size) -> Recipe:
        """Return the recipe in a size: `full` as it stands, `cpu` with what its table `cpu` changes in every row.

        An option of methods is changed in the rows whose method takes it; what `cpu.rows` says of one row goes last.
        """
        check_name(size, list(get_args(Size)), among="the sizes of a table")
        if size == "full" or not self.cpu:
            return self
        if "recipe" in self.cpu:
            return self._stand_in(size)
        changes = dict(self.cpu)
        seeds, own = changes.pop("seeds", self.seeds), changes.pop("rows", {})
        for row in own:
            check_name(row, list(self.rows), among=f"the rows of '{self.name}'")
        rows: dict[str, dict[str, Any]] = {}
        taken: set[str] = set()
        for row, fields in self.rows.items():
            method = fields.get("method", self.common.get("method", row))
            changed = _taken(method, changes)
            taken |= changed.keys()
            rows[row] = {**fields, **changed, **own.get(row, {})}
        if missed := changes.keys() - taken:
            raise Unknown(f"[cpu] of '{self.name}' changes {', '.join(sorted(missed))}, which no row of it has")
        return replace(self, rows=rows, seeds=tuple(seeds), cpu={}, shared={**self.shared, **changes})

    def _stand_in(self, size: Size) -> Recipe:
        """Return the recipe that [cpu] names, with the seeds that it says."""
        if beside := self.cpu.keys() - {"recipe", "seeds"}:
            raise Unknown(f"[cpu] of '{self.name}' names a recipe, so {', '.join(sorted(beside))} can only stand there")
        other = load_recipe(str(self.cpu["recipe"]))
        if "recipe" in other.cpu:
            raise Unknown(
                f"[cpu] of '{self.name}' names '{other.name}', for which another stands itself: name that one"
            )
        sized = other.sized(size)
        return replace(sized, seeds=tuple(self.cpu.get("seeds", sized.seeds)))

    def experiment(self, row: str, *, seed: int | None = None, changes: dict[str, Any] | None = None) -> Experiment:
        """Return the experiment of a row; `row` may also be a method without a row, here or in another package.

        A method without a row takes what the rows share, see `shared_with`, so that it can be held against them.

        Args:
            changes: fields by name, and options as 'method.replay_size' or 'stream.n_tasks'.
        """
        if row not in self.rows and ":" not in row and not is_ours("methods", row):
            check_name(row, sorted({*self.rows, *names("methods")}), among=f"the methods of '{self.name}'")
        settings = {"benchmark": self.name, "row": row.rpartition(":")[2], "method": row, **self.common}
        if row not in self.rows:
            settings["method"] = row
        fields = self._fields_of(row)
        for name in sorted(fields, key=lambda name: name not in _FIELDS):  # the method before its options
            settings = _changed(settings, name if name in _FIELDS else f"method.{name}", fields[name])
        for name, value in (changes or {}).items():
            settings = _changed(settings, name, value)
        if seed is not None:
            settings["seed"] = seed
        try:
            return Experiment.model_validate(settings)
        except ValidationError as error:
            for problem in error.errors():
                if isinstance(cause := problem.get("ctx", {}).get("error"), Unknown):
                    raise cause from None
            raise Unknown(f"in '{self.name}': {readable(error)}") from error

    def _fields_of(self, row: str) -> dict[str, Any]:
        """Return the fields and options of a row, of a row with wrappers around it, or of a method without a row."""
        if row in self.rows:
            return self._of_row(row)
        wrapped, plus, wrappers = row.partition(AROUND)
        if wrapped not in self.rows:
            return self.shared_with(row)
        fields = self._of_row(wrapped)
        return {**fields, "method": self._method_of(wrapped) + plus + wrappers}

    def shared_with(self, method: str) -> dict[str, Any]:
        """Return the fields and options that a method without a row takes from the recipe, where it has them.

        `shared` goes before the options of a method that all rows have, and these before what the rows agree on.
        """
        return _taken(method, {**self._agreed(method), **self._options_of_all, **self.shared})

    @property
    def _options_of_all(self) -> dict[str, Any]:
        """The options of the method that all rows have; none where each row has its own."""
        return Part.model_validate(self.common["method"]).options if "method" in self.common else {}

    def _method_of(self, row: str) -> str:
        return Part.model_validate(self.rows[row].get("method", self.common.get("method", row))).name

    def _is_joint(self, row: str) -> bool:
        stream = self.rows[row].get("stream", self.common.get("stream"))
        return stream is not None and Part.model_validate(stream).name == "joint"

    def _of_row(self, row: str) -> dict[str, Any]:
        """Return the settings of a row, and the shared options that it leaves open."""
        said = self.rows[row]
        known = said if "method" in said else {**self._options_of_all, **said}
        unsaid = {name: self.shared[name] for name in self.shared.keys() - known.keys() - _FIELDS}
        return {**_taken(self._method_of(row), unsaid), **said}

    def _agreed(self, method: str) -> dict[str, Any]:
        """Return the common settings of all rows with a memory for a method with a memory, else of the others.

        Rows agree on a field, or on an option of all methods of the kind, if each states it. More than half must state
        the same; on an option also if all have the same. Joint training has no say.
        """
        replays = _replays(method)
        alike = [row for row in self.rows if not self._is_joint(row) and _replays(self._method_of(row)) is replays]
        if not alike:
            return {}
        options = {each.name for each in dataclasses.fields(ReplayMethod if replays else Method)} - _FIELDS
        own = options_of("methods", method)
        agreed = {}
        for name in sorted(options | (_FIELDS - _OF_ONE_ROW)):
            said = [self._of_row(row) for row in alike]
            values = [each[name] for each in said if name in each]
            if name in options and len(values) < len(said):
                values = [options_of("methods", self._method_of(row)).get(name) for row in alike]
                values = [each.get(name, default) for each, default in zip(said, values, strict=True)]
                is_agreed = all(value == values[0] != own.get(name) for value in values)
            else:
                is_agreed = len(values) == len(said) and any(2 * values.count(value) > len(values) for value in values)
            if is_agreed:
                agreed[name] = max(values, key=values.count)
        return agreed


def recipe_names() -> list[str]:
    """Return the names of the recipes of the package."""
    return sorted(path.stem for path in _folder().glob("*.toml"))


def load_recipe(name: str) -> Recipe:
    """Return the recipe of a file, of a name that comes with the package, or of a stream's own name.

    A stream of another package is named as 'package.module:Class'.

    Example:
        >>> load_recipe("permuted_digits").experiment("er", seed=2).memory
        500
    """
    if ":" in name and not name.endswith(".toml"):
        find("streams", name)
        return Recipe(name.replace(":", "."), {"stream": name}, {}, ("finetune", "er"))
    path = Path(name)
    if path.suffix != ".toml":
        path = _folder() / f"{name}.toml"
    if not path.exists():
        if Path(name).suffix == ".toml":
            raise Unknown(f"no recipe at {name}: name a file, or one of {', '.join(recipe_names())}")
        check_name(name, sorted({*recipe_names(), *names("streams")}), among="recipes and streams")
        return Recipe(name, {"stream": name}, {}, ("finetune", "er"))
    content = _content(path)
    rows = content.pop("rows", {})
    compare = content.pop("compare", list(rows))
    seeds, cpu, shared = content.pop("seeds", [1234]), content.pop("cpu", {}), content.pop("shared", {})
    if misplaced := shared.keys() & _FIELDS:
        raise Unknown(f"{path.name}: [shared] holds options of methods: put {', '.join(sorted(misplaced))} at the top")
    for name_of, listed in (("seeds", seeds), ("seeds of [cpu]", cpu.get("seeds", seeds))):
        if not isinstance(listed, list) or not listed or not all(isinstance(seed, int) for seed in listed):
            raise Unknown(f"{path.name}: {name_of} = {listed!r}: give a list of whole numbers, as [1234, 1235]")
    for setting in content:
        check_name(setting, sorted(_FIELDS), among=f"the settings of {path.name}")
    recipe = Recipe(path.stem, content, rows, tuple(compare), tuple(seeds), cpu, shared)
    known = {option for method in {*names("methods"), *map(recipe._method_of, rows)} for option in _options(method)}
    for option in shared:
        check_name(option, sorted(known), among=f"the options of methods that [shared] of {path.name} can say")
    return recipe


def _content(path: Path) -> dict[str, Any]:
    """Read a recipe; one that says `like` begins as the recipe beside it of that name, and changes what it says."""
    if path.is_dir():
        raise Unknown(f"{path} is a folder: name a TOML file, or a recipe of 'holdfast list recipes'")
    try:
        content = tomllib.loads(path.read_text())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise Unknown(f"{path} is no TOML: {error}") from error
    if "like" not in content:
        return content
    name = content.pop("like")
    beside = sorted(other.stem for other in path.parent.glob("*.toml"))
    check_name(str(name), beside, among=f"the recipes beside {path.name}")
    base = path.with_name(f"{name}.toml")
    if "like" in tomllib.loads(base.read_text()):
        raise Unknown(f"{path.name} is like '{name}', which is like another itself: name that one")
    return _merged(_content(base), content)


def _merged(base: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """Change a tree of tables: tables in both are merged; a part, which has a name, and all else is replaced."""
    both = {
        name: _merged(old, changes[name])
        for name, old in base.items()
        if isinstance(old, dict) and isinstance(changes.get(name), dict) and "name" not in changes[name]
    }
    return {**base, **changes, **both}


def parse_changes(texts: list[str]) -> dict[str, Any]:
    """Changes written as 'name=value'; a value is read as JSON if it is that, else as text.

    Example:
        >>> parse_changes(["lr=0.1", "method.name=er"])
        {'lr': 0.1, 'method.name': 'er'}
    """
    changes: dict[str, Any] = {}
    for text in texts:
        name, separator, value = text.partition("=")
        if not separator or not name:
            raise Unknown(f"'{text}' changes nothing: write name=value, as in method.replay_size=64")
        try:
            changes[name] = json.loads(value)
        except json.JSONDecodeError:
            changes[name] = value
    return changes


def _replays(method: str) -> bool | None:
    """Return True if the method has a memory, None if there is no such method."""
    try:
        return issubclass(find("methods", method), ReplayMethod)
    except Unknown:
        return None


def _taken(method: Any, changes: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in changes.items() if _takes(method, name)}


def _takes(given: Any, name: str) -> bool:
    """Return True if a row with that method accepts `name`, a field of Experiment or an option of the method."""
    if name in _FIELDS:
        return True
    method = Part.model_validate(given).name
    return (":" in method or is_ours("methods", method)) and name in options_of("methods", method)


def _options(method: str) -> list[str]:
    """Return the options of a method; none where there is no such method."""
    return [] if _replays(method) is None else list(options_of("methods", method))


def _changed(settings: dict[str, Any], name: str, value: Any) -> dict[str, Any]:
    field, _, option = name.partition(".")
    among = "the settings of an experiment"
    check_setting(field, sorted(_FIELDS), among=among, fields=Experiment.model_fields)
    if not option:
        return {**settings, field: value}
    if field not in PARTS:
        raise Unknown(f"'{field}' has no options, so no '{name}': only {', '.join(PARTS)} have")
    default = Experiment.model_fields[field].default
    part = Part.model_validate(settings.get(field, default))
    if option == "name":
        return {**settings, field: Part(name=value)}
    return {**settings, field: part.with_options(**{option: value})}


def _folder() -> Path:
    return Path(__file__).parents[1] / "recipes"
