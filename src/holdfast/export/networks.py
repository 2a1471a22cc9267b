"""A learner as one network from raw inputs to scores, which an exporter can trace."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from holdfast.core.classifiers import nearest_mean_scores
from holdfast.core.model import Model
from holdfast.methods._base import Method
from holdfast.methods._projection import FRACTION
from holdfast.methods._sums import LEAST, SumsMethod
from holdfast.methods.analytic import Analytic
from holdfast.methods.drr import DRR
from holdfast.methods.drr_plus import DRRPlus
from holdfast.methods.hedge import Hedge
from holdfast.methods.mdmt_r import MDMTR
from holdfast.methods.ncm import NCM
from holdfast.methods.pcr import PCR
from holdfast.methods.randumb import RanDumb
from holdfast.methods.scr import SCR
from holdfast.methods.slda import Slda
from holdfast.methods.wrappers.ncm import NCM as StoredMeans


class NotExportable(ValueError):
    """A learner that is more than a fixed network; the message says why."""


class Network(nn.Module):
    """Raw inputs (n, …) to scores (n, n_classes), as the method has them now, with a copy of what it predicts by.

    Attributes:
        by_task: whether `forward` needs the tasks of the samples.
    """

    competing: Tensor

    def __init__(self, method: Method) -> None:
        super().__init__()
        make_top = _maker_of(method)
        twin = method.copy_for_predicting()
        model = twin.model
        self.backbone = model.backbone
        self.top = make_top(twin)
        self._model = (model,)  # in a tuple: no part of this network, it only prepares inputs
        self.power = method.power if isinstance(method, SumsMethod) else 1.0
        mirrors = isinstance(twin, DRRPlus) and twin.mirror_scores
        self.mirrored = mirrors and type(twin).scores is DRRPlus.scores  # and no wrapper predicts in its place
        self.by_task = model.seen.predicts_by_task
        self.register_buffer("competing", _competing(model))

    def forward(self, x: Tensor, task: Tensor | None = None) -> Tensor:
        """Return (n, n_classes) scores, minus infinity where a class does not compete; `task` (n,) if `by_task`."""
        prepared = self._model[0].prepare(x)
        features = self.backbone(prepared)
        if self.mirrored:
            features = features + self.backbone(prepared.flip(-1))
        if self.power != 1:
            features = features.sign() * features.abs() ** self.power
        scores: Tensor = self.top(features, self.competing if task is None else self.competing[task])
        return scores


class _Top(nn.Module):
    """Features (n, d) and the classes that compete, (n, n_classes) or (1, n_classes), to scores."""

    def forward(self, features: Tensor, competing: Tensor) -> Tensor:
        return self.scores(features).masked_fill(~competing, -torch.inf)

    @abstractmethod
    def scores(self, features: Tensor) -> Tensor:
        """Return (n, n_classes) scores of all classes."""


class _Linear(_Top):
    """Scores w·f + b."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        self.weight, self.bias = _kept(weight), None if bias is None else _kept(bias)

    def scores(self, features: Tensor) -> Tensor:
        scores: Tensor = F.linear(features, self.weight, self.bias)
        return scores


class _Cosine(_Top):
    """Scores s·cos(w, f)."""

    def __init__(self, weight: Tensor, scale: float) -> None:
        super().__init__()
        self.weight, self.scale = _kept(F.normalize(weight, dim=1)), scale

    def scores(self, features: Tensor) -> Tensor:
        lengths = torch.linalg.vector_norm(features, dim=1, keepdim=True).clamp_min(1e-12)
        scores: Tensor = self.scale * (F.linear(features, self.weight) / lengths)
        return scores


class _NearestMean(_Top):
    """Scores by the nearest mean of each class, which may have several; -1 for a class without one."""

    def __init__(self, means: Tensor, classes: Tensor, n_classes: int) -> None:
        super().__init__()
        rank = [int((classes[:i] == c).sum()) for i, c in enumerate(classes.tolist())]
        table = means.new_zeros(1 + max(rank, default=0), n_classes, means.shape[1])
        table[rank, classes] = means
        self.means = _kept(table.flatten(0, 1))  # one of each class, then the second ones, and so on
        self.n_of_each, self.n_classes = len(table), n_classes

    def scores(self, features: Tensor) -> Tensor:
        cosines = nearest_mean_scores(features, self.means)
        return cosines.reshape(-1, self.n_of_each, self.n_classes).amax(dim=1)


class _OfSums(_Top):
    """Scores of a method that adds up features: in float64, as when it predicts.

    Args:
        lift: what is done to features first.
        known: (n_classes,) the classes of which a sample was learned.
    """

    def __init__(self, weight: Tensor, bias: Tensor, known: Tensor, lift: Callable[[Tensor], Tensor] | None) -> None:
        super().__init__()
        self.weight, self.bias, self.known = _kept(weight), _kept(bias), _kept(known)
        self.lift = lift

    def scores(self, features: Tensor) -> Tensor:
        lifted = features.double() if self.lift is None else self.lift(features.double())
        scores = F.linear(lifted, self.weight, self.bias)
        return scores.masked_fill(~self.known, LEAST).to(features.dtype)


class _NearestSum(_Top):
    """Scores of `ncm`."""

    def __init__(self, means: Tensor, known: Tensor, *, cosine: bool) -> None:
        super().__init__()
        self.means, self.known = _kept(F.normalize(means) if cosine else means), _kept(known)
        self.cosine = cosine

    def scores(self, features: Tensor) -> Tensor:
        wide = features.double()
        if self.cosine:
            scores = F.normalize(wide) @ self.means.T
        else:
            squares = self.means.square().sum(dim=1) + wide.square().sum(dim=1, keepdim=True)
            scores = 2 * wide @ self.means.T - squares
        return scores.masked_fill(~self.known, LEAST).to(features.dtype)


