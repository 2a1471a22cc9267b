"""The README's example runs as it stands."""

import re
from pathlib import Path

import pytest
import torch

from holdfast.parts import names

ROOT = Path(__file__).parents[1]
README, METHODS, COMMANDS = ROOT / "README.md", ROOT / "docs" / "methods.md", ROOT / "docs" / "commands.md"


def test_the_readmes_example_runs_and_has_learned_its_stream():
    (example,) = re.findall(r"```python\n(.*?)```", README.read_text(), flags=re.DOTALL)
    torch.manual_seed(0)
    classes = [torch.randint(0, 2, (10,)) + 2 * (step // 100) for step in range(300)]
    batches = [(torch.randn(10, 20) + 3 * torch.nn.functional.one_hot(y, 20), y) for y in classes]
    scope: dict[str, object] = {"batches": batches}
    exec(compile(example, "README.md", "exec"), scope)
    assert (scope["predicted"] == batches[-1][1]).float().mean() >= 0.9


def test_the_picture_of_the_readme_is_there_and_small():
    (picture,) = re.findall(r"!\[[^]]+\]\(([^)]+)\)", README.read_text())
    assert (ROOT / picture).stat().st_size <= 200_000


@pytest.mark.parametrize("kind", ["methods", "selections", "retrievals", "streams", "backbones"])
def test_the_page_on_commands_names_all_there_is(kind):
    (row,) = re.findall(rf"^\| {kind} \|(.*)\|$", COMMANDS.read_text(), flags=re.MULTILINE)
    assert [name for name in names(kind) if f"`{name}`" not in row] == []


@pytest.mark.parametrize("kind", ["methods", "selections"])
def test_the_docs_have_a_row_for_every_method_and_selection(kind):
    rows = re.findall(r"^\| `(\w+)`", METHODS.read_text(), flags=re.MULTILINE)
    assert set(names(kind)) <= set(rows)


def test_every_method_says_what_it_was_checked_against():
    statuses = {}
    for table in re.findall(
        r"^\| method \| idea \|.*?status \|\n\|[-|]+\n(.*?)\n\n", METHODS.read_text(), flags=re.DOTALL | re.MULTILINE
    ):
        rows = [line.split(" | ") for line in table.splitlines()]
        statuses |= {re.findall(r"`(\w+)`", cells[0])[0]: cells[-1].strip(" |").split(";")[0] for cells in rows}
    assert set(names("methods")) <= set(statuses)
    assert set(statuses.values()) == {"code", "paper", "notes", "memory", "ours"}
    assert statuses["soft_gem"] == "memory"
