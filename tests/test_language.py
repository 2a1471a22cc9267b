"""The mechanical rules of the project's language: first words, length of sentences, terms, no names of commits."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCES = sorted((ROOT / "src").rglob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("*.py"))
GENERATED = {ROOT / "docs" / "results.md"}
PAGES = sorted({*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")} - GENERATED)
LONGEST_IN_PAGES = 20
LONGEST_IN_DOCSTRINGS = 25
NEVER_FIRST = {"What", "Whether", "How", "Where", "Of", "Which", "When", "Why", "Who", "Whose"}
GO_ON = {"When"}  # a clause before the sentence: "When the stream ends, …"
# Each is named by the term that takes its place.
NOT_OUR_WORDS = {
    r"throw-?away code": "temporary code",
    r"tasks for tuning": "tuning tasks",
    r"(running|moving) average of (the )?weights": "exponential moving average (EMA) of the weights",
    r"helper functions?": "a name of its own",
    r"\bexemplars?\b": "stored sample",
    r"\bepisodic memory\b": "memory",
    r"\brehearsal buffer\b|\breplay buffer\b": "memory",
    r"\bthrown away\b": "discarded",
}
COMMIT = re.compile(r"\b(?=[0-9a-f]*\d)(?=[0-9a-f]*[a-f])[0-9a-f]{7,40}\b")


def docstrings(path: Path) -> Iterator[tuple[str, str]]:
    """Yield the name and the docstring of the module and of all its classes and functions."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            if text:
                yield getattr(node, "name", path.stem), text


def comments(path: Path) -> Iterator[str]:
    """Yield the comments of a file."""
    for token in tokenize.generate_tokens(io.StringIO(path.read_text()).readline):
        if token.type == tokenize.COMMENT:
            yield token.string


def page_sentences(page: str) -> Iterator[str]:
    """Yield the sentences of a page, without tables, code, generated parts and the targets of links."""
    generated = r"<!-- (?:results/[\w/.]+|headlines|equal terms) -->.*?<!-- end -->"
    page = re.sub(rf"```.*?```|{generated}|<!--.*?-->", "", page, flags=re.DOTALL)
    page = re.sub(r"^(?: {4}|\|).*$", "", page, flags=re.MULTILINE)
    page = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", page)
    yield from _sentences(re.sub(r"`[^`]*`", "code", page), r"\n\s*\n|\n(?=\s*(?:[-*#]+|\d+\.) )")


def docstring_sentences(text: str) -> Iterator[str]:
    """Yield the sentences of a docstring, without equations, tables and examples."""
    lines = [line for line in text.splitlines() if not re.match(r" {4,}.*[=Σ∈]|\s+(?:>>>|\.\.\. )|\s*\|", line)]
    text = re.sub(r"`[^`]*`", "code", "\n".join(lines))
    yield from _sentences(text, r"\n\s*\n|\n(?= {4}\w+(?:, \w+)*: )|\n(?=\s*[-*] )")


def _sentences(text: str, between_blocks: str) -> Iterator[str]:
    for block in re.split(between_blocks, text):
        yield from re.split(r"(?<=[.!?:;])\s+", " ".join(block.split()).lstrip("#-* "))


def n_words(sentence: str) -> int:
    return len(re.findall(r"[\w'’½±-]+", sentence))


def too_long(sentences: Iterator[str], longest: int) -> list[str]:
    return [sentence for sentence in sentences if n_words(sentence) > longest]


def test_docstrings_begin_with_an_imperative_or_a_noun():
    first = [
        f"{path.relative_to(ROOT)}: {name}: {text.splitlines()[0]}"
        for path in SOURCES
        for name, text in docstrings(path)
        if re.split(r"\W", text.strip())[0] in NEVER_FIRST
    ]
    assert first == []


def test_comments_begin_as_sentences_do():
    first = [
        f"{path.relative_to(ROOT)}: {line.strip()}"
        for path in [*SOURCES, *TESTS]
        for line in path.read_text().splitlines()
        if (word := re.match(r"\s*# (\w+)", line)) and word[1] in NEVER_FIRST - GO_ON
    ]
    assert first == []


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_sentences_in_pages_are_short(page):
    assert too_long(page_sentences(page.read_text()), LONGEST_IN_PAGES) == []


def test_sentences_in_docstrings_are_short():
    long = [
        f"{path.relative_to(ROOT)}: {name}: {sentence}"
        for path in SOURCES
        for name, text in docstrings(path)
        for sentence in too_long(docstring_sentences(text), LONGEST_IN_DOCSTRINGS)
    ]
    assert long == []


def test_pages_and_docstrings_use_the_standard_terms():
    texts = [(path, path.read_text()) for path in PAGES]
    texts += [(path, text) for path in SOURCES for _, text in docstrings(path)]
    texts += [(path, comment) for path in SOURCES for comment in comments(path)]
    found = [
        f"{path.relative_to(ROOT)}: '{match[0]}': say '{instead}'"
        for path, text in texts
        for words, instead in NOT_OUR_WORDS.items()
        for match in re.finditer(words, re.sub(r'"[^"]*"', "", " ".join(text.split())), re.IGNORECASE)  # no titles
    ]
    assert found == []


def test_no_page_docstring_or_comment_names_a_commit():
    texts = [(path, re.sub(r"\]\([^)]*\)|`[^`]*`", "", path.read_text())) for path in PAGES]
    texts += [(path, text) for path in SOURCES for _, text in docstrings(path)]
    texts += [(path, comment) for path in SOURCES for comment in comments(path)]
    assert [f"{path.relative_to(ROOT)}: {found[0]}" for path, text in texts if (found := COMMIT.search(text))] == []


def test_sentences_are_counted_without_code_tables_and_links():
    page = "# Title\n\nOne two [three](four five). `six seven`\n\n| a b c |\n\n    code here\n\n- Eight: nine ten.\n"
    assert [n_words(each) for each in page_sentences(page)] == [1, 3, 1, 1, 2]


def test_equations_of_a_docstring_are_no_sentences():
    text = "Return the sum.\n\n    a + b = c\n\n    >>> f(1)\n\nArgs:\n    x: two words.\n    y: one.\n"
    assert [each for each in docstring_sentences(text) if each] == [
        "Return the sum.",
        "Args:",
        "x:",
        "two words.",
        "y:",
        "one.",
    ]
