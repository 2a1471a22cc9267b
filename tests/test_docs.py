"""The pages: links lead somewhere, code in tutorials runs, and commands have the options that pages give them."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import urllib.parse
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

import holdfast
import site_hooks
from holdfast import parts
from holdfast.cli import COMMANDS, app, loaded

ROOT = Path(__file__).parents[1]
PAGES = sorted({*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").glob("*.md")})
TUTORIALS = ["tutorial_practitioners.md", "tutorial_researchers.md", "ecosystem.md", "practice.md"]
by_name = {"ids": lambda path: str(path.relative_to(ROOT))}


def links(page: str) -> list[str]:
    """Return the targets of links and pictures, without code."""
    page = re.sub(r"```.*?```|`[^`\n]*`|<!--.*?-->", "", page, flags=re.DOTALL)
    return re.findall(r"\]\(([^()\s]+)\)", page)


def anchors(page: str) -> set[str]:
    """Return the anchors that the headings of a page make."""
    headings = re.findall(r"^#+ +(.+)$", re.sub(r"```.*?```", "", page, flags=re.DOTALL), flags=re.MULTILINE)
    words = [re.sub(r"[^\w\s-]", "", re.sub(r"\]\([^)]*\)", "", heading)).strip().lower() for heading in headings]
    return {re.sub(r"\s", "-", heading) for heading in words}


@cache
def content(path: Path) -> str:
    """Return the text of a file, read once."""
    return path.read_text()


def has(target: Path, anchor: str) -> bool:
    """Tell whether a page has the heading, or a file of results the run of a digest."""
    return anchor in (anchors(content(target)) if target.suffix == ".md" else content(target))


def code_blocks(page: str) -> list[tuple[str, str]]:
    """Return the language and the text of each fenced block, in their order."""
    return re.findall(r"^```(\w+)\n(.*?)^```", page, flags=re.DOTALL | re.MULTILINE)


def commands(page: str) -> list[list[str]]:
    """Return the words of every command line of holdfast in blocks of code."""
    page = re.sub(r"\\\n\s*", "", page)
    lines = re.findall(r"^(?: {4,})?holdfast +(.+?)(?:\s+#.*)?$", page, flags=re.MULTILINE)
    return [shlex.split(line) for line in lines]


@pytest.mark.parametrize("page", PAGES, **by_name)
def test_links_lead_to_files_and_headings_that_exist(page):
    lost = []
    for link in links(page.read_text()):
        if urllib.parse.urlsplit(link).scheme:
            continue
        name, _, anchor = link.partition("#")
        target = page if not name else page.parent / name
        if not target.exists() or (anchor and not has(target, anchor)):
            lost.append(link)
    assert lost == []


@pytest.mark.parametrize("page", PAGES, **by_name)
def test_commands_of_pages_have_these_arguments_and_options(page):
    for name, *words in commands(page.read_text()):
        assert name in COMMANDS, f"no command {name}"
        if any(re.fullmatch("[A-Z]+", word) for word in words) or "..." in words:
            continue  # names to be filled in
        command = loaded(name)
        group = command.commands.get(words[0]) if words and hasattr(command, "commands") else None
        command, words = (group, words[1:]) if group else (command, words)
        command.make_context(name, list(words), resilient_parsing="--help" in words)


@pytest.mark.filterwarnings("ignore::holdfast.guard.GuardWarning")  # the page for production brings one about
@pytest.mark.filterwarnings("ignore::holdfast.core.input_watch.InputWarning")  # toy columns are often constant
@pytest.mark.parametrize("name", TUTORIALS)
def test_the_code_and_the_commands_of_a_tutorial_run(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(parts, "last_places", [str(tmp_path)])
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)
    scope: dict[str, object] = {}
    n_run = 0
    with torch.random.fork_rng(devices=[]):
        for language, text in code_blocks((ROOT / "docs" / name).read_text()):
            if file := re.match(r"# (\w+\.\w+)\n", text):
                (tmp_path / file[1]).write_text(text)
            elif language == "python":
                exec(compile(text, name, "exec"), scope)
            elif language == "sh":
                for words in commands(text):
                    done = CliRunner().invoke(app, words)
                    assert done.exit_code == 0, f"{words}: {done.output} {done.exception!r}"
            n_run += 1
    assert n_run >= 5
    for module in set(sys.modules) - before:
        if (tmp_path / f"{module}.py").exists():
            del sys.modules[module]


@pytest.mark.filterwarnings("ignore::holdfast.guard.GuardWarning")  # the page for production brings one about
@pytest.mark.filterwarnings("ignore::holdfast.core.input_watch.InputWarning")
def test_bad_input_gets_the_errors_that_the_page_for_production_quotes(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "damaged.holdfast").write_bytes(b"cut")
    page = (ROOT / "docs" / "practice.md").read_text()
    before, _, rows = page.partition("| bad input |")
    scope: dict[str, object] = {}
    for text in [text for language, text in code_blocks(before) if language == "python"]:
        exec(compile(text, "practice.md", "exec"), scope)
    quoted = re.findall(r"^\| `(.+)` \| `(.+)` \|$", rows.partition("\n\n")[0], flags=re.MULTILINE)
    assert len(quoted) > 10
    scores = scope["learner"].scores(scope["x"])
    for call, message in quoted:
        with pytest.raises(Exception, match=re.escape(message) + "$") as caught:
            eval(call, scope)
        assert isinstance(caught.value, ValueError | RuntimeError | LookupError), call
    assert torch.equal(scope["learner"].scores(scope["x"]), scores)


def test_links_and_commands_are_found_in_a_page():
    page = "[a](b.md#c) `[d](e)`\n\n## A `b` c, d\n\n    holdfast run x \\\n        --seed 1   # why\n"
    assert links(page) == ["b.md#c"]
    assert anchors(page) == {"a-b-c-d"}
    assert commands(page) == [["run", "x", "--seed", "1"]]


def test_the_design_draws_the_whole_house_in_few_lines():
    page = (ROOT / "docs" / "design.md").read_text()
    source = ROOT / "src" / "holdfast"
    rooms = {f"{path.name}/" for path in source.iterdir() if (path / "__init__.py").exists()} | {"recipes/"}
    modules = {path.name for path in source.glob("*.py")} - {"__main__.py"}
    assert {name for name in rooms | modules if not re.search(rf"\b{re.escape(name)}", page)} == set()
    assert len(page.splitlines()) < 80


def test_the_citation_and_the_package_have_one_version():
    citation = re.findall(r"^version: (\S+)$", (ROOT / "CITATION.cff").read_text(), flags=re.MULTILINE)
    package = re.findall(r'^version = "(\S+)"$', (ROOT / "pyproject.toml").read_text(), flags=re.MULTILINE)
    assert citation == package == [holdfast.__version__]
    assert f"\n## {package[0]}\n" in (ROOT / "CHANGELOG.md").read_text()


def test_a_page_of_the_site_has_no_marks_of_numbers_and_no_links_out_of_its_folder():
    page = "It has <!--= er A_T -->95.1<!--/--> % ([run](../results/x.json)), see [here](faq.md).\n- one\n- two\n"
    assert site_hooks.as_markdown(page) == "It has 95.1 % (run), see [here](faq.md).\n\n- one\n- two\n"


def test_the_reference_has_every_command_and_option():
    page = site_hooks.command_line()
    for name in COMMANDS:
        command = loaded(name)
        for inner in getattr(command, "commands", {}):
            assert f"\n## holdfast {name} {inner}\n" in page
        part = page.partition(f"\n## holdfast {name}\n")[2].partition("\n## ")[0]
        options = {option for parameter in command.params for option in parameter.opts if option.startswith("--")}
        assert {option for option in options - {"--help"} if option not in part} == set()


@pytest.mark.skipif(find_spec("mkdocs") is None, reason="mkdocs is not installed: make docs installs it")
def test_the_site_builds_and_loads_nothing_from_elsewhere(tmp_path):
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"})
    pages = {path.name: path.read_text() for path in tmp_path.glob("*.html")}
    assert {"index.html", "api.html", "command_line.html", "faq.html"} <= pages.keys()
    assert "holdfast.Learner.observe" in pages["api.html"]
    loaded_from = r"""<(?:script|link rel="stylesheet"|img)[^>]*(?:src|href)="https?:"""
    assert [name for name, page in pages.items() if re.search(loaded_from, page)] == []


def test_the_site_has_the_colours_of_the_system_until_a_reader_switches():
    text = (ROOT / "mkdocs.yml").read_text()
    media = re.findall(r'- media: "(.*)"\n', text)
    assert media == ["(prefers-color-scheme)", "(prefers-color-scheme: light)", "(prefers-color-scheme: dark)"]
    assert text.count("toggle: ") == 3, "without a toggle, the colours of the first visit stay"
