"""State on disk: one file, written aside and renamed, with a checksum; never pickle.

The file is a safetensors file. Its tensors are the tensors of the state; its metadata holds the rest of the
state as JSON and a SHA-256 over everything, so that a truncated or altered file is told from a whole one.
Tensors are read only as far as the file is long, so a hostile header cannot make the reader allocate more.
"""

from __future__ import annotations

import hashlib
import json
import warnings
from pathlib import Path
from typing import Any, BinaryIO

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from holdfast.core.atomic import replacing
from holdfast.core.state import State

FORMAT = "holdfast-2"
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


class CorruptCheckpoint(ValueError):
    """A file that is not a whole checkpoint; the message names it and what is wrong."""


def write_checkpoint(path: Path, state: State) -> None:
    """Save `state` so that at every instant a whole checkpoint is at `path`; the one before is kept beside it.

    A full disk, or any other OSError, leaves what was there. Several threads or processes may write to one path: the
    last to end stays.
    """
    tensors: dict[str, Tensor] = {}
    tree = json.dumps(_encoded(state, tensors))
    metadata = {"format": FORMAT, "state": tree, "sha256": _checksum(tree, tensors)}
    with replacing(path, previous=previous_checkpoint(path)) as file:
        write_tensors(file, tensors, metadata)


def read_checkpoint(path: Path) -> State:
    """The state saved at `path`; if that file is damaged or gone, the one before it, with a warning."""
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


def previous_checkpoint(path: Path) -> Path:
    """Where the checkpoint before the one at `path` is kept."""
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
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            if metadata.get("format") != FORMAT:
                found = metadata.get("format")
                raise CorruptCheckpoint(f"{path} is no checkpoint of this version ({found}, not {FORMAT}): begin anew")
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  (not a dict)
        if _checksum(metadata["state"], tensors) != metadata.get("sha256"):
            raise CorruptCheckpoint(f"{path} is damaged: its checksum does not fit its content")
        state = _decoded(json.loads(metadata["state"]), tensors)
    except CorruptCheckpoint:
        raise
    except (SafetensorError, LookupError, TypeError, ValueError, RecursionError) as error:
        raise CorruptCheckpoint(f"{path} is damaged: {error}") from error
    if not isinstance(state, dict):
        raise CorruptCheckpoint(f"{path} holds a {type(state).__name__}, not the state of a learner or a run")
    return state


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
    """`value` as JSON; its tensors go into `tensors`, since JSON has none, nor tuples, nor keys but strings."""
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


def _decoded(value: Any, tensors: dict[str, Tensor]) -> Any:
    if isinstance(value, list):
        return [_decoded(item, tensors) for item in value]
    if not isinstance(value, dict):
        return value
    (kind, content), *_ = value.items()
    if kind == "tensor":
        return tensors[content]
    if kind == "tuple":
        return tuple(_decoded(item, tensors) for item in content)
    return {_decoded(key, tensors): _decoded(item, tensors) for key, item in content}
