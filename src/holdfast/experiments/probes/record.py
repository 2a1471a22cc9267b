"""A record to look at: features of the first task as they drift, and the memory at the end.

The record is a file beside the result. A run with a record ends with the same bits as one without.
"""

from __future__ import annotations

import lzma
import math
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from holdfast.core.checkpoint import CorruptCheckpoint, previous_checkpoint, read_checkpoint, write_checkpoint
from holdfast.core.drift import spread
from holdfast.core.state import State
from holdfast.data.untrusted import read_at_most
from holdfast.experiments.experiment import Experiment
from holdfast.experiments.probes._base import Probe, in_turn
from holdfast.learner import Learner
from holdfast.memory.selection._base import keys_of
from holdfast.memory.storage import Memory
from holdfast.methods._base import ReplayMethod
from holdfast.streams._base import Stream, Task

RECORD = "record.safetensors"
RECORD_PACKED = f"{RECORD}.xz"  # as results/ has it
XZ_FILTERS = [{"id": lzma.FILTER_LZMA2, "preset": 9, "lc": 2, "lp": 1, "pb": 1}]  # numbers of two bytes
MAX_BYTES = 64 * 2**20  # of a record that is unpacked
N_SAMPLES = 300  # of the first task's test samples
N_COMPONENTS = 50  # of their features: as many as are usual before t-SNE, and a file of some hundred kB
N_THUMBNAILS = 200
THUMBNAIL_SIDE = 32


@dataclass(frozen=True)
class StoredSamples:
    """Content of a memory of n samples.

    Attributes:
        y, task: (n,) class and task.
        step: (n,) the batch of the stream, counted over all tasks from 0, that brought the sample; -1 if not found.
        distance: (n,) of the stored feature to its centroid; None unless the selection forms prototypes.
        thumbnails: (k, height, width, 1 or 3) bytes; None if inputs are no images.
        shown: (k,) the samples that the thumbnails are of.
    """

    y: Tensor
    task: Tensor
    step: Tensor
    distance: Tensor | None
    thumbnails: Tensor | None
    shown: Tensor


@dataclass(frozen=True)
class Record:
    """Record of a finished run.

    Attributes:
        digest: of its experiment.
        features: (tasks, n, d) of the same n samples of the first task after each task, in units of their spread when
            just learned: the principal components of all of them, `share` of whose variance they have. None if the
            tasks were not learned in turn.
        y: (n,) their classes.
        n_steps: batches that were learned.
        memory: what it held at the end; None for a method without one.
    """

    digest: str
    features: Tensor | None
    y: Tensor
    share: float
    n_steps: int
    memory: StoredSamples | None


@dataclass(kw_only=True, eq=False)
class Recorder(Probe):
    """Features of the first task as they drift, and the memory at the end, in a file beside the result.

    Attributes:
        features: (n, d) of the first task after each task.
    """

    follows: ClassVar = "tasks"

    features: list[Tensor] = field(default_factory=list, init=False)

    def after_task(self, learner: Learner, tests: Sequence[Task]) -> None:
        if in_turn(tests, len(self.features)):
            first_test = tests[0].test
            self.features.append(learner.features(first_test[_evenly(len(first_test), N_SAMPLES)].x).cpu())

    def finish(self, learner: Learner) -> None:
        """Write the record, whole or not at all."""
        experiment, stream = self.plan.experiment, self.plan.stream
        first_test = stream[0].test
        components, share = _components(torch.stack(self.features)) if self.features else (None, 0.0)
        record = {
            "digest": experiment.digest,
            "features": components,
            "y": first_test.y[_evenly(len(first_test), N_SAMPLES)],
            "share": share,
            "n_steps": sum(task.n_steps(experiment.batch_size) for task in stream),
            "memory": _stored(learner.method, experiment, stream) if isinstance(learner.method, ReplayMethod) else None,
        }
        path = self.plan.folder / RECORD
        write_checkpoint(path, record)
        previous_checkpoint(path).unlink(missing_ok=True)  # of a run that was killed after it had written this


def record_in(folder: Path) -> Path | None:
    """Return the file of the record in a folder of a run; None if there is none.

    Example:
        >>> record_in(Path("no_such_folder"))
    """
    return next((folder / name for name in (RECORD, RECORD_PACKED) if (folder / name).exists()), None)


def read_record(path: Path) -> Record:
    """Return the record in a file; ValueError naming the file if it is none or damaged."""
    content = _unpacked(path) if path.name == RECORD_PACKED else read_checkpoint(path)
    try:
        memory = content.pop("memory")
        record = Record(**content, memory=None if memory is None else StoredSamples(**memory))
        whole = _is_whole(record)
    except (LookupError, TypeError, AttributeError, ValueError, RuntimeError) as error:
        raise CorruptCheckpoint(f"{path} is no record of a run: {error}") from error
    if not whole:
        raise CorruptCheckpoint(f"{path} is no record of a run: its parts do not fit together")
    return record


