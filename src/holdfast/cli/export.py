"""`holdfast export`: a saved learner as a file that scores without holdfast."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import torch
import typer

from holdfast import Learner, load_learner
from holdfast.cli.options import Threads, out
from holdfast.core.checkpoint import read_checkpoint
from holdfast.tables import load_table_learner


def export_command(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A file of 'holdfast learn' or Learner.save.")],
    to: Annotated[Path, typer.Argument(metavar="FILE", help="File to write: .onnx, or .pt2 for torch.export.load.")],
    threads: Threads = 1,
) -> None:
    """Write a saved learner as an ONNX or torch.export file that scores without holdfast."""
    torch.set_num_threads(threads)
    learner, about = _loaded(model)
    learner.export(to, about=about)
    out.print(f"wrote {to}: {to.stat().st_size:,} bytes, the same scores as {model} to 1e-5")


def _loaded(path: Path) -> tuple[Learner, dict[str, Any]]:
    """Return the learner of vectors in a file, and what the file says about labels and columns."""
    if not (path.is_file() and isinstance(read_checkpoint(path).get("table"), dict)):
        return load_learner(path), {}
    table = load_table_learner(path)
    return table.learner, {"label": table.label, "labels": table.labels.known, "columns": table.columns.vector_names()}
