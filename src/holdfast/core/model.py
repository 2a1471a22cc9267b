"""A backbone, one head over all classes, and the mask of who competes."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from holdfast.core.batch import Batch
from holdfast.core.classes import SeenClasses, Setting
from holdfast.core.standardise import Standardise
from holdfast.core.state import check_module, restore_generator
from holdfast.core.undo import put_data

HeadKind = Literal["linear", "cosine"]
PREDICT_SIZE = 128  # samples scored or embedded at once, at most
CACHED_NUMBERS = 2**19  # of inputs at once on a CPU: what flows through a network of larger ones leaves its cache


class Head(nn.Module):
    """Scores of all classes from features, one row of weights a class; it grows by rows.

    `linear` is w·f + b. `cosine` is s·cos(w, f), without bias: only directions count.
    """

    weight: nn.Parameter
    bias: nn.Parameter | None

    def __init__(self, n_features: int, n_classes: int, *, kind: HeadKind, cosine_scale: float, seed: int) -> None:
        super().__init__()
        self.kind = kind
        self.cosine_scale = cosine_scale
        self.rng = torch.Generator().manual_seed(seed)  # for rows that come later
        self.n_first = n_classes  # rows before any was added
        self.weight = nn.Parameter(self._rows(n_classes, n_features))
        self.bias = nn.Parameter(self._rows(n_classes, n_features)[:, 0].clone()) if kind == "linear" else None

    @property
    def n_classes(self) -> int:
        return self.weight.shape[0]

    def _rows(self, n_rows: int, n_features: int) -> Tensor:
        bound = n_features**-0.5  # as torch initialises a linear layer
        return torch.empty(n_rows, n_features).uniform_(-bound, bound, generator=self.rng)

    def grow(self, n_classes: int) -> None:
        """Add rows up to `n_classes`; the parameters stay the same objects, so an optimiser keeps them."""
        n_features = self.weight.shape[1]
        new = self._rows(n_classes - self.n_classes, n_features).to(self.weight)
        self.weight.grad = None
        put_data(self.weight, torch.cat([self.weight.data, new]))
        if self.bias is not None:
            new_bias = self._rows(len(new), n_features)[:, 0].to(self.bias)
            self.bias.grad = None
            put_data(self.bias, torch.cat([self.bias.data, new_bias]))

    def forward(self, features: Tensor) -> Tensor:
        if self.kind == "linear":
            return F.linear(features, self.weight, self.bias)
        return self.cosine_scale * self.cosines(features)

    def cosines(self, features: Tensor) -> Tensor:
        """Return (n, n_classes), the cosine of each sample's features with each row."""
        # To divide the n x n_classes products is less work, there and back, than to make the features unit ones first.
        lengths: Tensor = torch.linalg.vector_norm(features, dim=1, keepdim=True).clamp_min(1e-12)
        return F.linear(features, F.normalize(self.weight, dim=1)) / lengths