def _unpacked(path: Path) -> State:
    """Read a compressed file, of no more than MAX_BYTES."""
    unpacking = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=2 * MAX_BYTES)
    try:
        content = unpacking.decompress(read_at_most(path, MAX_BYTES), max_length=MAX_BYTES)
    except (lzma.LZMAError, ValueError) as error:
        raise CorruptCheckpoint(f"{path} is no record of a run: {error}") from error
    if not unpacking.eof:
        raise CorruptCheckpoint(f"{path} is no record of a run: it ends early, or is too large")
    with tempfile.TemporaryDirectory(prefix="holdfast-record-") as folder:
        whole = Path(folder) / RECORD
        whole.write_bytes(content)
        try:
            return read_checkpoint(whole)
        except CorruptCheckpoint as error:
            raise CorruptCheckpoint(str(error).replace(str(whole), str(path))) from error


def _is_whole(record: Record) -> bool:
    checks = [isinstance(record.digest, str), isinstance(record.share, float), isinstance(record.n_steps, int)]
    if record.features is not None:
        checks += [record.features.ndim == 3, record.features.shape[1:2] == record.y.shape]
        checks += [record.features.numel() > 0, bool(record.features.isfinite().all())]
    if memory := record.memory:
        columns = [memory.y, memory.task, memory.step, *([] if memory.distance is None else [memory.distance])]
        checks += [column.shape == (len(memory.y),) for column in columns]
        if memory.thumbnails is not None:
            k, height, width, n_channels = memory.thumbnails.shape
            checks += [memory.thumbnails.dtype == torch.uint8, memory.shown.shape == (k,), n_channels in (1, 3)]
            checks += [0 < k <= N_THUMBNAILS, 0 < height <= THUMBNAIL_SIDE, 0 < width <= THUMBNAIL_SIDE]
            checks += [int(memory.shown.min()) >= 0, int(memory.shown.max()) < len(memory.y)]
    return all(checks)


def _evenly(n: int, k: int) -> Tensor:
    """Return up to k rows, evenly over n, since test sets may be sorted by class."""
    k = min(n, k)
    return torch.arange(k) * n // k


def _components(features: Tensor) -> tuple[Tensor, float]:
    """Return (tasks, n, ≤ 50) principal components of (tasks, n, d), in spreads of the first, and their share."""
    flat = features.double().flatten(0, 1)
    flat = flat - flat.mean(dim=0)
    variances, directions = torch.linalg.eigh(flat.T @ flat)  # ascending
    components = flat @ directions.flip(1)[:, :N_COMPONENTS] / max(spread(features[0]), 1e-12)
    limit = torch.finfo(torch.float16).max
    share = float(variances.flip(0)[:N_COMPONENTS].sum() / variances.sum().clamp(min=1e-300))
    return components.clamp(-limit, limit).half().unflatten(0, features.shape[:2]), min(share, 1.0)


def _stored(method: ReplayMethod, experiment: Experiment, stream: Stream) -> dict[str, Any] | None:
    """Return the fields of StoredSamples; None of an empty memory."""
    memory = method.memory
    if not len(memory):
        return None
    by_task_and_class = sorted(range(len(memory)), key=keys_of(memory).__getitem__)
    shown = torch.tensor(by_task_and_class)[_evenly(len(memory), N_THUMBNAILS)]
    return {
        "y": memory.y.cpu().clone(),
        "task": memory.task.cpu().clone(),
        "step": _arrivals(memory, experiment, stream),
        "distance": method.selection.distances(memory),
        "thumbnails": _thumbnails(memory.x.cpu()[shown], stream.scale),
        "shown": shown,
    }


def _arrivals(memory: Memory, experiment: Experiment, stream: Stream) -> Tensor:
    """Return (n,), the batch that brought each stored sample, found by reading the stream again; -1 if not found.

    So the memory need not keep it, which would cost bytes of every slot. Of equal samples the last counts.
    """
    stored = [row.tobytes() for row in memory.x.cpu().numpy()]
    step_by_sample = dict.fromkeys(stored, -1)
    step = 0
    for task in stream:
        for number in range(task.n_steps(experiment.batch_size)):
            for row in task.batch(number, size=experiment.batch_size, seed=experiment.seed).x.numpy():
                if (key := row.tobytes()) in step_by_sample:
                    step_by_sample[key] = step
            step += 1
    return torch.tensor([step_by_sample[key] for key in stored])


def _thumbnails(x: Tensor, scale: float) -> Tensor | None:
    """Return (k, height, width, channels) bytes of inputs (k, …); None if they are no images.

    Bytes in a row that fill a square, such as digits, are drawn as one.
    """
    side = math.isqrt(x[0].numel())
    if x.ndim == 2 and x.dtype == torch.uint8 and 1 < side <= THUMBNAIL_SIDE and side**2 == x.shape[1]:
        x = x.reshape(len(x), 1, side, side)
    if x.ndim != 4 or x.shape[1] not in (1, 3):
        return None
    if x.dtype == torch.uint8:  # those of digits end at 16, which their scale says; photographs may be left unscaled
        low, high = 0.0, 1 / scale if scale < 1 else 255.0
    else:
        low, high = (float(extreme) for extreme in x.aminmax())
    shades = (x.float() - low) / max(high - low, 1e-12)
    longest = max(shades.shape[2:])
    if longest > THUMBNAIL_SIDE:
        sides = [max(1, n * THUMBNAIL_SIDE // longest) for n in shades.shape[2:]]
        shades = F.interpolate(shades, size=sides, mode="area")
    return (255 * shades.clamp(0, 1)).round().to(torch.uint8).permute(0, 2, 3, 1).contiguous()
