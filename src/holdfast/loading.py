"""Learners read from files, which may come from strangers."""

from __future__ import annotations

from pathlib import Path

import torch
from pydantic import ValidationError
from torch import nn

from holdfast.core.calls import CallJournal
from holdfast.core.checkpoint import CHECKPOINT, CorruptCheckpoint, read_checkpoint
from holdfast.core.journaled import MARK
from holdfast.core.options import readable
from holdfast.core.state import State
from holdfast.learner import Learner
from holdfast.saved import stored_settings


def load_learner(
    path: str | Path,
    *,
    backbone: nn.Module | None = None,
    device: str | torch.device = "cpu",
    trust_code: bool = False,
    journal: str | Path | CallJournal | None = None,
) -> Learner:
    """Load the learner saved at `path`; if that file is damaged, the one saved before it, with a warning.

    Args:
        path: what `Learner.save` wrote, or the checkpoint of a run, or the folder of a run.
        backbone: the module that the learner was built with, if it was one of your own.
        trust_code: also import classes of other packages that the file names ('package.module:Class'). Only for
            files that you made: importing runs code.
        journal: of the learner that was saved. What it learned after it was saved is learned again.

    A file may come from a stranger. It is checked before anything of a size that it states is allocated. A file that
    is not the state of a learner raises CorruptCheckpoint or another ValueError.

    Example:
        >>> import tempfile
        >>> learner = Learner("er", n_classes=2)
        >>> loss = learner.observe([[0.0, 1.0], [1.0, 0.0]], [0, 1])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     learner.save(f"{folder}/learner.holdfast")
        ...     again = load_learner(f"{folder}/learner.holdfast")
        >>> again.n_observed
        1
    """
    path = Path(path)
    state = read_checkpoint(path / CHECKPOINT if path.is_dir() else path)
    learner = Learner(backbone="mlp" if backbone is None else backbone, device=device)
    try:
        if "settings" not in state and isinstance(state.get("learner"), dict):
            state = state["learner"]  # of a run
        learner.settings = stored_settings(state["settings"])
        needs_backbone = state["own_backbone"] and backbone is None
    except Exception as error:
        raise _not_a_learner(path, error) from error
    parts = [getattr(learner.settings, field) for field in ("method", "backbone", "selection", "retrieval")]
    if not trust_code and (foreign := [part.name for part in parts if ":" in part.name]):
        raise ValueError(
            f"{path} names code of another package ({foreign[0]}): load it with trust_code=True if you made it"
        )
    if needs_backbone:
        raise ValueError(f"{path} was saved with a backbone of your own: pass it as load_learner(path, backbone=…)")
    try:
        learner.load_state_dict(state)
    except Exception as error:  # whatever a file made to do harm leads to
        raise _not_a_learner(path, error) from error
    if journal is not None:
        learner.journal_into(journal, after=_number_of(state, path))
    return learner


def _number_of(state: State, path: Path) -> int:
    """Return the number of the last record of its journal that a saved learner holds; 0 if it had none."""
    number = state.get(MARK, 0)
    if type(number) is not int or number < 0:
        raise CorruptCheckpoint(f"{path} does not say which record of its journal is the last that it holds")
    return number


def _not_a_learner(path: Path, error: Exception) -> CorruptCheckpoint:
    what = readable(error) if isinstance(error, ValidationError) else error or type(error).__name__
    return CorruptCheckpoint(f"{path} is not the state of a learner: {what}")
