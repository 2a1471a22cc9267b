from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Annotated, ClassVar

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from holdfast.core.batch import Batch, join, joined_weights
from holdfast.core.standardise import Standardise
from holdfast.core.state import Count, State, check_tensor
from holdfast.memory.storage import Memory
from holdfast.methods._base import MAX_REPLAY, Diverged, ReplayMethod, TakesWeights
from holdfast.methods._networks import Networks

FEW = 64  # features, at most, that are also compared with their recent means
LEAST_SHARE = 0.01  # of the probability that all classes share when a network is judged: no loss is infinite


@dataclass(kw_only=True, eq=False)
class Hedge(ReplayMethod):
    """Small networks with several learning rates, which predict together; recent losses decide their shares.

    For each rate there are two networks of two hidden layers. Both learn each new batch together with stored samples:
    one with samples of the whole stream from memory, the other with as many of the newest. The networks stand on
    features that are standardised as they come; the backbone keeps its weights. Steps are those of Adam (Kingma and
    Ba, ICLR 2015).

        share_k ∝ exp(-η L_k),    L_k ← ρ^n L_k + Σ_i -log p_k(y_i | x_i)

    p_k is what network k said of the n new samples before it learned them. The shares are those of the exponentially
    weighted forecaster (Vovk, "Aggregating Strategies", COLT 1990). As losses fade by ρ, another network leads soon
    after the stream has changed.

    Measurements are autocorrelated, and their classes often depend on what is usual at the moment. So up to 64 features
    are also given as differences from their running means, each over about the last `trends` samples. A prediction is
    thus for the present: the same input may get another class later. Each network is there twice, with and without
    these differences.

    Args:
        rates: the learning rates.
        hidden: units of each layer.
        recent: samples that count as the newest. They are stored in addition to the memory.
        trends: samples over which running means look back; empty for no such features.
        fading: ρ.
        sharpness: η.
    """

    takes_weights: ClassVar[TakesWeights] = "count and share"
    learns_head: ClassVar[bool] = False
    one_loss: ClassVar[bool] = False
    by_batch: ClassVar[bool] = False
    standardises: ClassVar[bool] = False  # it does so itself, with the features and their trends
    extras: ClassVar[frozenset[str]] = frozenset({"trend"})
    reads: ClassVar[frozenset[str]] = frozenset({"networks", "scaling", "levels", "losses"})

    replay_size: Annotated[int, Field(ge=0, le=MAX_REPLAY)] = 100
    rates: Annotated[tuple[Annotated[float, Field(gt=0, lt=1)], ...], Field(min_length=1)] = (0.001, 0.003, 0.01)
    hidden: Annotated[int, Field(ge=1)] = 64
    recent: Annotated[int, Field(ge=1)] = 500
    trends: tuple[Annotated[int, Field(ge=1)], ...] = (16, 128)
    fading: Annotated[float, Field(gt=0, le=1)] = 0.999
    sharpness: Annotated[float, Field(ge=0)] = 0.1

    networks: Networks = field(init=False)
    scaling: Standardise = field(init=False)
    newest: Memory = field(init=False)
    n_stored: Count = field(init=False)  # in `newest`, ever
    levels: Tensor = field(init=False)
    losses: Tensor = field(init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.rates, self.trends = tuple(self.rates), tuple(self.trends)
        if self.average is not None:
            raise ValueError("hedge averages predictions, not weights: leave average out")
        device, n_classes = self.model.device, self.model.head.n_classes
        n_features = self.model.head.weight.shape[1]
        self.levels = torch.zeros(len(self.trends) if n_features <= FEW else 0, n_features, device=device)
        n_inputs = n_features + self.levels.numel()
        rates = self.rates * (4 if len(self.levels) else 2)
        self.networks = Networks(n_inputs, self.hidden, n_classes, rates, self.memory.rng).to(device)
        self.scaling = Standardise(n_inputs)
        self.newest = Memory(self.recent, device=device)
        self.n_stored = 0
        self.losses = torch.zeros(len(rates), dtype=torch.float64, device=device)

    def observe(self, batch: Batch) -> float:
        features = self._features(batch.x)
        if not self.scaling.count and len(self.levels):
            self.levels = features.mean(dim=0).expand_as(self.levels).clone()
        batch = batch.with_extra(trend=self._trend(features))
        old = self.recall(batch)
        newest = self._recall_newest(len(old)) if len(old) else old
        self.scaling.update(torch.cat([features, batch.extra["trend"]], dim=1))

        whole, lately = join([batch, old]), join([batch, newest])
        x = torch.stack([self._inputs(part) for part in (whole, lately)])
        y = torch.stack([whole.y, lately.y])
        competing = None
        if not self.model.seen.complete:
            competing = torch.stack([self.model.seen.competing(part.task) for part in (whole, lately)])
            competing = self._for_each_network(competing)
        x, y = self._seen_by_each(self._for_each_network(x)), self._for_each_network(y)
        weights = joined_weights([whole, lately])
        weights = None if weights is None else self._for_each_network(weights.view(2, -1))
        scores = self.networks.learn(x, y, competing, weights)
        for _ in range(self.steps_per_batch - 1):
            self.networks.learn(x, y, competing, weights)

        loss = self._judge(scores[:, : len(batch)], batch)
        for level, length in zip(self.levels, self.trends, strict=False):
            level.lerp_(features.mean(dim=0), 1 - (1 - 1 / length) ** len(batch))
        self._store(batch)
        self.remember(batch)
        return loss

    def scores(self, x: Tensor, task: Tensor) -> Tensor:
        """Return (n, n_classes) logarithms of the probabilities, minus infinity where a class does not compete."""
        seen = self.model.seen
        return self.scores_of(self._features(x), None if seen.complete else seen.competing(task))

    def scores_of(self, features: Tensor, competing: Tensor | None) -> Tensor:
        """Return (n, n_classes) scores of features (n, n_features), among the classes that compete; None for all."""
        inputs = self.scaling(torch.cat([features, self._trend(features)], dim=1))
        scores = self.networks.scores(self._seen_by_each(inputs.repeat(len(self.losses), 1, 1)))
        if competing is not None:
            scores = scores.masked_fill(~competing, -torch.inf)
        chances = scores.log_softmax(dim=2)
        return torch.logsumexp(chances + self._shares().log().float()[:, None, None], dim=0)

    def grow(self, n_classes: int) -> None:
        super().grow(n_classes)
        self.networks.grow(n_classes)

    def bytes_of_classes(self) -> int:
        networks = self.networks
        n_grown = networks.n_classes - self.model.head.n_first
        return super().bytes_of_classes() + n_grown * 3 * 4 * (networks.hidden + 1) * len(networks.weights)

    def learned_tensors(self) -> list[Tensor]:
        return [self.networks.weights, self.networks.moment_1, self.networks.moment_2, self.levels, self.losses]

    def caution(self) -> str | None:
        if self.selection.needs_head:
            return "the selection compares gradients of the head, which hedge does not learn: choose another"
        if getattr(self.model.backbone, "pretraining", "") == "none" and any(self.model.backbone.parameters()):
            return "the backbone is not trained and keeps its first weights: give it pretrained ones, or identity"
        return None

    def check_extras(self) -> None:
        self.memory.require_extra("trend", torch.float32, (self.levels.numel(),))

    def load_state_dict(self, state: State) -> None:
        super().load_state_dict(state)
        if self.networks.n_classes != self.model.head.n_classes:
            raise ValueError(f"networks of {self.networks.n_classes} classes and a head of {self.model.head.n_classes}")
        n_features = self.model.head.weight.shape[1]
        if self.levels.shape != (len(self.trends) if n_features <= FEW else 0, n_features):
            raise ValueError(f"the saved levels have shape {tuple(self.levels.shape)}, not that of the features")
        check_tensor(self.levels, like=torch.zeros(0, n_features), name="the saved levels")
        check_tensor(self.losses, like=torch.zeros(0, dtype=torch.float64), name="the saved losses")
        if self.losses.shape != (len(self.networks.weights),):
            raise ValueError(f"{len(self.losses)} saved losses of {len(self.networks.weights)} networks")
        if len(self.newest) != min(self.n_stored, self.recent) or self.newest.max_samples != self.recent:
            raise ValueError(f"{len(self.newest)} of the newest samples are saved, but {self.n_stored} were stored")
        if len(self.newest):
            self.newest.require_extra("trend", torch.float32, (self.levels.numel(),))
            self.newest.check_weights()
            if not self.model.seen.were_seen(self.newest.y, self.newest.task):
                raise ValueError("a class is among the newest samples, but was never seen")

    def _features(self, x: Tensor) -> Tensor:
        """Return (n, n_features), what the backbone makes of inputs."""
        features = self.model.embed(x).float()
        # One number to compare, and NaN is below nothing.
        if not features.abs().max().item() < math.inf:
            raise Diverged("the backbone makes features that are not finite: nothing was learned of this batch")
        return features

    def _trend(self, features: Tensor) -> Tensor:
        """Return (n, n_trends), features less their running means of before the batch."""
        return (features[:, None] - self.levels).flatten(1)

    def _inputs(self, batch: Batch) -> Tensor:
        """Return (n, n_inputs), features and trends in present standard deviations."""
        return self.scaling(torch.cat([self._features(batch.x), batch.extra["trend"]], dim=1))

    def _for_each_network(self, groups: Tensor) -> Tensor:
        """Return (K, …) of (2, …), what the two kinds of networks learn."""
        return groups.repeat_interleave(len(self.losses) // 2, dim=0)

    def _seen_by_each(self, x: Tensor) -> Tensor:
        """Return (K, n, n_inputs), the inputs of each network; every second half of a kind sees no trends."""
        if len(self.levels):
            n_rates = len(self.rates)
            for start in (0, 2 * n_rates):
                x[start : start + n_rates, :, -self.levels.numel() :] = 0
        return x

    def _recall_newest(self, size: int) -> Batch:
        """Draw `size` of the newest samples at random; all different unless there are fewer."""
        n = len(self.newest)
        picked = self.memory.pick_distinct(n, min(size, n))
        return self.newest[[picked[i % len(picked)] for i in range(size)]]

    def _store(self, batch: Batch) -> None:
        """Put the samples over the oldest of the newest."""
        batch = self.newest.with_weights(batch[-self.recent :] if len(batch) > self.recent else batch)
        self.newest.fit(batch)
        free = min(len(batch), self.recent - len(self.newest))
        if free:
            self.newest.add(batch[:free])
        if rest := len(batch) - free:
            start = self.n_stored + free
            self.newest.write([(start + i) % self.recent for i in range(rest)], batch[free:])
        self.n_stored += len(batch)

    def _judge(self, scores: Tensor, batch: Batch) -> float:
        """Let losses on new samples decide the shares; give the loss of all networks together.

        Args:
            scores: (K, n, n_classes) before the samples were learned.
        """
        chances = scores.softmax(dim=2).gather(2, batch.y.expand(len(scores), -1)[:, :, None])[:, :, 0].double()
        chances = chances * (1 - LEAST_SHARE) + LEAST_SHARE / scores.shape[2]
        losses, fallen = -(self._shares() @ chances).log(), chances.log()
        if batch.weight is not None:
            losses, fallen = losses * batch.weight, fallen * batch.weight
        loss = losses.mean().item()
        self.losses = self.losses * self.fading ** len(batch) - fallen.sum(dim=1)
        return max(loss, 0.0)  # rounding

    def _shares(self) -> Tensor:
        """Return (K,), the share of each network in a prediction."""
        return F.softmax(self.sharpness * (self.losses.min() - self.losses), dim=0)
