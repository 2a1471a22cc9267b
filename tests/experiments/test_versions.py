from __future__ import annotations

import json
import subprocess
from importlib.metadata import Distribution
from pathlib import Path

import pytest
import torch

from holdfast.experiments import versions as module
from holdfast.experiments.versions import versions


def git(folder: Path, *arguments: str) -> str:
    who = ["-c", "user.name=a", "-c", "user.email=a@b"]
    done = subprocess.run(["git", "-C", str(folder), *who, *arguments], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_what_computes_and_where_is_named():
    found = versions()
    assert found["torch"] == torch.__version__
    assert found["threads"] == str(torch.get_num_threads())
    assert set(found) - {"commit"} == {"python", "torch", "numpy", "holdfast", "machine", "cpu", "processor", "threads"}


def test_in_a_checkout_its_commit_is_named_and_whether_files_were_changed_since(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    git(tmp_path, "init")
    (tmp_path / "file").write_text("one")
    git(tmp_path, "add", "file")
    git(tmp_path, "commit", "-m", "one")
    git(tmp_path, "tag", "a-tag")
    monkeypatch.setattr(module, "PROJECT", tmp_path)
    commit = git(tmp_path, "rev-parse", "HEAD")
    assert versions()["commit"] == commit[:12]
    (tmp_path / "file").write_text("two")
    module._checked_out.cache_clear()  # which a process asks once
    assert versions()["commit"] == f"{commit[:12]}-dirty"


def test_outside_one_it_is_the_commit_that_was_installed_if_pip_knows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "PROJECT", tmp_path)
    written: dict[str, object] = {"url": "file:///somewhere", "dir_info": {}}

    class Installed(Distribution):
        version = "7"

        def read_text(self, filename: str) -> str | None:
            return json.dumps(written) if filename == "direct_url.json" else None

        def locate_file(self, path: object) -> Path:
            return tmp_path

    monkeypatch.setattr(module.Distribution, "from_name", lambda _: Installed())
    assert "commit" not in versions()
    assert versions()["holdfast"] == "7"
    written["vcs_info"] = {"vcs": "git", "commit_id": "0123456789abcdef0123"}
    assert versions()["commit"] == "0123456789ab"
