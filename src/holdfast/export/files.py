"""Write a learner as one file that other programs load: ONNX, or an exported program of torch."""

from __future__ import annotations

import io
import json
import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from holdfast.core.atomic import replacing
from holdfast.core.extras import how_to_install
from holdfast.export.networks import Network, NotExportable
from holdfast.methods._base import Method

METADATA = "holdfast"  # where the metadata of the learner stand, in files of both kinds
SUFFIXES = (".onnx", ".pt2")
TOLERANCE = 1e-5  # of scores; times the largest of them where that is above 1

Run = Callable[[Tensor, Tensor | None], Tensor]  # inputs (n, …), tasks (n,) or None → scores (n, n_classes)


class ExportDiffers(ValueError):
    """A file that would not compute what the learner computes; nothing was written."""


def export_method(path: Path, method: Method, example: Tensor, metadata: dict[str, Any]) -> None:
    """Write what a method predicts with to `path`, a .onnx or .pt2 file, if that computes the same scores.

    Args:
        example: (n, …) two inputs or more, in the dtype that the file is to take. File and method are compared on them.
        metadata: plain values, stored in the file as JSON.
    """
    if path.suffix not in SUFFIXES:
        raise ValueError(f"cannot export to {path.name}: name a file that ends in {' or '.join(SUFFIXES)}")
    if path.suffix == ".onnx" and any(find_spec(name) is None for name in ("onnx", "onnxscript", "onnxruntime")):
        raise ValueError(f"exporting to ONNX needs packages that are not installed: {how_to_install('export')}")
    network = Network(method).eval()
    known = torch.from_numpy(method.model.seen.tasks()) if network.by_task else None
    tasks = None if known is None else known[torch.arange(len(example)) % len(known)]
    with _quiet_exporters():
        make = _onnx if path.suffix == ".onnx" else _pt2
        try:
            program = _program(network, example, tasks)
            content, run = make(program, json.dumps(metadata), by_task=network.by_task)
        except Exception as error:  # of many kinds: each package has its own
            reason = (str(error).strip() or type(error).__name__).splitlines()[0]
            taker = "ONNX Runtime" if path.suffix == ".onnx" else "torch.export"
            raise NotExportable(f"the network of this learner does not pass through {taker}: {reason}") from error
    for n in (len(example), 1):  # the file takes batches of any size, not only of the traced one
        _compare(run, method, example[:n], None if tasks is None else tasks[:n])
    with replacing(path) as file:
        file.write(content)


def _program(network: Network, x: Tensor, tasks: Tensor | None) -> torch.export.ExportedProgram:
    given = (x,) if tasks is None else (x, tasks)
    any_size = tuple({0: torch.export.Dim.DYNAMIC} for _ in given)
    with torch.no_grad():
        return torch.export.export(network, given, dynamic_shapes=any_size)


def _onnx(program: torch.export.ExportedProgram, metadata: str, *, by_task: bool) -> tuple[bytes, Run]:
    import onnxruntime

    names = ["x", "task"] if by_task else ["x"]
    made = torch.onnx.export(program, dynamo=True, verbose=False, input_names=names, output_names=["scores"])
    assert made is not None
    model = made.model_proto
    entry = model.metadata_props.add()
    entry.key, entry.value = METADATA, metadata
    content: bytes = model.SerializeToString()
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])

    def run(x: Tensor, task: Tensor | None) -> Tensor:
        given = zip(names, (x,) if task is None else (x, task), strict=True)
        (scores,) = session.run(["scores"], {name: tensor.numpy() for name, tensor in given})
        return torch.from_numpy(scores)

    return content, run


def _pt2(program: torch.export.ExportedProgram, metadata: str, *, by_task: bool) -> tuple[bytes, Run]:
    file = io.BytesIO()
    torch.export.save(program, file, extra_files={METADATA: metadata})
    content = file.getvalue()
    network = torch.export.load(io.BytesIO(content)).module()

    def run(x: Tensor, task: Tensor | None) -> Tensor:
        with torch.no_grad():
            scores: Tensor = network(x, task) if by_task else network(x)
        return scores

    return content, run


def _compare(run: Run, method: Method, x: Tensor, task: Tensor | None) -> None:
    """Raise ExportDiffers unless both compute the same scores, and so the same classes."""
    found = run(x, task)
    device, no_task = method.model.device, torch.full((len(x),), -1)
    with method.settled():
        expected = method.scores(x.to(device), (no_task if task is None else task).to(device)).cpu()
    there = torch.isfinite(expected)
    if found.shape != expected.shape or not torch.equal(there, torch.isfinite(found)):
        raise ExportDiffers("the exported file would let other classes compete than the learner: nothing was written")
    largest = max(1.0, expected[there].abs().max().item())
    apart = (found[there] - expected[there]).abs().max().item()
    if not apart <= TOLERANCE * largest:
        raise ExportDiffers(
            f"the scores of the exported file would differ from the learner's by {apart:.2g}, and the largest score is "
            f"{largest:.2g}: nothing was written"
        )


@contextmanager
def _quiet_exporters() -> Iterator[None]:
    """Context manager: keep back what torch's exporters warn of, which is about their own code."""
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "torch.fx.experimental.symbolic_shapes")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
