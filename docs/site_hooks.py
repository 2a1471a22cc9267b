"""Hooks of MkDocs: the command-line reference, and pages that read the same on the site as in the repository."""

from __future__ import annotations

import re
from typing import Any

import spans
from holdfast.cli import COMMANDS, loaded

COMMAND_LINE = "command_line.md"


def on_files(files: Any, config: Any) -> Any:
    """Add the page that is made from the commands."""
    from mkdocs.structure.files import File

    files.append(File.generated(config, COMMAND_LINE, content=command_line()))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Return a page as Python's Markdown wants it."""
    return as_markdown(markdown)


def as_markdown(page: str) -> str:
    """Return a page without marks of generated numbers, links out of docs/, and lists that touch a paragraph.

    Example:
        >>> as_markdown("See [it](../src).\\n- one\\n- two")
        'See it.\\n\\n- one\\n- two'
    """
    page = spans.SPAN.sub(lambda span: span["text"], page)
    page = re.sub(r"<!--.*?-->\n?", "", page, flags=re.DOTALL)
    page = re.sub(r"(?<!!)\[([^\]]*)\]\(\.\./[^)]*\)", r"\1", page)
    return re.sub(r"^(?![-|#> ]|\d+\.)(.+)\n(?=- )", r"\1\n\n", page, flags=re.MULTILINE)


def command_line() -> str:
    """Return the page with every command, its arguments and its options."""
    parts = ["# Command line", "Made from the commands themselves. [Commands](commands.md) has them by example."]
    for name in COMMANDS:
        command = loaded(name)
        parts += _described(f"holdfast {name}", command)
        for below, inner in getattr(command, "commands", {}).items():
            parts += _described(f"holdfast {name} {below}", inner)
    return "\n\n".join(parts) + "\n"


def _described(name: str, command: Any) -> list[str]:
    parts = [f"## {name}", _one_line(command.help)]
    rows = [row for parameter in command.params if (row := _row(parameter))]
    if rows:
        parts.append("\n".join(["| argument or option | default | meaning |", "|---|---|---|", *rows]))
    return parts


def _row(parameter: Any) -> str:
    if getattr(parameter, "hidden", False) or "--help" in parameter.opts:
        return ""
    is_argument = parameter.param_type_name == "argument"
    names = parameter.metavar or parameter.name.upper() if is_argument else ", ".join(parameter.opts)
    default = parameter.default
    shown = "" if default in (None, False, "", ()) or callable(default) else f"`{default}`"
    shown = "required" if parameter.required else shown
    return f"| `{names}` | {shown} | {_one_line(getattr(parameter, 'help', '') or '')} |"


def _one_line(text: str | None) -> str:
    return " ".join((text or "").split()).replace("|", "\\|").replace("[", "\\[")
