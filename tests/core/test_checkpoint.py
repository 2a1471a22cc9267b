from __future__ import annotations

import hashlib
import io
import json
import math
import os
import pickle
import resource
import subprocess
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file
from torch import Tensor

from holdfast.core import checkpoint
from holdfast.core.checkpoint import CorruptCheckpoint, previous_checkpoint, read_checkpoint, write_checkpoint
from tests.support.same import assert_same
from tests.support.trees import DTYPES, compact, states

SMALL = {"weights": torch.tensor([1.0, -2.0]), "slots": {(0, 1): [2, 3]}, "n": 1}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One folder for all examples of a test that hypothesis runs."""
    return tmp_path_factory.mktemp("checkpoints")


@pytest.fixture(scope="module")
def small_file(folder: Path) -> bytes:
    """The bytes of a checkpoint of SMALL."""
    write_checkpoint(folder / "small", SMALL)
    return (folder / "small").read_bytes()


# Values that come back.


@settings(max_examples=80, deadline=None)
@given(state=states)
def test_any_state_comes_back_as_it_was(folder: Path, state: dict[str, Any]):
    write_checkpoint(folder / "any", state)
    assert_same(read_checkpoint(folder / "any"), compact(state))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_tensors_of_every_dtype_keep_their_bits(tmp_path: Path, dtype: torch.dtype):
    grid = torch.arange(12).reshape(3, 4).to(dtype)
    state = {"grid": grid, "turned": grid.T, "part": grid[1:, ::2], "number": grid[1, 1], "empty": grid[:0]}
    write_checkpoint(tmp_path / "state", state)
    assert_same(read_checkpoint(tmp_path / "state"), state)


def test_another_reader_of_the_format_finds_the_same_tensors(tmp_path: Path):
    state = {str(dtype): torch.arange(5).to(dtype) for dtype in DTYPES}
    write_checkpoint(tmp_path / "state", state)
    found = load_file(tmp_path / "state")
    assert_same([found[name] for name in sorted(found)], list(state.values()))


def test_a_tensor_that_the_format_does_not_know_is_named(tmp_path: Path):
    with pytest.raises(TypeError, match=r"tensors of torch\.complex128 cannot be saved"):
        write_checkpoint(tmp_path / "state", {"wave": torch.zeros(2, dtype=torch.complex128)})
    assert list(tmp_path.iterdir()) == []


def test_a_state_is_in_memory_once_more_while_it_is_written_and_not_twice(tmp_path: Path):
    script = """
import resource, sys
from pathlib import Path
import torch
from holdfast.core.checkpoint import write_checkpoint

