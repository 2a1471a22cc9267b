"""Calls that change a learner, in a journal: each is on disk before it is made, and can be made again.

A record of the journal is a call (a name and its arguments), or says that an earlier call was refused. A call is
refused when it raises: it changed nothing then, and a replay leaves it out. Each record also says up to which number
calls had been made when it was written. A call beyond all these numbers may have been interrupted by a crash.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from holdfast.core.journal import CorruptJournal, Journal
from holdfast.core.state import Plain

_LENGTH = struct.Struct("<I")  # of the text before the bytes of arrays
SEGMENT_BYTES = 16 * 2**20
REFUSAL_BYTES = 128  # of disk, kept free for each call that may still be refused


@dataclass(frozen=True)
class Call:
    """A call as the journal holds it.

    Attributes:
        number: of its record.
        note: plain values that belong to the call and are no arguments.
    """

    number: int
    name: str
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)
    note: dict[str, Any] = field(default_factory=dict)


class CallJournal:
    """A journal of calls in a folder; see `Journal` for what it promises.

    Args:
        folder: of the journal; made if it is not there.
        max_bytes: of all records; a call beyond raises OSError before it is made.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with CallJournal(folder) as journal, journal.recorded("observe", ([1.0], [0])):
        ...         pass  # here the call is made
        ...     with CallJournal(folder) as again:
        ...         [(call.name, call.args) for call in again.calls()]
        [('observe', ([1.0], [0]))]
    """

    def __init__(self, folder: str | Path, *, max_bytes: int | None = None, segment_bytes: int = SEGMENT_BYTES) -> None:
        self.journal = Journal(folder, segment_bytes=segment_bytes)
        self.max_bytes = max_bytes
        self._failed: BaseException | None = None
        self.made = self.journal.last  # calls up to this number were made or refused; `replay` says it anew

    def __enter__(self) -> CallJournal:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def last(self) -> int:
        """Number of the last record."""
        return self.journal.last

    @property
    def nbytes(self) -> int:
        """Bytes on disk."""
        return self.journal.nbytes

    @property
    def is_broken(self) -> bool:
        """Tell if the disk failed so that nobody knows what is on it: open the journal again."""
        return self._failed is not None or self.journal.is_broken

    def write(
        self,
        name: str,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        note: Mapping[str, Any] | None = None,
    ) -> int:
        """Write a call without waiting for the disk; returns its number, which `sync` takes.

        TypeError for an argument that cannot be written: nothing is written then.
        """
        content = {"call": name, "args": list(args), "kwargs": dict(kwargs or {}), "note": dict(note or {})}
        record = packed({**content, "made": self.made})
        self._check_room(len(record))
        return self.journal.write(record)

    def sync(self, number: int) -> None:
        """Wait until the call with this number is on disk; calls that wait together share one sync."""
        self.journal.sync(number)

    def settle(self, number: int) -> None:
        """Say that the call was made. Calls are made in the order of their numbers."""
        self.made = number

    def refuse(self, number: int) -> None:
        """Say that the call raised and changed nothing; returns when that is on disk.

        If that fails, the journal takes no more calls: opened again, it tries the call once more.
        """
        try:
            self.journal.append(packed({"refused": number, "made": self.made}))
        except BaseException as error:
            self._failed = error
            raise
        self.made = number

    @contextmanager
    def recorded(
        self,
        name: str,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        *,
        was_made: Callable[[], bool] = bool,
    ) -> Iterator[int]:
        """Context manager: the call is on disk before the body makes it, and is refused if the body raises.

        Args:
            was_made: tells if a body that raised made the call all the same: Ctrl-C can come after its last line.
        """
        before = self.last
        try:
            number = self.write(name, args, kwargs)
            self.sync(number)
            yield number
        except BaseException:
            if self.last > before and not self.is_broken:  # it was written
                (self.settle if was_made() else self.refuse)(before + 1)
            raise
        self.settle(number)

    def calls(self, after: int = 0) -> Iterator[Call]:
        """Yield the calls with numbers above `after` that were not refused."""
        refused, _ = self._marks(after)
        for number, content in self._contents(after):
            if "call" in content and number not in refused:
                yield _call(number, content)

    def replay(self, make: Callable[[Call], object], after: int = 0) -> int:
        """Make the calls above `after` again, in their order; returns how many were made.

        A call that raises is refused if a crash can have come before that was written. Otherwise CorruptJournal.

        Args:
            make: makes one call.
            after: what a checkpoint holds; CorruptJournal if records between it and the journal are missing.
        """
        if after > self.journal.last or after + 1 < self.journal.first():
            raise CorruptJournal(
                f"the journal {self.journal.folder} holds the records {self.journal.first()} to {self.journal.last}, "
                f"but the checkpoint holds those up to {after}: load the checkpoint that belongs to it"
            )
        refused, made = self._marks(after)
        n_made = 0
        for number, content in self._contents(after):
            if "call" not in content or number in refused:
                continue
            try:
                make(_call(number, content))
            except Exception as error:
                if number <= made:
                    raise CorruptJournal(
                        f"call {number} of the journal {self.journal.folder} was made before and now raises: {error}"
                    ) from error
                self.refuse(number)
                continue
            n_made += 1
            self.made = number
        self.made = self.journal.last
        return n_made

    def forget(self, up_to: int) -> None:
        """Delete what a checkpoint holds, as far as whole files are concerned."""
        self.journal.forget(up_to)

    def close(self) -> None:
        """Sync, and let go of the folder."""
        self.journal.close()

    def _check_room(self, n_bytes: int) -> None:
        if self._failed is not None:
            raise OSError(f"the journal {self.journal.folder} could not be written ({self._failed}): open it again")
        wanted = self.nbytes + n_bytes + REFUSAL_BYTES * (self.last + 1 - self.made)
        if self.max_bytes is not None and wanted > self.max_bytes:
            raise OSError(
                f"the journal {self.journal.folder} holds {self.nbytes:,} bytes and may hold {self.max_bytes:,}: "
                "save the learner, which empties it, or give it a larger bound"
            )

    def _marks(self, after: int) -> tuple[set[int], int]:
        """Give the refused numbers, and the number up to which calls are known to have been made."""
        refused: set[int] = set()
        made = 0
        for _, content in self._contents(after):
            made = max(made, content["made"])
            if "refused" in content:
                refused.add(content["refused"])
        return refused, made

    def _contents(self, after: int) -> Iterator[tuple[int, dict[str, Any]]]:
        last = self.journal.last  # records that are appended while these are read are no part of them
        for record in self.journal.records(after):
            if record.number > last:
                return
            content = unpacked(record.content)
            if not _is_record(content):
                raise CorruptJournal(f"record {record.number} of the journal {self.journal.folder} is no call")
            yield record.number, content


def packed(value: Any) -> bytes:
    """Return plain values, lists, tuples, dicts, tensors and arrays as bytes; TypeError for anything else.

    Example:
        >>> unpacked(packed({"x": torch.ones(2), "label": ("cat", None)}))
        {'x': tensor([1., 1.]), 'label': ('cat', None)}
    """
    blocks: list[bytes] = []
    text = json.dumps(_encoded(value, blocks), separators=(",", ":")).encode()
    return b"".join([_LENGTH.pack(len(text)), text, *blocks])


def unpacked(content: bytes) -> Any:
    """Return what `packed` made bytes of; CorruptJournal for any other bytes."""
    try:
        return _unpacked(content)
    except (struct.error, ValueError, TypeError, KeyError, AttributeError, IndexError, RuntimeError) as error:
        raise CorruptJournal(f"a record of a journal is not what was written: {error}") from error


def _unpacked(content: bytes) -> Any:
    (length,) = _LENGTH.unpack_from(content)
    at = _LENGTH.size + length

    def decoded(tree: Any) -> Any:
        nonlocal at
        if isinstance(tree, list):
            return [decoded(item) for item in tree]
        if not isinstance(tree, dict):
            return tree
        ((kind, given),) = tree.items()
        if kind == "numbers":
            return given
        if kind == "tuple":
            return tuple(decoded(item) for item in given)
        if kind == "dict":
            return {decoded(key): decoded(item) for key, item in given}
        if kind == "objects":
            shape, items = given
            array = np.empty(len(items), dtype=object)
            array[:] = [decoded(item) for item in items]
            return array.reshape(shape)
        dtype, shape, n_bytes = given
        block = bytearray(content[at : at + n_bytes])
        at += n_bytes
        if kind == "array":
            return np.frombuffer(block, dtype=dtype).reshape(shape)
        if kind == "number":
            return np.frombuffer(block, dtype=dtype)[0]
        kind_of_number = getattr(torch, dtype)
        if not block:
            return torch.tensor([], dtype=kind_of_number).reshape(shape)  # which refuses any other size
        return torch.frombuffer(block, dtype=torch.uint8).view(kind_of_number).reshape(shape)

    return decoded(json.loads(content[_LENGTH.size : at]))


def _is_record(content: Any) -> bool:
    """Return True for a call, or for the number of one that was refused."""
    if not isinstance(content, dict) or type(content.get("made")) is not int:
        return False
    if "call" not in content:
        return type(content.get("refused")) is int
    kinds = {"call": str, "args": list, "kwargs": dict, "note": dict}
    return all(isinstance(content.get(name), kind) for name, kind in kinds.items()) and all(
        isinstance(name, str) for name in content["kwargs"]
    )


def _call(number: int, content: dict[str, Any]) -> Call:
    return Call(number, content["call"], tuple(content["args"]), content["kwargs"], content["note"])


def _encoded(value: Any, blocks: list[bytes]) -> Any:
    """Return `value` as JSON; the bytes of arrays are put into `blocks`, in the order in which they are decoded."""
    if isinstance(value, Plain):
        return _plain(value)
    if isinstance(value, list):
        if all(type(item) in (int, float) for item in value):
            return {"numbers": value}
        return [_encoded(item, blocks) for item in value]
    if isinstance(value, tuple):
        return {"tuple": [_encoded(item, blocks) for item in value]}
    if isinstance(value, dict):
        return {"dict": [[_encoded(key, blocks), _encoded(item, blocks)] for key, item in value.items()]}
    if isinstance(value, Tensor):
        tensor = value.detach().cpu()
        blocks.append(tensor.flatten().view(torch.uint8).numpy().tobytes() if tensor.numel() else b"")
        return {"tensor": [str(tensor.dtype).removeprefix("torch."), list(tensor.shape), len(blocks[-1])]}
    if isinstance(value, np.ndarray) and value.dtype.kind == "O":
        return {"objects": [list(value.shape), [_encoded(item, blocks) for item in value.ravel().tolist()]]}
    if isinstance(value, np.ndarray | np.generic) and value.dtype.kind in "biufcUS":
        blocks.append(value.tobytes())
        kind = "array" if isinstance(value, np.ndarray) else "number"
        return {kind: [value.dtype.str, list(value.shape), len(blocks[-1])]}
    if hasattr(value, "__array__"):  # a frame or a series, which a learner takes as an array or, if of int64, as a list
        array = np.asarray(value)
        return _encoded(array.tolist() if array.dtype.kind in "iO" else array, blocks)
    raise TypeError(
        f"a {type(value).__name__} cannot be written into the journal: give numbers, texts, lists, tensors or arrays"
    )


def _plain(value: Plain) -> Plain:
    """Return a plain value without the class that it may have been derived from."""
    for kind in (bool, int, float, str):
        if isinstance(value, kind):
            return kind(value)
    return None
