"""State on disk: one file, written aside and renamed, with a checksum; never pickle.

The file is a safetensors file. Its tensors are the tensors of the state; its metadata holds the rest of the state as
JSON, and a SHA-256 over everything. The digest detects a truncated or altered file.

A file may be made to do harm. Tensors are read only as far as the file is long, and each stands in one place of the
state. A tree that would take several times the memory of its file is refused before it is read.
"""

from __future__ import annotations

import hashlib
import json
import warnings
from pathlib import Path
from typing import Any, BinaryIO

import torch
from safetensors import safe_open
from torch import Tensor

from holdfast.core.atomic import replacing
from holdfast.core.state import Plain, State

FORMAT = "holdfast-2"
CHECKPOINT = "checkpoint.safetensors"  # what the checkpoint of a run is called in its folder
_DTYPE_NAMES = {  # by which safetensors knows them
    torch.bool: "BOOL",
    torch.uint8: "U8",
    torch.uint16: "U16",
    torch.uint32: "U32",
    torch.uint64: "U64",
    torch.int8: "I8",
    torch.int16: "I16",
    torch.int32: "I32",
    torch.int64: "I64",
    torch.float8_e4m3fn: "F8_E4M3",
    torch.float8_e5m2: "F8_E5M2",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.float32: "F32",
    torch.float64: "F64",
    torch.complex64: "C64",
}

# Bytes that reading takes, at most: at a quote of the header, of which a tensor has ten, and at a bracket or a comma of
# the tree.
_QUOTE_BYTES, _BRACKET_BYTES, _COMMA_BYTES = 100, 72, 64
_FREE_BYTES = 32 * 2**20  # that any file may take
_MAX_HEADER = 100_000_000  # which safetensors does not exceed


class CorruptCheckpoint(ValueError):
    """A file that is not a whole checkpoint; the message names it and what is wrong."""


def write_checkpoint(path: Path, state: State) -> None:
    """Save `state` so that at every instant a whole checkpoint is at `path`; the one before is kept beside it.

    A full disk, or any other OSError, leaves what was there. Several threads or processes may write to one path: the
    last to end stays.
    """
    write_copy(path, CopiedState(state))


class CopiedState:
    """A copy of a state, ready to be written while the object that it is of goes on changing."""

    def __init__(self, state: State) -> None:
        self.tensors: dict[str, Tensor] = {}
        self.tree = json.dumps(_encoded(state, self.tensors))


def write_copy(path: Path, copied: CopiedState) -> None:
    """Save a copied state as `write_checkpoint` does."""
    tree, tensors = copied.tree, copied.tensors
    metadata = {"format": FORMAT, "state": tree, "sha256": _checksum(tree, tensors)}
    with replacing(path, previous=previous_checkpoint(path)) as file:
        write_tensors(file, tensors, metadata)


def checksum_of(state: State) -> str:
    """Return the SHA-256 of a state, the same as in a file that holds it."""
    tensors: dict[str, Tensor] = {}
    return _checksum(json.dumps(_encoded(state, tensors)), tensors)


def read_checkpoint(path: Path) -> State:
    """Return the state saved at `path`; if the file is damaged or gone, the one before it, with a warning."""
    found = _identity(path)
    try:
        return _read(path)
    except (CorruptCheckpoint, FileNotFoundError) as error:
        if _identity(path) != found:  # a writer has replaced the file while it was read, in more than one opening
            return read_checkpoint(path)
        previous = previous_checkpoint(path)
        if not previous.exists():
            raise
        state = _read(previous)
        warnings.warn(f"{error}; going on from the one before, {previous.name}", stacklevel=2)
        return state


def read_plain(path: Path) -> dict[str, Plain]:
    """Read the numbers and texts at the top of the state at `path`, and no tensor; CorruptCheckpoint if it is none.

    The checksum, which is over the tensors too, is not checked: this is for telling how far a run is.
    """
    try:
        if not path.is_file():
            raise CorruptCheckpoint(f"{path} is no checkpoint: it is not a regular file")
        _check_header(path)
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
        if metadata.get("format") != FORMAT:
            raise CorruptCheckpoint(f"{path} is no checkpoint of this version")
        _check_tree(metadata["state"], path.stat().st_size)
        pairs = json.loads(metadata["state"])["dict"]
        return {
            str(name): value for name, value in pairs if value is None or isinstance(value, bool | int | float | str)
        }
    except CorruptCheckpoint:
        raise
    except Exception as error:  # whatever a file made to do harm leads to
        raise CorruptCheckpoint(f"{path} is damaged: {error or type(error).__name__}") from error


def previous_checkpoint(path: Path) -> Path:
    """Return the path of the checkpoint before the one at `path`."""
    return path.with_name(f"{path.name}.previous")


