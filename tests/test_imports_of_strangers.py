"""No file that is merely there is run: neither code in the current folder nor a class that a stored file names."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast import parts
from holdfast.experiments.experiment import Experiment
from tests.support import made_up_results

SOURCE = Path(parts.__file__).parents[1]
SMALL = ["--set", "stream.n_tasks=2", "--set", "stream.samples_per_task=20"]
PARTS = ["method", "backbone", "selection", "retrieval", "stream"]

# The command prints its warnings.
pytestmark = pytest.mark.filterwarnings("always::UserWarning")


@pytest.fixture
def mark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A file that appears when evil_mod is imported, which any import statement would find."""
    mark = tmp_path / "imported"
    (tmp_path / "code").mkdir()
    (tmp_path / "code/evil_mod.py").write_text(f"open({str(mark)!r}, 'w').close()\nclass Evil: replay_size = 64\n")
    monkeypatch.syspath_prepend(str(tmp_path / "code"))
    yield mark
    sys.modules.pop("evil_mod", None)


def store_evil(folder: Path) -> None:
    """Results whose experiments name evil_mod:Evil as each of their parts, in folders where they are looked for."""
    experiment = Experiment.model_validate({"stream": "permuted_digits"})
    for i, part in enumerate(PARTS):
        content = json.loads(made_up_results.result(experiment).model_dump_json())
        content["experiment"][part] = {"name": "evil_mod:Evil", "strength": 1}
        place = folder / "permuted_digits" / "er" / f"{i}-0123456789"
        place.mkdir(parents=True)
        (place / "result.json").write_text(json.dumps(content))
        (place / "experiment.json").write_text(json.dumps(content["experiment"]))


def store_finished(folder: Path) -> None:
    changes = {"stream__n_tasks": 2, "stream__samples_per_task": 20}
    made_up_results.store(folder, "permuted_digits", "er", {1: 0.8}, **changes)


COMMANDS = [
    ["show", "runs"],
    ["show", "runs", "--json"],
    ["show", "runs", "--markdown"],
    *(["show", f"runs/permuted_digits/er/{i}-0123456789"] for i in range(len(PARTS))),
    ["sweep", "permuted_digits", "--methods", "er", "--seeds", "1", *SMALL],
    ["compare", "permuted_digits", "--methods", "er", "--seeds", "1", *SMALL],
    ["run", "permuted_digits", "--method", "er", "--seed", "1", *SMALL],
    ["paper", "all", "--from", "runs", "--format", "markdown"],
    ["paper", "--verdicts", "--from", "runs"],
    ["paper", "figure-5", "--from", "runs", "--format", "csv"],
    ["report", "runs"],
    *(["remake", f"runs/permuted_digits/er/{i}-0123456789/result.json"] for i in range(len(PARTS))),
    ["list", "methods"],
    ["list", "recipes"],
]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_no_command_imports_what_a_stored_result_names(command, tmp_path, mark, holdfast):
    store_evil(tmp_path / "runs")
    store_finished(tmp_path / "runs")
    done = holdfast(*command)
    assert not mark.exists(), f"evil_mod was imported by {' '.join(command)}"
    assert "Traceback" not in done.stderr
    assert done.returncode in (0, 1, 2)


def test_what_a_user_types_is_imported(mark, holdfast):
    holdfast("run", "permuted_digits", "--method", "evil_mod:Evil", *SMALL)
    assert mark.exists()


# The current folder

SHADOWS = ["torch", "numpy", "sklearn", "rich", "typer", "ray", "multiprocessing", "pickle", "json", "evil_mod"]

MINE = """
from dataclasses import dataclass
from holdfast.methods.finetune import Finetune

@dataclass(kw_only=True, eq=False)
class Mine(Finetune):
    'My own.'

    def observe(self, batch):
        import beside_mine  # later, in whichever process learns
        return super().observe(batch)
"""


def folder_of_traps(folder: Path) -> Path:
    """Files named as packages and modules; whichever is run leaves its name in the file `ran`."""
    ran = folder / "ran"
    for name in SHADOWS:
        (folder / f"{name}.py").write_text(f"open({str(ran)!r}, 'a').write(__name__ + ' ')\n")
    return ran


def called(folder: Path, *arguments: str, as_module: bool) -> subprocess.CompletedProcess[str]:
    script = Path(sysconfig.get_path("scripts")) / "holdfast"
    command = ["-m", "holdfast"] if as_module else [str(script)]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONSAFEPATH"}
    return subprocess.run(
        [sys.executable, *command, *arguments],
        cwd=folder,
        env=environment | {"PYTHONPATH": str(SOURCE), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.mark.parametrize("as_module", [True, False], ids=["python -m holdfast", "holdfast"])
def test_code_in_the_current_folder_is_not_run_in_any_process_of_a_sweep(tmp_path, as_module):
    ran = folder_of_traps(tmp_path)
    (tmp_path / "mine.py").write_text(MINE)
    (tmp_path / "beside_mine.py").write_text("")
    options = ["--methods", "er,mine:Mine", "--seeds", "1", "--workers", "1", *SMALL]
    done = called(tmp_path, "sweep", "permuted_digits", *options, as_module=as_module)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    assert not ran.exists(), f"these were run: {ran.read_text()}"


def test_the_current_folder_is_on_the_path_only_when_a_class_came_from_it(tmp_path, holdfast):
    (tmp_path / "mine_in_this_folder.py").write_text(MINE)
    before = list(sys.path)
    holdfast("run", "permuted_digits", "--method", "er", *SMALL)
    holdfast("run", "permuted_digits", "--method", "nowhere_mod:Mine", *SMALL)
    assert sys.path == before
    holdfast("run", "permuted_digits", "--method", "mine_in_this_folder:Mine", "--set", "method.nothing=1")
    assert sys.path == [*before, str(tmp_path)]


def test_a_package_of_ones_own_keeps_its_folder_when_it_is_run_as_a_module(tmp_path):
    package = tmp_path / "mypackage"
    package.mkdir()
    (package / "__init__.py").write_text("import holdfast\n")
    (package / "__main__.py").write_text("import beside\n")
    (tmp_path / "beside.py").write_text("print('found')\n")
    command = [sys.executable, "-m", "mypackage", "-m", "holdfast"]
    environment = os.environ | {"PYTHONPATH": str(SOURCE)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (0, "found\n"), done.stderr
