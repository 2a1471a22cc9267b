"""Copies of a learner: snapshots, exported files, checkpoints and journals."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from holdfast.core.calls import CallJournal
from holdfast.core.checkpoint import CopiedState, checksum_of, write_copy
from holdfast.core.inputs import Array
from holdfast.core.state import State
from holdfast.learning import Learning
from holdfast.ledger import memory_report
from holdfast.practice import Practice, gone_back
from holdfast.predictor import MOST_EXAMPLES, Snapshot
from holdfast.saved import restored_method, stored_settings


class Keeping(Learning):
    """Base class with what keeps a learner, or a part of it, outside of itself."""

    def snapshot(self) -> Snapshot:
        """Return an immutable predictor of this moment, for any number of threads, while this learner goes on.

        It costs a copy of the weights, and not of the memory. See `Snapshot`.
        """
        with self._turn(), self._lock:
            return Snapshot(
                self.method.copy_for_predicting(),
                self.settings,
                input_shape=self.input_shape,
                input_dtype=self.input_dtype,
                device=self.device,
                n_observed=self.n_observed,
                answers=copy.deepcopy(self.answers),
                remembered=None if self.answers.novelty is None else self._remembered().clone(),
            )

    def export(
        self, path: str | Path, examples: Array | None = None, *, about: Mapping[str, Any] | None = None
    ) -> None:
        """Write a .onnx or .pt2 file that scores without holdfast; see `Snapshot.export`.

        Args:
            examples: (n, …) inputs on which the file is compared; without them, samples from memory or random ones.

        Example:
            >>> from holdfast import Learner
            >>> import tempfile
            >>> learner = Learner("slda", backbone="identity")
            >>> loss = learner.observe([[0.0, 1.0], [1.0, 0.0], [0.2, 1.0], [1.0, 0.1]], [0, 1, 0, 1])
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     learner.export(f"{folder}/model.pt2")
            ...     scores = torch.export.load(f"{folder}/model.pt2").module()(torch.tensor([[0.1, 1.0]]))
            >>> scores.argmax(dim=1)
            tensor([0])
        """
        with self._turn(), self._lock:
            snapshot = self.snapshot()
            memory = self.memory
            if examples is None and memory is not None and len(memory):
                examples = memory.x[:MOST_EXAMPLES].clone()
        snapshot.export(path, examples, about=about)

    def memory_report(self) -> dict[str, int]:
        """Return the bytes that are kept between two batches, by kind: weights, copies of them, memory, tables.

        A memory in bytes ("5 MB") is a budget of the slots, with what is kept beside each, and of everything that
        grows with classes. Weights that are there from the beginning, and what a step needs for itself, come on top.

        Example:
            >>> from holdfast import Learner
            >>> learner = Learner("er", memory=100, input_shape=(4,))
            >>> loss = learner.observe([[0.0, 1.0, 2.0, 3.0]], [0])
            >>> report = learner.memory_report()
            >>> report["memory, x"], report["memory, y"]
            (1600, 800)
        """
        with self._turn(), self._lock:
            report = memory_report(self.method, self._undo)
            guard = None if self.practice is None else self.practice.guard
            return report if guard is None else report | {"guard": guard.nbytes}

    def save(self, path: str | Path) -> None:
        """Write everything to one file; at every instant a whole file is at `path`, the one before beside it.

        A journal forgets what the file saved before this one holds, so save one learner to one path.
        """
        with self.journal_at_rest() as mark, self._turn(), self._lock:
            copied = CopiedState({**self.state_dict(), **mark})
        write_copy(Path(path), copied)
        self.journal_forgets(mark)

    def journal_into(self, journal: str | Path | CallJournal, *, after: int = 0) -> int:
        """Learn again what a journal holds, and write all that is learned later into it first.

        Args:
            journal: a folder, or a `CallJournal` with a bound of its own.
            after: the number of the last record that this learner holds; `load_learner` knows it.

        Returns the number of calls that were made again. `close_journal` lets go of the folder.

        Example:
            >>> from holdfast import Learner
            >>> import tempfile
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     learner = Learner("er", n_classes=2, journal=folder)
            ...     loss = learner.observe([[0.0, 1.0], [1.0, 0.0]], [0, 1])
            ...     learner.close_journal()  # or a crash
            ...     again = Learner("er", n_classes=2)
            ...     n_calls = again.journal_into(folder)
            ...     again.close_journal()
            >>> n_calls, again.n_observed
            (1, 1)
        """
        return self.open_journal(journal, {"began as": checksum_of(self.state_dict())}, after=after)

    def state_dict(self) -> State:
        with self._turn(), self._lock:
            self._is_changing()
            return {
                "settings": self.settings.model_dump(mode="json"),
                **({"is_open": True} if self.is_open else {}),
                "own_backbone": self._backbone is not None,
                "scale": self.scale,
                "mean": self.mean,
                "input_shape": self.input_shape,
                "input_dtype": None if self.input_dtype is None else str(self.input_dtype).removeprefix("torch."),
                "n_observed": self.n_observed,
                "running_task": self.running_task,
                "practice": None if self.practice is None else self.practice.state_dict(),
                "method": None if self._method is None else self._method.state_dict(),
            }

    def load_state_dict(self, state: State) -> None:
        """Restore; a state that does not fit raises, and leaves everything as it was."""
        self.change(lambda: self._restore(state))

    def _restore(self, state: State) -> None:
        try:
            if stored_settings(state["settings"]) != self.settings:
                raise ValueError("the saved state is of a learner with other settings: use load_learner")
            method = restored_method(self.settings, state, self._backbone, self.device)
            around = state.get("practice")  # files from before it was there have none
            self.practice = None if around is None else Practice.of(around)
            if self.practice is not None:
                self._check_kept(self.practice, state)
            self.scale, self.mean, self.input_shape = state["scale"], state["mean"], state["input_shape"]
            self.input_dtype = None if state["input_dtype"] is None else getattr(torch, state["input_dtype"])
            self.n_observed, self.running_task = state["n_observed"], state["running_task"]
        except (KeyError, TypeError, AttributeError, IndexError) as error:
            raise ValueError(f"this is not the state of a learner: {error!r}") from error
        self._method, self.is_open = method, state.get("is_open") is True

    def _check_kept(self, practice: Practice, state: State) -> None:
        """Raise an error unless weights that are kept to go back to are some of this learner."""
        guard = practice.guard
        if guard is not None and (state["method"] is None or tuple(guard.x.shape[1:]) != state["input_shape"]):
            raise ValueError("the saved guard has samples of another shape than the learner")
        for good in practice.kept_weights():
            saved = {**state, "method": gone_back(state["method"], good)}
            restored_method(self.settings, saved, copy.deepcopy(self._backbone), self.device)
