"""The commands as a user sees them: tables, JSON, one sentence for each failure, exit codes."""

from __future__ import annotations

import functools
import gzip
import hashlib
import http.server
import json
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from holdfast.cli import data as data_command
from holdfast.data.catalogue import CATALOGUE, Archive, IdxFile, IdxFiles
from tests.support.command import Done
from tests.support.data_files import write_descriptors

CONTENT = b"\x00\x00\x08\x01\x00\x00\x00\x03\x07\x02\x01"


@dataclass(frozen=True)
class Ended:
    exit_code: int
    stdout: str
    stderr: str


Run = Callable[..., Ended]
Parsed = Callable[..., dict[str, Any]]


@pytest.fixture
def run(holdfast: Callable[..., Done], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Gives the words after `holdfast data` and returns how it ended; other errors than SystemExit fail the test."""
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.delenv("FORCE_COLOR", raising=False)

    def run(*words: str | Path) -> Ended:
        done = holdfast("data", *map(str, words))
        return Ended(done.returncode, done.stdout, done.stderr)

    return run


@pytest.fixture
def parsed(run: Run) -> Parsed:
    """The one document that a command with --json writes to standard output."""

    def parsed(*words: str | Path) -> dict[str, Any]:
        result = run(*words, "--json")
        assert result.stderr == ""
        document: dict[str, Any] = json.loads(result.stdout)
        return document

    return parsed


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def publisher(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder that a server offers, and a catalogue of two data sets, of which it offers one."""
    folder = tmp_path / "publisher"
    folder.mkdir()
    packed = gzip.compress(CONTENT, mtime=0)
    (folder / "digits.gz").write_bytes(packed)
    handler = functools.partial(Quiet, directory=str(folder))
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setattr(os, "sync", lambda: None)  # others may keep the disk busy
    monkeypatch.setattr(os, "fsync", lambda _: None)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        url = f"http://127.0.0.1:{server.server_port}/digits.gz"
        digits = replace(
            CATALOGUE["mnist"],
            name="digits",
            where="digits",
            layout=IdxFiles((IdxFile("digits", len(CONTENT), hashlib.sha256(CONTENT).hexdigest()),)),
            archives=(Archive("digits.gz", (url,), len(packed), f"md5:{hashlib.md5(packed).hexdigest()}", "file"),),
        )
        there = dict(CATALOGUE)
        for name in set(CATALOGUE) - {"awa1_features"}:
            del CATALOGUE[name]
        CATALOGUE["digits"] = digits
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.005})
        thread.start()
        yield folder
        monkeypatch.undo()  # of what a test has put into the catalogue, which would come after the next line
        CATALOGUE.clear()
        CATALOGUE.update(there)  # in its order
        server.shutdown()
        thread.join()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "data"


def test_list_shows_every_data_set_within_80_columns(run: Run, root: Path) -> None:
    result = run("list", "--data", root)
    assert result.exit_code == 0
    table = result.stdout.split("expected in")[0]
    assert max(map(len, table.splitlines())) <= 80
    for name in CATALOGUE:
        assert f"│ {name} " in table
    assert "\x1b" not in result.stdout
    assert str(root) in result.stdout


def test_list_as_json_holds_addresses_sums_and_terms(parsed: Parsed, root: Path) -> None:
    document = parsed("list", "--data", root)
    assert document["root"] == str(root)
    listed = {entry["name"]: entry for entry in document["data_sets"]}
    assert list(listed) == list(CATALOGUE)
    assert listed["cub"]["archives"][0]["size"] == 1_150_585_339
    assert listed["cub"]["licence"].startswith("non-commercial")
    assert listed["awa1_features"]["archives"] == []