def _identity(path: Path) -> tuple[int, int] | None:
    """Tell the file at `path` from others that are or were there."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns


def _read(path: Path) -> State:
    if not path.exists():
        raise FileNotFoundError(f"no checkpoint at {path}")
    if not path.is_file():
        raise CorruptCheckpoint(f"{path} is no checkpoint: it is not a regular file")
    try:
        _check_header(path)
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            if metadata.get("format") != FORMAT:
                found = str(metadata.get("format"))[:40]
                raise CorruptCheckpoint(f"{path} is no checkpoint of this version ({found}, not {FORMAT}): begin anew")
            _check_tree(metadata["state"], path.stat().st_size)
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  (not a dict)
        if _checksum(metadata["state"], tensors) != metadata.get("sha256"):
            raise CorruptCheckpoint(f"{path} is damaged: its checksum does not fit its content")
        state = _decoded(metadata["state"], tensors)
    except (CorruptCheckpoint, OSError):
        raise
    except Exception as error:  # whatever a file made to do harm leads to
        raise CorruptCheckpoint(f"{path} is damaged: {error or type(error).__name__}") from error
    if not isinstance(state, dict):
        raise CorruptCheckpoint(f"{path} holds a {type(state).__name__}, not the state of a learner or a run")
    return state


def _check_header(path: Path) -> None:
    """Raise if a file states so many names that to read these alone would take several times its size."""
    with path.open("rb") as file:
        header = file.read(min(int.from_bytes(file.read(8), "little"), _MAX_HEADER))
    n_quotes = header.count(b'"') - header.count(b'\\"')  # a pair around each name and each text
    _check_cost(_QUOTE_BYTES * n_quotes, path.stat().st_size)


def _check_tree(tree: str, n_bytes: int) -> None:
    """Raise if the tree in a file of `n_bytes` would take several times that."""
    n_brackets = tree.count("[") + tree.count("{")
    _check_cost(_BRACKET_BYTES * n_brackets + _COMMA_BYTES * tree.count(","), n_bytes)


def _check_cost(cost: int, n_bytes: int) -> None:
    if cost > 4 * n_bytes + _FREE_BYTES:
        raise ValueError(f"its {n_bytes:,} bytes would take {cost:,} to read")


def write_tensors(file: BinaryIO, tensors: dict[str, Tensor], metadata: dict[str, str]) -> None:
    """Write a safetensors file, a tensor after the other.

    The library's own writer makes a copy of everything, and a second temporary file that a kill leaves behind.
    """
    if unknown := sorted({str(tensor.dtype) for tensor in tensors.values() if tensor.dtype not in _DTYPE_NAMES}):
        raise TypeError(f"tensors of {', '.join(unknown)} cannot be saved: convert them")
    ordered = sorted(tensors.items(), key=lambda item: -item[1].element_size())  # so that each begins at a whole one
    header: dict[str, Any] = {"__metadata__": metadata}
    end = 0
    for name, tensor in ordered:
        begin, end = end, end + tensor.nbytes
        shape = list(tensor.shape)
        header[name] = {"dtype": _DTYPE_NAMES[tensor.dtype], "shape": shape, "data_offsets": [begin, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    file.write(len(text).to_bytes(8, "little") + text)
    for _, tensor in ordered:
        file.write(_bytes_of(tensor))


def _bytes_of(tensor: Tensor) -> memoryview:
    return tensor.flatten().view(torch.uint8).numpy().data


def _checksum(tree: str, tensors: dict[str, Tensor]) -> str:
    digest = hashlib.sha256(tree.encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"\n{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(_bytes_of(tensor))
    return digest.hexdigest()


def _encoded(value: Any, tensors: dict[str, Tensor]) -> Any:
    """Return `value` as JSON; its tensors go into `tensors`, since JSON has no tensors, tuples or keys of numbers."""
    if isinstance(value, Tensor):
        name = f"{len(tensors):06d}"
        # A clone: safetensors refuses tensors that share memory, and `state` may hold views.
        tensors[name] = value.detach().cpu().clone(memory_format=torch.contiguous_format)
        return {"tensor": name}
    if isinstance(value, dict):
        pairs = [[_encoded(key, tensors), _encoded(item, tensors)] for key, item in value.items()]
        return {"dict": pairs}
    if isinstance(value, tuple):
        return {"tuple": [_encoded(item, tensors) for item in value]}
    if isinstance(value, list):
        return [_encoded(item, tensors) for item in value]
    return value


def _decoded(tree: str, tensors: dict[str, Tensor]) -> Any:
    """Return the state that `_encoded` made a tree of; each tensor stands in one place."""
    unplaced = dict(tensors)

    def decoded(pairs: list[tuple[str, Any]]) -> Any:
        (kind, content), *others = pairs or [("nothing", None)]
        if kind == "tensor" and not others:
            if content not in unplaced:
                raise ValueError(f"tensor {content!r} is in two places, or not there at all")
            return unplaced.pop(content)
        if kind not in ("tuple", "dict") or others or not isinstance(content, list):
            raise ValueError(f"its tree has a {kind!r} that no state has")
        return tuple(content) if kind == "tuple" else _decoded_dict(content)

    state = json.loads(tree, object_pairs_hook=decoded)
    if unplaced:
        raise ValueError(f"{len(unplaced)} of its tensors are in no place of the state")
    return state


def _decoded_dict(pairs: list[Any]) -> dict[Any, Any]:
    found = dict(pairs)
    if len(found) != len(pairs) or not all(_is_key(key) for key in found):
        raise ValueError("a dict in its tree has a key twice, or one that is no number, text or tuple of such")
    return found


def _is_key(value: Any) -> bool:
    return isinstance(value, Plain) or (isinstance(value, tuple) and all(_is_key(item) for item in value))