state = {"weights": torch.ones(10_000_000)}
write_checkpoint(Path(sys.argv[1]), {"weights": torch.ones(10)})
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
write_checkpoint(Path(sys.argv[1]), state)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024)
"""
    command = [sys.executable, "-c", script, str(tmp_path / "state")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert float(done.stdout) < 60  # MiB, for 38 of weights


def test_numbers_come_back_to_the_last_bit(tmp_path: Path):
    state = {"numbers": [0.1 + 0.2, -0.0, math.inf, -math.inf, 5e-324, 2**63 + 1, True, 1, 1.0]}
    write_checkpoint(tmp_path / "state", state)
    assert repr(read_checkpoint(tmp_path / "state")) == repr(state)


def test_the_order_of_keys_is_kept(tmp_path: Path):
    write_checkpoint(tmp_path / "state", {"b": 0, "a": {2: 0, 1: 0, (1, 0): 0}})
    state = read_checkpoint(tmp_path / "state")
    assert list(state) == ["b", "a"]
    assert list(state["a"]) == [2, 1, (1, 0)]


def test_tensors_that_share_memory_come_back_as_tensors_that_do_not(tmp_path: Path):
    base = torch.arange(6.0)
    write_checkpoint(tmp_path / "state", {"base": base, "same": base, "part": base[2:4]})
    state = read_checkpoint(tmp_path / "state")
    assert_same(state, {"base": base, "same": base, "part": base[2:4]})
    state["base"].zero_()
    assert state["same"].tolist() == [0, 1, 2, 3, 4, 5]
    assert state["part"].tolist() == [2, 3]


def test_a_view_is_saved_without_the_tensor_it_is_a_view_of(tmp_path: Path):
    write_checkpoint(tmp_path / "state", {"part": torch.zeros(10**6)[:2]})
    assert (tmp_path / "state").stat().st_size < 1000


def test_a_parameter_comes_back_as_a_tensor_without_gradient(tmp_path: Path):
    write_checkpoint(tmp_path / "state", {"weight": torch.nn.Parameter(torch.ones(2))})
    assert_same(read_checkpoint(tmp_path / "state"), {"weight": torch.ones(2)})


def test_what_is_read_does_not_change_with_the_file(tmp_path: Path):
    path = tmp_path / "state"
    write_checkpoint(path, {"weights": torch.ones(1000)})
    state = read_checkpoint(path)
    write_checkpoint(path, {"weights": torch.zeros(1000)})
    write_checkpoint(path, {"weights": torch.zeros(1000)})
    assert torch.equal(state["weights"], torch.ones(1000))


def test_a_folder_that_is_not_there_is_made(tmp_path: Path):
    write_checkpoint(tmp_path / "runs" / "one" / "state", SMALL)
    assert_same(read_checkpoint(tmp_path / "runs" / "one" / "state"), SMALL)


def test_no_checkpoint_at_all_is_an_error_that_names_the_file(tmp_path: Path):
    with pytest.raises(FileNotFoundError, match=r"no checkpoint at .*nothing"):
        read_checkpoint(tmp_path / "nothing")


# Damage.


def test_a_file_cut_at_any_length_is_told_from_a_whole_one(tmp_path: Path, small_file: bytes):
    path = tmp_path / "cut"
    for length in range(len(small_file)):
        path.write_bytes(small_file[:length])
        with pytest.raises(CorruptCheckpoint, match="cut"):
            read_checkpoint(path)


def test_a_bit_flipped_in_any_byte_is_noticed(tmp_path: Path, small_file: bytes):
    path = tmp_path / "flipped"
    for place in range(len(small_file)):
        flipped = bytearray(small_file)
        flipped[place] ^= 1 << place % 8
        path.write_bytes(flipped)
        with pytest.raises(CorruptCheckpoint, match="flipped"):
            read_checkpoint(path)


@settings(max_examples=40, deadline=None)
@given(state=states, data=st.data())
def test_a_bit_flipped_in_any_state_is_noticed_or_changes_nothing(
    folder: Path, state: dict[str, Any], data: st.DataObject
):
    path = folder / "any_flipped"
    write_checkpoint(path, state)
    previous_checkpoint(path).unlink(missing_ok=True)
    content = bytearray(path.read_bytes())
    content[data.draw(st.integers(0, len(content) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    path.write_bytes(content)
    try:
        assert_same(read_checkpoint(path), compact(state))
    except CorruptCheckpoint:
        pass
    finally:
        path.unlink()


def test_a_file_with_something_behind_its_end_is_refused(tmp_path: Path, small_file: bytes):
    (tmp_path / "long").write_bytes(small_file + b"\0")
    with pytest.raises(CorruptCheckpoint, match="long"):
        read_checkpoint(tmp_path / "long")


@pytest.mark.parametrize("part", ["weights", "dtype", "tree"])
def test_content_changed_under_an_old_checksum_is_refused(tmp_path: Path, small_file: bytes, part: str):
    old, new = {
        "weights": (torch.tensor([1.0]).numpy().tobytes(), torch.tensor([2.0]).numpy().tobytes()),
        "dtype": (b'"F32"', b'"I32"'),
        "tree": (b'[\\"n\\", 1]', b'[\\"n\\", 2]'),
    }[part]
    assert small_file.count(old) == 1
    (tmp_path / "changed").write_bytes(small_file.replace(old, new))
    with pytest.raises(CorruptCheckpoint, match="checksum does not fit"):
        read_checkpoint(tmp_path / "changed")


# The one before.


def written(path: Path, *states: dict[str, Any]) -> Path:
    for state in states:
        write_checkpoint(path, state)
    return path


def test_the_checkpoint_before_is_kept(tmp_path: Path):
    path = written(tmp_path / "state", {"n": 1}, {"n": 2}, {"n": 3})
    assert read_checkpoint(path) == {"n": 3}
    assert read_checkpoint(previous_checkpoint(path)) == {"n": 2}
    assert sorted(file.name for file in tmp_path.iterdir()) == ["state", "state.previous"]


def test_a_damaged_file_is_replaced_by_the_one_before_with_a_warning(tmp_path: Path):
    path = written(tmp_path / "state", {"n": 1}, {"n": 2})
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.warns(UserWarning, match=r"state is damaged.*going on from the one before, state\.previous"):
        assert read_checkpoint(path) == {"n": 1}


def test_a_file_that_is_gone_is_replaced_by_the_one_before_with_a_warning(tmp_path: Path):
    path = written(tmp_path / "state", {"n": 1}, {"n": 2})
    path.unlink()
    with pytest.warns(UserWarning, match=r"the one before, state\.previous"):
        assert read_checkpoint(path) == {"n": 1}


def test_a_file_that_is_replaced_while_it_is_read_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = written(tmp_path / "state", {"n": 1}, {"n": 2})
    read = checkpoint._read

    def read_across_a_save(path: Path) -> Any:
        monkeypatch.setattr(checkpoint, "_read", read)
        write_checkpoint(path, {"n": 3})
        raise CorruptCheckpoint("the header of one file, the tensors of another")

    monkeypatch.setattr(checkpoint, "_read", read_across_a_save)
    assert read_checkpoint(path) == {"n": 3}


@pytest.mark.parametrize("is_there", [True, False])
def test_with_both_damaged_there_is_nothing_to_go_on_from(tmp_path: Path, is_there: bool):
    path = written(tmp_path / "state", {"n": 1}, {"n": 2})
    previous_checkpoint(path).write_bytes(b"nonsense")
    if is_there:
        path.write_bytes(b"nonsense")
    else:
        path.unlink()
    with pytest.raises(CorruptCheckpoint):
        read_checkpoint(path)


def test_a_kill_while_writing_leaves_the_old_one(tmp_path: Path, small_file: bytes):
    path = written(tmp_path / "state", {"n": 1}, {"n": 2})
    (tmp_path / "state.12345.writing").write_bytes(small_file[:100])
    assert read_checkpoint(path) == {"n": 2}
    assert read_checkpoint(written(path, {"n": 3})) == {"n": 3}


def test_a_kill_between_the_two_renames_leaves_the_old_one(tmp_path: Path, small_file: bytes):
    path = written(tmp_path / "state", {"n": 1}, {"n": 2})
    (tmp_path / "state.12345.writing").write_bytes(small_file)
    path.replace(previous_checkpoint(path))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert read_checkpoint(path) == {"n": 2}


def test_a_save_after_a_kill_between_the_renames_keeps_the_old_one_as_the_one_before(tmp_path: Path):
    path = written(tmp_path / "state", {"n": 1}, {"n": 2})
    path.replace(previous_checkpoint(path))
    written(path, {"n": 3})
    assert read_checkpoint(path) == {"n": 3}
    assert read_checkpoint(previous_checkpoint(path)) == {"n": 2}


# A full disk.


@contextmanager
def files_of_at_most(n_bytes: int) -> Iterator[None]:
    """Inside, no file of this process grows beyond that size, as on a disk that is full."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_full_disk_leaves_the_old_checkpoint_and_nothing_else(tmp_path: Path):
    path = written(tmp_path / "state", {"n": 1}, {"n": 2})
    with files_of_at_most(100_000), pytest.raises(OSError, match=r"could not write .*state.*before is kept"):
        write_checkpoint(path, {"weights": torch.zeros(100_000)})
    assert read_checkpoint(path) == {"n": 2}
    assert read_checkpoint(previous_checkpoint(path)) == {"n": 1}
    assert sorted(file.name for file in tmp_path.iterdir()) == ["state", "state.previous"]


