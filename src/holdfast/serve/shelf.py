"""Named models in a folder, each in a folder of its own."""

from __future__ import annotations

import re
import secrets
import shutil
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

from holdfast.core.atomic import sync_folder
from holdfast.learner import Learner
from holdfast.serve.hosted import MODEL, Hosted, create_hosted, open_hosted
from holdfast.serve.state import ModelState, state_of
from holdfast.serve.turns import Turns
from holdfast.serve.wire import NAME

_NEW, _DELETED = ".new-", ".deleted-"  # what the folders of no model begin with


class NoModel(KeyError):
    """A name that no model has."""


class ModelFails(RuntimeError):
    """A model that could not be loaded."""


class ModelExists(ValueError):
    """A name that a model has already."""


class TooMany(ValueError):
    """One model more than there may be."""


class Shelf:
    """Models by name. Opening it opens all of them; one that cannot be loaded is named in `failed`.

    Args:
        folder: of all models; made if it is not there.
        max_models: that may be there.
        only: leave all models but this one alone: other processes have them.
        limits: of each, as `Hosted` takes them.
    """

    def __init__(self, folder: Path, *, max_models: int = 100, only: str | None = None, **limits: Any) -> None:
        self.folder = folder
        self.max_models = max_models
        self.failed: dict[str, str] = {}
        self.turns = Turns()
        self._limits = {**limits, "turns": self.turns}
        self._models: dict[str, Hosted] = {}
        self._lock = threading.Lock()  # of making and deleting models
        folder.mkdir(parents=True, exist_ok=True)
        if only is None:
            clear_aside(folder)
        for name in names_in(folder):
            if only in (None, name):
                with suppress(ModelFails):
                    self._open(name)

    def names(self) -> list[str]:
        """Return the names of all models, also of those that could not be loaded."""
        return sorted({*self._models, *self.failed})

    def models(self) -> dict[str, Hosted]:
        """Return the models that were loaded, by name."""
        return dict(sorted(self._models.items()))

    def states(self) -> dict[str, ModelState | None]:
        """Return the state of each model by name; None for one that could not be loaded."""
        return {
            **dict.fromkeys(self.failed),
            **{name: state_of(name, hosted) for name, hosted in self.models().items()},
        }

    def get(self, name: str) -> Hosted:
        """Return a model; NoModel if there is none, ModelFails if it could not be loaded."""
        found = self._models.get(name)
        if found is not None:
            return found
        if name in self.failed:
            raise ModelFails(f"the model '{name}' could not be loaded: {self.failed[name]}")
        raise no_model(name)

    def put(self, name: str, learner: Learner, *, replace: bool) -> Hosted:
        """Put a learner under a name; predictions come from the model that it replaces until it is there."""
        if not re.fullmatch(NAME, name):
            raise NoModel(f"'{_shown(name)}' is no name of a model: give letters, digits, '-' and '_'")
        with self._lock:
            there = name in self._models or name in self.failed
            if there and not replace:
                raise ModelExists(f"there is a model '{name}' with other settings: replace it with ?replace=true")
            if not there and len(self.names()) >= self.max_models:
                raise too_many(self.max_models)
            if there:
                return self._replaced(name, learner)
            aside = self.folder / f"{_NEW}{secrets.token_hex(8)}"
            try:
                create_hosted(aside, learner, **self._limits).close(save=False)
                aside.rename(self.folder / name)
            except OSError:
                shutil.rmtree(aside, ignore_errors=True)
                raise
            sync_folder(self.folder)
            return self._open(name)

    def delete(self, name: str) -> None:
        """Delete a model and its folder, after the calls that wait for it: nothing writes into the folder then."""
        with self._lock:
            if name not in self._models and name not in self.failed:
                raise NoModel(f"no model '{_shown(name)}' to delete")
            hosted = self._models.get(name)
            if hosted is not None:
                hosted.close(save=False)
            aside = self.folder / f"{_DELETED}{secrets.token_hex(8)}"
            try:
                (self.folder / name).rename(aside)
            except OSError:
                if hosted is not None:
                    self._open(name)
                raise
            sync_folder(self.folder)
            self.failed.pop(name, None)
            self._models.pop(name, None)
            shutil.rmtree(aside, ignore_errors=True)

    def close(self) -> None:
        """Make all calls that wait, write a checkpoint of each model, and end their threads."""
        with self._lock:
            for hosted in self._models.values():
                hosted.close()
            self._models.clear()

    def _replaced(self, name: str, learner: Learner) -> Hosted:
        folder = self.folder / name
        before = self._models.get(name)
        if before is not None:
            before.close(save=True)
        try:
            self._models[name] = create_hosted(folder, learner, **self._limits)
        except BaseException:
            self._open(name)  # the one before, or the new one if it is there already
            raise
        self.failed.pop(name, None)
        return self._models[name]

    def _open(self, name: str) -> Hosted:
        try:
            self._models[name] = open_hosted(self.folder / name, **self._limits)
        except Exception as error:
            self.failed[name] = f"{type(error).__name__}: {error}"
            self._models.pop(name, None)
            raise ModelFails(f"the model '{name}' could not be loaded: {error}") from error
        self.failed.pop(name, None)
        return self._models[name]


def names_in(folder: Path) -> list[str]:
    """Return the names of the models in a folder."""
    return sorted(path.name for path in folder.iterdir() if re.fullmatch(NAME, path.name) and (path / MODEL).exists())


def clear_aside(folder: Path) -> None:
    """Remove what a server left that was killed while it made or deleted a model."""
    for path in folder.iterdir():
        if path.name.startswith((_NEW, _DELETED)):
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)


def no_model(name: str) -> NoModel:
    """Return the error for a name that no model has."""
    return NoModel(f"no model '{_shown(name)}': PUT /models/{_shown(name)} makes one")


def too_many(max_models: int) -> TooMany:
    """Return the error for one model more than there may be."""
    return TooMany(f"there are {max_models} models, and there may be no more: delete one first")


def _shown(name: str) -> str:
    return name[:80]