class _RandomRelu(nn.Module):
    """Random features of `analytic`; without the rounding that makes its sums exact."""

    def __init__(self, matrix: Tensor) -> None:
        super().__init__()
        self.matrix = _kept(matrix * 2.0**-FRACTION)

    def forward(self, features: Tensor) -> Tensor:
        return (features @ self.matrix).relu()


class _RandomWaves(nn.Module):
    """Random features of `randumb`; without the rounding that makes its sums exact."""

    def __init__(self, matrix: Tensor, phases: Tensor, gamma: float) -> None:
        super().__init__()
        self.matrix = _kept(matrix * (2.0**-FRACTION * math.sqrt(2 * gamma)))
        self.phases, self.size = _kept(phases), math.sqrt(2 / len(phases))

    def forward(self, features: Tensor) -> Tensor:
        lengths = torch.linalg.vector_norm(features, dim=1, keepdim=True).clamp_min(1e-30)
        return self.size * torch.cos(features / lengths @ self.matrix + self.phases)


class _Forecast(_Top):
    """Scores of `hedge`: the prediction of the moment, trends as they are now."""

    def __init__(self, method: Hedge) -> None:
        super().__init__()
        self._method = (method,)

    def forward(self, features: Tensor, competing: Tensor) -> Tensor:
        return self._method[0].scores_of(features, competing)

    def scores(self, features: Tensor) -> Tensor:
        return self._method[0].scores_of(features, None)


def _head(method: Method) -> _Top:
    head = method.model.head
    return _Linear(head.weight, head.bias) if head.kind == "linear" else _Cosine(head.weight, head.cosine_scale)


def _cosines(method: Method) -> _Top:
    return _Cosine(method.model.head.weight, 1.0)


def _proxies(method: PCR) -> _Top:
    return _Cosine(method.model.head.weight, 1 / method.temperature)


def _drr(method: DRR) -> _Top:
    if method.classifier == "head":
        return _cosines(method)
    means = method.means().cpu()
    return _NearestMean(means, torch.arange(len(means)), len(means))


def _scr(method: SCR | StoredMeans) -> _Top:
    means, classes = method.means()
    return _NearestMean(means.cpu(), classes.cpu(), method.model.head.n_classes)


def _affine(method: SumsMethod) -> _Top:
    """Take weights from the scores of the unit vectors, less those of the origin."""
    method.work_out()
    bias = method.sum_scores(torch.zeros(1, method.n_summed, dtype=torch.float64))
    weight = (method.sum_scores(torch.eye(method.n_summed, dtype=torch.float64)) - bias).T
    lift: nn.Module | None = None
    if isinstance(method, RanDumb):
        lift = _RandomWaves(*method.matrix_and_phases(), method.gamma)
    elif isinstance(method, Analytic) and method.width is not None:
        lift = _RandomRelu(method.matrix(method.width))
    return _OfSums(weight, bias[0], method.sums.counts > 0, lift)


def _ncm(method: NCM) -> _Top:
    method.sums.fold()
    means = method.sums.sums() / method.sums.counts.clamp(min=1)[:, None]
    return _NearestSum(means, method.sums.counts > 0, cosine=method.distance == "cosine")


_OF_SUMS = ("scores", "sum_scores", "transformed", "described")
# By the class that defines how it predicts: the functions that a subclass must not have changed, and the top's maker.
_TOPS: list[tuple[type[Any], tuple[str, ...], Callable[[Any], _Top]]] = [
    (StoredMeans, ("scores",), _scr),
    (DRRPlus, ("scores", "scores_of", "class_means"), _drr),
    (DRR, ("scores", "scores_of", "class_means"), _drr),
    (MDMTR, ("scores",), _cosines),
    (PCR, ("scores", "scores_of"), _proxies),
    (SCR, ("scores",), _scr),
    (Hedge, ("scores", "scores_of"), _Forecast),
    (NCM, _OF_SUMS, _ncm),
    (RanDumb, _OF_SUMS, _affine),
    (Slda, _OF_SUMS, _affine),
    (Analytic, _OF_SUMS, _affine),
    (Method, ("scores",), _head),
]


def _maker_of(method: Method) -> Callable[[Any], _Top]:
    """Return what makes the top of this method; NotExportable if it does not predict by a fixed network."""
    kind = type(method)
    for owner, functions, make in _TOPS:
        if isinstance(method, owner) and all(getattr(kind, f, 0) is getattr(owner, f, 0) for f in functions):
            return make
    raise NotExportable(
        f"{kind.__name__} predicts by what it has stored, or in a way of its own, and not by a fixed network: "
        "it cannot be exported; save it with learner.save(path)"
    )


def _competing(model: Model) -> Tensor:
    """Return (1, n_classes), the classes that compete, or (n_tasks, n_classes) by task where predicting knows it."""
    if not model.seen.predicts_by_task:
        return model.seen.all_seen()[None].clone()
    return model.seen.competing(torch.arange(model.seen.n_tasks)).clone()


def _kept(tensor: Tensor) -> nn.Parameter:
    """Return a copy on the CPU that a module saves and no gradient reaches."""
    return nn.Parameter(tensor.detach().cpu().clone(), requires_grad=False)