def test_a_disk_that_fails_half_way_leaves_the_old_checkpoint_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    path = written(tmp_path / "state", {"n": 1})

    def fail(file: BinaryIO, *_: Any) -> None:
        file.write(b"the first half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(checkpoint, "write_tensors", fail)
    with pytest.raises(OSError, match="No space left on device"):
        write_checkpoint(path, {"n": 2})
    assert read_checkpoint(path) == {"n": 1}
    assert [file.name for file in tmp_path.iterdir()] == ["state"]


def test_a_state_that_cannot_be_saved_leaves_the_old_checkpoint_and_nothing_else(tmp_path: Path):
    path = written(tmp_path / "state", {"n": 1})
    with pytest.raises(TypeError):
        write_checkpoint(path, {"n": {1, 2}})
    assert read_checkpoint(path) == {"n": 1}
    assert [file.name for file in tmp_path.iterdir()] == ["state"]


# Files that someone made to do harm.


def raw_file(header: dict[str, Any] | bytes, body: bytes = b"", *, stated_length: int | None = None) -> bytes:
    """A safetensors file with this header, which need not be true."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    length = len(text) if stated_length is None else stated_length
    return length.to_bytes(8, "little") + text + body


def signed(tree: str, **tensors: Any) -> bytes:
    """A file with this tree and the right checksum, as long as it has no tensors."""
    sha256 = hashlib.sha256(tree.encode()).hexdigest()
    return raw_file({"__metadata__": {"format": checkpoint.FORMAT, "state": tree, "sha256": sha256}, **tensors})


def one_tensor(shape: list[int], end: int, dtype: str = "F32") -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [0, end]}


def torch_file() -> bytes:
    file = io.BytesIO()
    torch.save({"weights": torch.ones(3)}, file)
    return file.getvalue()


HUGE = 2**40
HOSTILE = {
    "more metadata than memory": raw_file(
        b'{"__metadata__":{' + b",".join(b'"%d":""' % i for i in range(400_000)) + b"}}"
    ),
    "a tensor larger than the file": signed('{"dict": []}', a=one_tensor([HUGE], 4 * HUGE)),
    "a shape larger than its bytes": signed('{"dict": []}', a=one_tensor([HUGE], 4)),
    "a shape whose size overflows": signed('{"dict": []}', a=one_tensor([2**32, 2**32, 2**32], 0)),
    "a shape that is negative": signed('{"dict": []}', a=one_tensor([-1], 4)),
    "a dtype that does not exist": signed('{"dict": []}', a=one_tensor([1], 4, "F99")),
    "tensors over each other": raw_file({"a": one_tensor([1], 4), "b": one_tensor([1], 4)}, b"1234"),
    "a header longer than the file": raw_file(b"{}", stated_length=HUGE),
    "a header of the largest length": raw_file(b"{}", stated_length=2**64 - 1),
    "a header nested deeply": raw_file(b'{"a":' * 50_000 + b"1" + b"}" * 50_000),
    "a header that is no object": raw_file(b"[]"),
    "a header that is no text": raw_file(b"\xff\xfe\xfd"),
    "no metadata": raw_file({}),
    "metadata that are no text": raw_file({"__metadata__": {"format": 1}}),
    "another format": raw_file({"__metadata__": {"format": "holdfast-0"}}),
    "no state": raw_file({"__metadata__": {"format": checkpoint.FORMAT}}),
    "no checksum": raw_file({"__metadata__": {"format": checkpoint.FORMAT, "state": '{"dict": []}'}}),
    "a tree that is no JSON": signed("{"),
    "a tree nested deeply": signed("[" * 100_000 + "]" * 100_000),
    "a tree of dicts nested deeply": signed('{"tuple":[' * 50_000 + "]}" * 50_000),
    "a tree that is a list": signed("[]"),
    "a tree that is a number": signed("7"),
    "a tree that is a tuple": signed('{"tuple": []}'),
    "an object of no kind": signed("{}"),
    "a dict that is a number": signed('{"dict": 5}'),
    "a dict of single items": signed('{"dict": [1]}'),
    "a dict of triples": signed('{"dict": [[1, 2, 3]]}'),
    "a key that is a dict": signed('{"dict": [[{"dict": []}, 1]]}'),
    "a key that is a list": signed('{"dict": [[[], 1]]}'),
    "a tuple that is a number": signed('{"dict": [["a", {"tuple": 5}]]}'),
    "a tensor that is not there": signed('{"dict": [["a", {"tensor": "000000"}]]}'),
    "a tensor named by a list": signed('{"dict": [["a", {"tensor": []}]]}'),
    "a number with too many digits": signed('{"dict": [["a", ' + "9" * 5000 + "]]}"),
    "an object of two kinds": signed('{"dict": [], "tuple": []}'),
    "a list of another kind": signed('{"list": []}'),
    "a key twice": signed('{"dict": [["a", 1], ["a", 2]]}'),
    "a key that is a tuple of lists": signed('{"dict": [[{"tuple": [[]]}, 1]]}'),
    "a pickle": pickle.dumps({"n": 1}),
    "a file of torch": torch_file(),
    "a text": b"holdfast-1\n" * 100,
    "nothing": b"",
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_file_is_refused(tmp_path: Path, kind: str):
    (tmp_path / "hostile").write_bytes(HOSTILE[kind])
    with pytest.raises(CorruptCheckpoint, match="hostile"):
        read_checkpoint(tmp_path / "hostile")


def test_a_file_of_an_earlier_version_is_refused_with_both_versions(tmp_path: Path):
    (tmp_path / "old").write_bytes(raw_file({"__metadata__": {"format": "holdfast-1"}}))
    with pytest.raises(
        CorruptCheckpoint, match=rf"no checkpoint of this version \(holdfast-1, not {checkpoint.FORMAT}\)"
    ):
        read_checkpoint(tmp_path / "old")
    (tmp_path / "long").write_bytes(raw_file({"__metadata__": {"format": "x" * 10_000}}))
    with pytest.raises(CorruptCheckpoint, match=r"\(x{40}, not"):
        read_checkpoint(tmp_path / "long")


def with_tensors(tree: str, tensors: dict[str, Tensor]) -> bytes:
    """A file with this tree and these tensors and the right checksum."""
    file = io.BytesIO()
    sha256 = checkpoint._checksum(tree, tensors)
    checkpoint.write_tensors(file, tensors, {"format": checkpoint.FORMAT, "state": tree, "sha256": sha256})
    return file.getvalue()


def test_a_tensor_that_stands_in_two_places_is_refused(tmp_path: Path):
    places = ", ".join(f'["{i}", {{"tensor": "000000"}}]' for i in range(3000))
    (tmp_path / "state").write_bytes(with_tensors(f'{{"dict": [{places}]}}', {"000000": torch.zeros(1000)}))
    with pytest.raises(CorruptCheckpoint, match="'000000' is in two places"):
        read_checkpoint(tmp_path / "state")


def test_a_tensor_that_stands_nowhere_is_refused(tmp_path: Path):
    (tmp_path / "state").write_bytes(with_tensors('{"dict": []}', {"000000": torch.zeros(3)}))
    with pytest.raises(CorruptCheckpoint, match="1 of its tensors are in no place"):
        read_checkpoint(tmp_path / "state")


def test_a_tensor_as_a_key_is_refused(tmp_path: Path):
    (tmp_path / "state").write_bytes(with_tensors('{"dict": [[{"tensor": "0"}, 1]]}', {"0": torch.zeros(3)}))
    with pytest.raises(CorruptCheckpoint, match="no number, text or tuple"):
        read_checkpoint(tmp_path / "state")


@pytest.mark.parametrize("kind", ["lists", "tuples", "tensors"])
def test_a_tree_that_would_take_several_times_its_file_is_refused_before_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
):
    n = 600_000
    if kind == "tensors":
        entries = ",".join(f'"{i}":{{"dtype":"F32","shape":[0],"data_offsets":[0,0]}}' for i in range(n // 10))
        content = raw_file(f"{{{entries}}}".encode())
    else:
        item = {"lists": "[]", "tuples": '{"tuple":[]}'}[kind]
        content = signed(f'{{"dict": [["a", [{",".join([item] * n)}]]]}}')
    (tmp_path / "state").write_bytes(content)
    monkeypatch.setattr(checkpoint.json, "loads", None)
    with pytest.raises(CorruptCheckpoint, match="bytes would take"):
        read_checkpoint(tmp_path / "state")


def test_what_is_no_regular_file_is_refused_and_not_waited_for(tmp_path: Path):
    os.mkfifo(tmp_path / "pipe")
    for name in ("pipe", "."):
        with pytest.raises(CorruptCheckpoint, match="not a regular file"):
            read_checkpoint(tmp_path / name)


def test_a_file_signed_in_these_tests_is_read_if_it_is_well_formed(tmp_path: Path):
    (tmp_path / "fine").write_bytes(signed('{"dict": [["a", {"tuple": [1]}]]}'))
    assert read_checkpoint(tmp_path / "fine") == {"a": (1,)}


@settings(max_examples=100, deadline=None)
@given(content=st.binary(max_size=200), length=st.none() | st.integers(0, 200))
def test_random_bytes_are_refused(folder: Path, content: bytes, length: int | None):
    path = folder / "random"
    path.write_bytes(content if length is None else raw_file(content, stated_length=length))
    with pytest.raises(CorruptCheckpoint):
        read_checkpoint(path)


def test_refusing_hostile_files_takes_little_memory(tmp_path: Path):
    for i, content in enumerate(HOSTILE.values()):
        (tmp_path / str(i)).write_bytes(content)
    script = """
import resource, sys
from pathlib import Path
from holdfast.core.checkpoint import read_checkpoint

in_use = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
limit = in_use + 200 * 2**20
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
for path in sorted(Path(sys.argv[1]).iterdir()):
    try:
        read_checkpoint(path)
    except MemoryError:
        raise
    except Exception:
        print(path.name)
"""
    done = subprocess.run([sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, check=True)
    assert sorted(done.stdout.split()) == sorted(str(i) for i in range(len(HOSTILE)))
