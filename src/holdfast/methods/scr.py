from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, ClassVar

import torch
from pydantic import Field
from torch import Tensor, nn

from holdfast.core.augment import contrastive_views
from holdfast.core.batch import Batch, join
from holdfast.core.model import Model, predicting
from holdfast.core.state import State
from holdfast.losses.contrastive import contrastive_loss
from holdfast.methods._base import MAX_REPLAY, ReplayMethod
from holdfast.methods._stored_means import stored_mean_scores, stored_means

MAX_PROJECTION = 65_536  # numbers; more is more likely a mistake


@dataclass(kw_only=True, eq=False)
class SCR(ReplayMethod):
    """Supervised Contrastive Replay: draw classes together in feature space, predict by the nearest class mean.

    Mai et al., "Supervised Contrastive Replay: Revisiting the Nearest Class Mean Classifier in Online Class-Incremental
    Continual Learning", CVPR Workshops 2021.

    New and replayed samples and a view of each (`core.augment.contrastive_views`) are contrasted by class; where tasks
    own classes, positives are thus of one task. The head is not learned. If tasks share classes, a case outside the
    paper, a class has a mean for each task. The nearest of its means counts.

    Args:
        temperature: τ.
        projection: how many numbers the two-layer projection makes of features for the loss; None contrasts the
            features themselves. Classes are told apart by the features either way.
    """

    learns_head: ClassVar[bool] = False
    derived: ClassVar[frozenset[str]] = frozenset({"_means"})
    replaced: ClassVar[frozenset[str]] = frozenset({"_means"})
    reads: ClassVar[frozenset[str]] = frozenset({"_means"})

    replay_size: Annotated[int, Field(ge=0, le=MAX_REPLAY)] = 100
    temperature: Annotated[float, Field(gt=0)] = 0.07
    projection: Annotated[int, Field(ge=1, le=MAX_PROJECTION)] | None = 128

    rng: torch.Generator = field(init=False)  # of the projection's first weights and of the views
    projector: nn.Module = field(init=False)
    _means: tuple[Tensor, Tensor] | None = field(default=None, init=False)  # with their classes, until the next batch

    def __post_init__(self) -> None:
        super().__post_init__()
        # From the model's seed, but not the random numbers that the model has.
        self.rng = torch.Generator().manual_seed(self.model.head.rng.initial_seed() ^ 1)
        self.projector = nn.Identity()
        if self.projection is not None:
            self.projector = self._new_projector(self.projection)
            self.optimizer.add_param_group({"params": list(self.projector.parameters())})

    @classmethod
    def check_state(cls, state: State, model: Model) -> None:
        n_out = state["projection"]
        made = {} if n_out is None else _layers(model.head.weight.shape[1], n_out).state_dict()
        if {name: part.shape for name, part in state["projector"].items()} != {n: p.shape for n, p in made.items()}:
            raise ValueError("the saved projector is not one of these features and this projection")

    def caution(self) -> str | None:
        if self.selection.needs_head:
            return "the selection compares gradients of the head, which SCR does not learn: choose another"
        return None

    def observe(self, batch: Batch) -> float:
        self._means = None
        for _ in range(self.steps_per_batch):
            old = self.recall(batch)
            samples = join([old, batch]) if len(old) else batch
            views = contrastive_views(samples.x, self.rng)
            # As in the authors' code, old and new samples share a pass, hence batch statistics; views have their own.
            z = torch.cat([self.projector(self.model.features(x)) for x in (samples.x, views)])
            value = self.step(contrastive_loss(z, samples.y.repeat(2), temperature=self.temperature))
        self.remember(batch)
        return value

    def scores(self, x: Tensor, task: Tensor) -> Tensor:
        """Return (n, n_classes) cosine with the class's mean; the least, -1, for a class of which nothing is stored."""
        with predicting(self.model):
            scores = stored_mean_scores(self.model.features(x), *self.means(), self.model.head.n_classes)
            return self.model.masked(scores, task)

    def prepare_to_predict(self) -> None:
        self.means()

    def means(self) -> tuple[Tensor, Tensor]:
        """Return (k, n_features), the mean of each class of each task in memory, and (k,) its class; cached."""
        if self._means is None:
            self._means = stored_means(self.model, self.memory)
        return self._means

    def _new_projector(self, n_out: int) -> nn.Module:
        """Return layers features → as many → n_out, initialised as torch does, but drawn from `rng`."""
        n_features = self.model.head.weight.shape[1]
        layers = _layers(n_features, n_out).to_empty(device="cpu")
        for parameter in layers.parameters():
            nn.init.uniform_(parameter, -(n_features**-0.5), n_features**-0.5, generator=self.rng)
        return layers.to(self.model.head.weight)


def _layers(n_features: int, n_out: int) -> nn.Sequential:
    """Return layers features → as many → n_out, on torch's meta device, where nothing is allocated or drawn."""
    with torch.device("meta"):
        return nn.Sequential(nn.Linear(n_features, n_features), nn.ReLU(), nn.Linear(n_features, n_out))
