"""A wheel and an sdist hold the whole package, and the wheel works where nothing of the checkout is."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "holdfast"
FILES = {
    str(path.relative_to(SOURCE.parent))
    for path in SOURCE.rglob("*")
    if path.is_file() and path.suffix not in (".pyc", ".pyo")
}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-d", str(folder)], cwd=ROOT, check=True)
    return folder


@pytest.fixture(scope="module")
def installed(built: Path) -> Path:
    (wheel,) = built.glob("*.whl")
    place = built / "installed"
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", str(place)]
    subprocess.run([*command, str(wheel)], check=True)
    return place


def run(place: Path, *words: str, cwd: Path) -> str:
    environment = {**os.environ, "PYTHONPATH": str(place), "OMP_NUM_THREADS": "1"}
    code = f"import sys, holdfast; assert holdfast.__file__.startswith({str(place)!r}), holdfast.__file__; "
    code += f"sys.argv = {['holdfast', *words]!r}; from holdfast.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", code], cwd=cwd, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_wheel_holds_every_file_of_the_package_and_no_other_code(built: Path):
    (wheel,) = built.glob("*.whl")
    names = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert names == FILES


def test_the_sdist_holds_what_a_build_and_the_tests_need(built: Path):
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {f"src/{name}" for name in FILES} <= names
    assert {"pyproject.toml", "constraints.txt", "Makefile", "README.md", "CHANGELOG.md", "LICENSE"} <= names
    assert {"mkdocs.yml", "docs/index.md", "tests/conftest.py", "examples/own_method.py"} <= names
    assert not {name for name in names if name.startswith(("results/", "runs/", ".venv/"))}


def test_an_installed_wheel_has_its_recipes_and_runs_one(installed: Path, tmp_path: Path):
    assert "permuted_digits" in run(installed, "list", "recipes", cwd=tmp_path)
    small = ["--n-tasks", "1", "--set", "stream.samples_per_task=50", "--methods", "er"]
    assert "A_T" in run(installed, "compare", "permuted_digits", *small, cwd=tmp_path)
    run(installed, "report", "runs", "--out", "report", cwd=tmp_path)
    assert (tmp_path / "report" / "index.html").stat().st_size > 10_000