class Model(nn.Module):
    """Network that maps inputs to features to scores.

    Args:
        backbone: inputs (n, …) to features (n, n_features). One that has `frozen = True` keeps its weights and batch
            statistics; only what stands on it learns.
        setting: who knows the task when, hence who competes.
        scale, mean: an input first becomes x * scale - mean, so that memory can keep raw bytes; without a scale bytes
            are brought to 0…1 and floats left. A backbone that has `pixels` says both itself.
        seed: for the rows of the head.

    Attributes:
        scaling: running standardisation of inputs that are vectors of floats; None leaves them as they are.
        learns_single_samples: True if the method learns one sample at a time. Batch normalisation then normalises
            each sample by its own statistics when predicting, as it does when learning.

    Example:
        >>> model = Model(nn.Linear(3, 4), n_features=4, n_classes=2, setting="class")
        >>> model.seen.announce([0, 1], task=0)
        >>> batch = Batch(torch.zeros(5, 3), torch.tensor([0, 1, 0, 1, 0]), torch.zeros(5, dtype=torch.int64))
        >>> model.embed(batch.x).shape, model(batch.x).shape, model.loss(batch).ndim
        (torch.Size([5, 4]), torch.Size([5, 2]), 0)
    """

    mean: Tensor
    learns_single_samples: bool = False

    def __init__(
        self,
        backbone: nn.Module,
        *,
        n_features: int,
        n_classes: int,
        setting: Setting,
        head: HeadKind = "linear",
        cosine_scale: float = 10.0,
        scale: float | None = None,
        mean: Tensor | float = 0.0,
        seed: int = 0,
    ) -> None:
        super().__init__()
        self.backbone = backbone
        if (pixels := getattr(backbone, "pixels", None)) is not None:  # its weights were learned so, elsewhere
            scale, mean = pixels
        self.frozen: bool = getattr(backbone, "frozen", False)
        if self.frozen:
            backbone.requires_grad_(False)
            backbone.eval()
        self.head = Head(n_features, n_classes, kind=head, cosine_scale=cosine_scale, seed=seed)
        self.seen = SeenClasses(setting, n_classes)
        self.scaling: Standardise | None = None
        self.scale = scale
        self.has_mean = isinstance(mean, Tensor) or mean != 0
        self.register_buffer("mean", torch.as_tensor(mean, dtype=torch.float32))

    @property
    def device(self) -> torch.device:
        return self.head.weight.device

    def train(self, mode: bool = True) -> Model:
        """Set training mode; a frozen backbone stays as it is when predicting, batch statistics included."""
        super().train(mode)
        if self.frozen:
            self.backbone.eval()
        return self

    def grow(self, n_classes: int) -> None:
        """Make room for `n_classes` classes."""
        self.head.grow(n_classes)
        self.seen.grow(n_classes)

    def prepare(self, x: Tensor) -> Tensor:
        """Raw inputs as the backbone wants them."""
        scale = self.scale
        if self.scaling is not None and x.is_floating_point():
            x = self.scaling(x)
        if scale is None:
            scale = 1 / 255 if x.dtype == torch.uint8 else 1.0
        x = x.to(self.mean.dtype)  # that of the model
        if scale != 1:
            x = x * scale
        return x - self.mean if self.has_mean else x

    def take_scale(self, x: Tensor) -> None:
        """Take inputs (n, …) into the running standardisation, if there is one."""
        if self.scaling is not None and x.is_floating_point():
            self.scaling.update(x)

    def features(self, x: Tensor) -> Tensor:
        """Return (n, n_features), the features of inputs, with gradient unless the backbone is frozen."""
        with torch.no_grad() if self.frozen else nullcontext():
            features: Tensor = self.backbone(self.prepare(x))
        return features

    def forward(self, x: Tensor) -> Tensor:
        """Return (n, n_classes) scores of all classes, competing or not."""
        scores: Tensor = self.head(self.features(x))
        return scores

    def masked(self, scores: Tensor, task: Tensor) -> Tensor:
        """Return the scores with minus infinity where a class does not compete for a sample of its task."""
        if self.seen.complete:
            return scores
        return scores.masked_fill(~self.seen.competing(task), -torch.inf)

    def loss(self, batch: Batch) -> Tensor:
        """Mean cross-entropy, each sample among the classes that compete for it, times its weight."""
        return cross_entropy(self.masked(self.forward(batch.x), batch.task), batch.y, batch.weight)

    def losses(self, batch: Batch) -> Tensor:
        """Return (n,), the cross-entropy of each sample, among the classes that compete for it, times its weight."""
        losses = F.cross_entropy(self.masked(self.forward(batch.x), batch.task), batch.y, reduction="none")
        return losses if batch.weight is None else losses * batch.weight

    def embed(self, x: Tensor) -> Tensor:
        """Return (n, n_features) features without gradient, as when predicting: no batch statistics change."""
        with predicting(self):
            size = self.part_size(x)
            if len(x) <= size:
                return self.features(x.to(self.device))
            return torch.cat([self.features(part.to(self.device)) for part in torch.split(x, size)])

    def part_size(self, x: Tensor) -> int:
        """Return the number of inputs (n, …) to score at once. Small parts of large inputs are faster on a CPU."""
        if self.device.type != "cpu":
            return PREDICT_SIZE
        return min(PREDICT_SIZE, max(4, CACHED_NUMBERS // math.prod(x.shape[1:])))

    def has_the_backbone_of(self, other: Model) -> bool:
        """Return True if both make the same features of the same inputs, by the same weights."""
        weights, others = self.backbone.state_dict(), other.backbone.state_dict()
        same = weights.keys() == others.keys() and all(
            torch.equal(weights[name], others[name].to(weights[name].device)) for name in weights
        )
        same = same and self.scaling is None and other.scaling is None  # no two streams have the same running one
        return same and torch.equal(self.mean, other.mean.to(self.mean.device))

    def copy_for_predicting(self) -> Model:
        """Return a copy, in the mode of predicting for good, that no pass changes: threads may share it."""
        twin = copy.deepcopy(self)
        if twin.learns_single_samples:
            for module in twin.modules():
                if module.training and isinstance(module, _BatchNorm):
                    module.register_forward_hook(_normalised_alone)
        twin.eval().requires_grad_(False)
        return twin

    def get_extra_state(self) -> dict[str, Any]:
        scaling = {} if self.scaling is None else {"scaling": self.scaling.state_dict()}
        return {"seen": self.seen.state_dict(), "rng": self.head.rng.get_state()} | scaling

    def set_extra_state(self, state: Any) -> None:
        self.seen.load_state_dict(state["seen"])
        restore_generator(self.head.rng, state["rng"])
        self.scaling = None if "scaling" not in state else Standardise.of(state["scaling"])

    def load_state_dict(self, state_dict: Any, strict: bool = True, assign: bool = False) -> Any:
        check_module(self, state_dict, "the saved model")
        n_classes = len(state_dict["head.weight"])
        if n_classes > self.head.n_classes:
            self.grow(n_classes)
        if (seen := state_dict["_extra_state"]["seen"]["n_classes"]) != n_classes:
            raise ValueError(f"{seen} classes could be seen, but the head has {n_classes}")
        return super().load_state_dict(state_dict, strict=strict, assign=assign)


def cross_entropy(scores: Tensor, y: Tensor, weight: Tensor | None) -> Tensor:
    """Return the mean over n samples of the cross-entropy times the weight of the sample.

        loss = 1/n Σ_i -w_i log softmax(scores_i)[y_i]

    The sum is divided by n, and not by Σ w. So a weight counts in a batch of one sample too.

    Args:
        scores: (n, n_classes). y: (n,). weight: (n,) w; None for all 1.

    Example:
        >>> scores, y = torch.zeros(2, 4), torch.tensor([0, 3])
        >>> [cross_entropy(scores, y, w).exp().round().item() for w in (None, torch.tensor([1.0, 0.0]))]
        [4.0, 2.0]
    """
    if weight is None:
        return F.cross_entropy(scores, y)
    return (F.cross_entropy(scores, y, reduction="none") * weight).mean()


@contextmanager
def predicting(model: nn.Module) -> Iterator[None]:
    """Context manager: inside, the model neither keeps gradients nor changes its batch statistics.

    Example:
        >>> model = nn.Sequential(nn.Linear(3, 4), nn.Dropout())
        >>> with predicting(model):
        ...     model.training
        False
        >>> model.training
        True
    """
    was_training = [module for module in model.modules() if module.training]
    hooks = []
    if isinstance(model, Model) and model.learns_single_samples:
        hooks = [m.register_forward_hook(_normalised_alone) for m in was_training if isinstance(m, _BatchNorm)]
    try:
        if type(model).eval is nn.Module.eval and all(type(module).train in _PLAIN for module in was_training):
            for module in was_training:  # several times faster than to ask each, which comes to the same
                vars(module)["training"] = False
        else:
            model.eval()
        with torch.no_grad():
            yield
    finally:
        for module in was_training:
            vars(module)["training"] = True
        for hook in hooks:
            hook.remove()


_PLAIN = (nn.Module.train, Model.train)


def _normalised_alone(norm: _BatchNorm, inputs: tuple[Tensor], output: Tensor) -> Tensor:
    """Replace the output of batch normalisation by that of a batch of one, for each sample (n, channels, …).

    One value a channel has no variance: there the running averages are used, as when learning.
    """
    (x,) = inputs
    if math.prod(x.shape[2:]) == 1:
        return output
    return F.instance_norm(x, weight=norm.weight, bias=norm.bias, use_input_stats=True, eps=norm.eps)
