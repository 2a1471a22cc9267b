"""State on disk: one file, written aside and renamed, with a checksum; never pickle.

The file is a safetensors file. Its tensors are the tensors of the state; its metadata holds the rest of the
state as JSON and a SHA-256 over everything, so that a truncated or altered file is told from a whole one.
Tensors are read only as far as the file is long, so a hostile header cannot make the reader allocate more.
"""

from __future__ import annotations

import hashlib
import json
import os
import warnings
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from holdfast.core.state import State

FORMAT = "holdfast-1"


class CorruptCheckpoint(ValueError):
    """A file that is not a whole checkpoint; the message names it and what is wrong."""


def write_checkpoint(path: Path, state: State) -> None:
    """Save `state` so that at every instant a whole checkpoint is on disk; the one before is kept beside it."""
    tensors: dict[str, Tensor] = {}
    tree = json.dumps(_encoded(state, tensors))
    metadata = {"format": FORMAT, "state": tree, "sha256": _checksum(tree, tensors)}
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f"{path.name}.{os.getpid()}.writing")
    try:
        save_file(tensors, aside, metadata=metadata)
        with aside.open("rb") as file:
            os.fsync(file.fileno())
        if path.exists():
            path.replace(previous_checkpoint(path))
        aside.replace(path)
    except (OSError, SafetensorError) as error:
        raise OSError(f"could not write {path}: {error}; what was there before is kept") from error
    finally:
        aside.unlink(missing_ok=True)
    sync_folder(path.parent)


def read_checkpoint(path: Path) -> State:
    """The state saved at `path`; if that file is damaged or gone, the one before it, with a warning."""
    try:
        return _read(path)
    except (CorruptCheckpoint, FileNotFoundError) as error:
        previous = previous_checkpoint(path)
        if not previous.exists():
            raise
        state = _read(previous)
        warnings.warn(f"{error}; going on from the one before, {previous.name}", stacklevel=2)
        return state


def previous_checkpoint(path: Path) -> Path:
    """Where the checkpoint before the one at `path` is kept."""
    return path.with_name(f"{path.name}.previous")


def sync_folder(folder: Path) -> None:
    """Make renames in `folder` last through a power cut."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _read(path: Path) -> State:
    if not path.exists():
        raise FileNotFoundError(f"no checkpoint at {path}")
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            if metadata.get("format") != FORMAT:
                raise CorruptCheckpoint(f"{path} is no checkpoint of this version ({FORMAT})")
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


def _checksum(tree: str, tensors: dict[str, Tensor]) -> str:
    digest = hashlib.sha256(tree.encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"\n{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.flatten().view(torch.uint8).numpy().data)
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
