"""`holdfast list`: what can be named, read from the source files without importing them."""

from __future__ import annotations

import ast
import tomllib
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from holdfast.cli import completion
from holdfast.cli.options import Json, out, print_json
from holdfast.parts import FOLDERS, check_name

PROBES = "holdfast.experiments.probes"
OF_PROBES = ("Probe", "Logger")  # what the one public class of a probe's file is derived from; others stand beside it


def list_command(
    kind: Annotated[
        str,
        typer.Argument(
            help="One of methods, wrappers, streams, selections, retrievals, backbones, probes, recipes.",
            autocompletion=completion.kinds,
        ),
    ],
    as_json: Json = False,
) -> None:
    """List methods, wrappers, streams, selections, retrievals, backbones, probes or recipes."""
    check_name(kind, completion.KINDS, among="what can be listed")
    found = rows_of_recipes() if kind == "recipes" else described(kind)
    if as_json:
        print_json(found)
        return
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    for name, text in found.items():
        table.add_row(name, text)
    out.print(table)


def described(kind: str) -> dict[str, str]:
    """Return the first paragraph of the docstring of everything of a kind, by name."""
    package = PROBES if kind == "probes" else {str(name): folder for name, folder in FOLDERS.items()}[kind]
    spec = find_spec(package)
    folders = [] if spec is None else list(spec.submodule_search_locations or [])
    files = sorted(path for folder in folders for path in Path(folder).glob("*.py") if path.name[0] != "_")
    return {path.stem: _first_paragraph(path) for path in files}


def rows_of_recipes() -> dict[str, str]:
    """Return the names of the rows of each recipe of the package."""
    contents = {name: tomllib.loads(path.read_text()) for name, path in completion.recipe_files().items()}
    return {name: ", ".join(_rows(content, contents)) for name, content in contents.items()}


def _rows(content: dict[str, Any], contents: dict[str, dict[str, Any]]) -> dict[str, Any]:
    base = contents[content["like"]] if "like" in content else {}
    return {**base.get("rows", {}), **content.get("rows", {})}


def _first_paragraph(path: Path) -> str:
    nodes = ast.parse(path.read_bytes()).body
    classes = [node for node in nodes if isinstance(node, ast.ClassDef) and node.name[0] != "_"]
    if len(classes) > 1:
        classes = [node for node in classes if any(ast.unparse(base).endswith(OF_PROBES) for base in node.bases)]
    text = ast.get_docstring(classes[0]) if classes else None
    return " ".join((text or "").split("\n\n")[0].split())