def test_the_folder_comes_from_the_environment_where_none_is_given(
    parsed: Parsed, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_DATA", str(root))
    assert parsed("status")["root"] == str(root)


@pytest.mark.usefixtures("publisher")
def test_status_tells_absent_incomplete_and_present_apart(run: Run, parsed: Parsed, root: Path) -> None:
    def state() -> tuple[str, list[str]]:
        (entry,) = parsed("status", "digits", "--data", root)["data_sets"]
        return entry["state"], entry["missing"]

    assert state() == ("absent", ["digits is not there"])
    (root / "digits").mkdir(parents=True)
    (root / "digits" / "digits").write_bytes(CONTENT[:-1])
    assert state() == ("incomplete", ["digits holds 10 bytes, expected 11"])
    (root / "digits" / "digits").write_bytes(CONTENT)
    assert state() == ("present", [])
    result = run("status", "--data", root)
    assert result.exit_code == 0
    assert "present" in result.stdout
    assert "absent" in result.stdout


@pytest.mark.usefixtures("publisher")
def test_download_then_verify_then_download_again(run: Run, root: Path) -> None:
    first = run("download", "digits", "--data", root)
    assert first.exit_code == 0
    assert f"digits: downloaded, in {root / 'digits'}" in first.stdout.replace("\n", " ")
    assert "CC BY-SA 3.0" in first.stdout
    assert first.stderr == ""  # no bar where there is no terminal
    verified = run("verify", "--data", root)
    assert verified.exit_code == 0  # a set that was not named may be absent
    assert "the published content" in verified.stdout
    again = run("download", "digits", "--data", root)
    assert again.exit_code == 0
    assert "digits: already there" in again.stdout
    assert "CC BY-SA 3.0" not in again.stdout


@pytest.mark.usefixtures("publisher")
def test_download_as_json_is_one_document(parsed: Parsed, root: Path) -> None:
    entry = {"name": "digits", "where": str(root / "digits")}
    expected = {"root": str(root), "data_sets": [{**entry, "outcome": "downloaded"}]}
    assert parsed("download", "digits", "digits", "--data", root) == expected
    expected["data_sets"] = [{**entry, "outcome": "already there"}]
    assert parsed("download", "digits", "--data", root) == expected


def test_an_archive_without_a_known_checksum_is_told_before_it_comes(
    run: Run, publisher: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (publisher / "digits.gz").write_bytes(gzip.compress(CONTENT, 1, mtime=5))
    digits = CATALOGUE["digits"]
    (archive,) = digits.archives
    unknown = replace(archive, size=None, checksum=None)
    monkeypatch.setitem(CATALOGUE, "digits", replace(digits, archives=(unknown,)))
    result = run("download", "digits", "--data", root)
    assert result.exit_code == 0
    assert "no checksum of digits.gz is known" in result.stdout


def test_a_wrong_checksum_is_one_sentence_and_code_1(run: Run, publisher: Path, root: Path) -> None:
    content = bytearray((publisher / "digits.gz").read_bytes())
    content[4] ^= 1
    (publisher / "digits.gz").write_bytes(content)
    result = run("download", "digits", "--data", root)
    assert result.exit_code == 1
    assert "digits.gz has md5" in result.stderr
    assert result.stderr.count("\n") == 1
    assert not (root / "digits").exists()


def test_a_publisher_without_the_file_is_one_sentence_and_code_1(run: Run, publisher: Path, root: Path) -> None:
    (publisher / "digits.gz").unlink()
    result = run("download", "digits", "--data", root, "--json")
    assert result.exit_code == 1
    assert result.stdout == ""
    assert "answered 404" in result.stderr
    assert result.stderr.count("\n") == 1


def test_a_set_that_nobody_publishes_is_one_sentence_and_code_1(run: Run, root: Path) -> None:
    result = run("download", "awa1_features", "--data", root)
    assert result.exit_code == 1
    assert result.stdout == ""
    assert result.stderr.startswith("awa1_features cannot be downloaded; no publisher offers it: copy")
    assert not root.exists()


@pytest.mark.parametrize("command", ["status", "verify", "download"])
def test_an_unknown_name_is_code_2_with_a_suggestion(run: Run, root: Path, command: str) -> None:
    result = run(command, "minst", "--data", root)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr == "no 'minst' among the data sets: did you mean 'mnist'?\n"


@pytest.mark.usefixtures("publisher")
def test_nothing_is_fetched_when_one_of_the_names_is_unknown(run: Run, root: Path) -> None:
    assert run("download", "digits", "digitz", "--data", root).exit_code == 2
    assert not root.exists()


@pytest.mark.usefixtures("publisher")
def test_verify_is_code_1_where_something_is_broken(run: Run, parsed: Parsed, root: Path) -> None:
    run("download", "digits", "--data", root)
    (root / "digits" / "digits.gz").write_bytes(gzip.compress(CONTENT[::-1]))
    result = run("verify", "--data", root)
    assert result.exit_code == 1
    assert "BROKEN: wrong content" in result.stdout
    (entry,) = parsed("verify", "digits", "--data", root)["data_sets"]
    assert (entry["state"], entry["ok"]) == ("present", False)
    (finding,) = entry["findings"]
    assert (finding["file"], finding["ok"]) == ("digits/digits.gz", False)


@pytest.mark.usefixtures("publisher")
def test_verify_is_code_1_where_a_named_set_is_absent(run: Run, parsed: Parsed, root: Path) -> None:
    assert run("verify", "--data", root).exit_code == 0
    assert run("verify", "digits", "--data", root).exit_code == 1
    (entry,) = parsed("verify", "digits", "--data", root)["data_sets"]
    assert entry == {"name": "digits", "state": "absent", "ok": None, "findings": []}


@pytest.mark.usefixtures("publisher")
def test_verify_names_a_few_broken_files_and_counts_the_rest(
    run: Run, parsed: Parsed, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = tuple(IdxFile(f"part-{i}", 1, "00") for i in range(25))
    monkeypatch.setitem(CATALOGUE, "digits", replace(CATALOGUE["digits"], layout=IdxFiles(files)))
    (root / "digits").mkdir(parents=True)
    (root / "digits" / "part-0").write_bytes(b"x")
    result = run("verify", "digits", "--data", root)
    assert "BROKEN: 15 more" in result.stdout
    (entry,) = parsed("verify", "digits", "--data", root)["data_sets"]
    assert len(entry["findings"]) == 25


@pytest.mark.usefixtures("publisher")
def test_an_interrupted_download_is_code_130_and_says_how_to_go_on(
    run: Run, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(data_command, "download", interrupt)
    result = run("download", "digits", "--data", root)
    assert result.exit_code == 130
    assert result.stderr == "stopped: what has come is kept, the same command continues\n"


def test_a_folder_that_is_a_file_is_one_sentence(run: Run, tmp_path: Path) -> None:
    (tmp_path / "mnist").write_text("not a folder")
    result = run("verify", "mnist", "--data", tmp_path)
    assert result.exit_code == 1
    assert "BROKEN" in result.stdout


@pytest.mark.real_data
def test_the_real_data_are_present_and_whole(parsed: Parsed, real_data: Path) -> None:
    document = parsed("verify", "mnist", "awa1_features", "--data", real_data)
    assert [entry["ok"] for entry in document["data_sets"]] == [True, True]


@pytest.mark.real_data
def test_a_real_set_without_one_file_is_incomplete(parsed: Parsed, real_data: Path, tmp_path: Path) -> None:
    shutil.copytree(real_data / "mnist", tmp_path / "mnist")
    for path in (tmp_path / "mnist").glob("t10k-labels*"):
        path.unlink()
    (entry,) = parsed("status", "mnist", "--data", tmp_path)["data_sets"]
    assert entry["missing"] == ["t10k-labels-idx1-ubyte is not there, nor t10k-labels-idx1-ubyte.gz"]


def test_convert_says_what_was_made_and_that_it_was_not_checked(run, tmp_path):
    folder = write_descriptors(tmp_path / "Animals_with_Attributes")
    ended = run("convert", "awa1_features", folder, "--data", tmp_path)
    assert (ended.exit_code, ended.stderr) == (0, "")
    told = " ".join(ended.stdout.split())
    assert "awa1_features: 40 pictures, 40 numbers made 33" in told
    assert "archives have 30,475 pictures and 8,252 numbers: some are missing" in told
    assert "not checked against the original" in told
    again = run("convert", "awa1_features", folder, "--data", tmp_path)
    assert (again.exit_code, "is there: move it away first" in again.stderr) == (1, True)


def test_what_cannot_be_converted_is_one_sentence(run, tmp_path):
    other = run("convert", "mnist", tmp_path, "--data", tmp_path)
    assert (other.exit_code, other.stderr) == (
        2,
        "mnist is read as its publisher offers it: only awa1_features is converted\n",
    )
    empty = run("convert", "awa1_features", tmp_path, "--data", tmp_path)
    assert (empty.exit_code, len(empty.stderr.splitlines())) == (1, 1)
    assert "unpack AwA-base.tar.bz2" in empty.stderr
