"""A softmax-linear model, whose gradient has a closed form, for the methods that hold weights."""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from holdfast.core.batch import Batch
from holdfast.core.classes import Setting
from holdfast.core.model import Model
from holdfast.core.optimizers import make_optimizer
from holdfast.methods._anchored import AnchoredMethod
from holdfast.methods._base import Method
from holdfast.methods.ewc import EWC
from holdfast.methods.mas import MAS
from holdfast.methods.rwalk import RWalk
from holdfast.methods.si import SI

M = TypeVar("M", bound=Method)
Array = NDArray[np.float64]
METHODS: list[type[AnchoredMethod]] = [EWC, MAS, RWalk, SI]


def linear_model(setting: Setting = "domain", n_classes: int = 3, *, n_seen: int | None = None) -> Model:
    """Three inputs, which are the features, in double precision; all classes were seen, or the first few."""
    model = Model(nn.Identity(), n_features=3, n_classes=n_classes, setting=setting).double()
    model.seen.announce(range(n_classes if n_seen is None else n_seen), task=0)
    return model


def make(method: type[M], model: Model | None = None, *, lr: float = 0.1, **options: Any) -> M:
    model = linear_model() if model is None else model
    return method(model=model, optimizer=make_optimizer("sgd", model, lr=lr), **options)


def weights_of(method: Method) -> Array:
    """(n_classes, 4) the rows of the head, the bias as their last column."""
    return rows([parameter.detach() for parameter in method.model.parameters()])


def rows(parts: list[torch.Tensor]) -> Array:
    """The same of what is kept beside the head's weight and bias."""
    weight, bias = parts
    return torch.cat([weight, bias[:, None]], dim=1).numpy().copy()


def softmax_gradient(theta: Array, batch: Batch) -> Array:
    """The gradient of the mean cross-entropy, 1/n Σ_i (p_i - e_{y_i}) (x_i, 1)ᵀ."""
    total = np.zeros_like(theta)
    for x, y in zip(batch.x.double().numpy(), batch.y.tolist(), strict=True):
        z = np.append(x, 1.0)
        p = np.exp(theta @ z)
        p /= p.sum()
        p[y] -= 1
        total += np.outer(p, z)
    return total / len(batch)
