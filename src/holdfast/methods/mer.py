from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from pydantic import Field
from torch import Tensor

from holdfast.core.batch import Batch, join
from holdfast.methods._base import MAX_STEPS, Diverged, ReplayMethod, TakesWeights


@dataclass(kw_only=True, eq=False)
class MER(ReplayMethod):
    """Meta-experience replay: learn new and old samples one by one, then go only part of the way (Algorithm 1).

    Riemer et al., "Learning to Learn without Forgetting by Maximizing Transfer and Minimizing Interference", ICLR 2019.

    Going part of the way after several steps is Reptile; it favours directions in which the samples' gradients agree.
    Each sample of a batch costs n_batches · (1 + replay_size) steps of the optimiser.

    The authors take ten batches and keep 0.03 of each; one of which 0.3 is kept leads about as far in a tenth of the
    time, and is the default.

    Batch normalisation sees single samples when learning. So it normalises each sample by its own statistics when
    predicting too: its running averages belong to other numbers than the weights have learned with.

    Args:
        n_batches: s, batches learned with each new sample; each holds it and `replay_size` samples drawn anew.
        within_batch_rate: β, how much of the way that a batch has led is kept.
        across_batch_rate: γ, how much of the way that all batches have led is kept.
    """

    takes_weights: ClassVar[TakesWeights] = "share"
    one_loss: ClassVar[bool] = False
    by_batch: ClassVar[bool] = False
    writes_weights: ClassVar[bool] = True

    n_batches: Annotated[int, Field(ge=1, le=MAX_STEPS)] = 1
    within_batch_rate: Annotated[float, Field(gt=0, le=1)] = 0.3
    across_batch_rate: Annotated[float, Field(gt=0, le=1)] = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        self.model.learns_single_samples = True

    def observe(self, batch: Batch) -> float:
        """Learn a batch; gives the mean loss of its samples, each before the last batch that it was learned in."""
        total = 0.0
        for sample in batch.samples():
            for _ in range(self.steps_per_batch):
                loss = self.learn(sample)
            total += loss
            self.remember(sample)
        return total / len(batch)

    def learn(self, sample: Batch) -> float:
        """Learn a sample in `n_batches` batches; a loss that is no number puts the weights back to before it."""
        weights = [parameter.detach() for parameter in self.model.parameters()]  # the same numbers, free of gradients
        before_all = _copies(weights)  # θ^A_0
        try:
            for _ in range(self.n_batches):
                before = _copies(weights)  # θ^W_{i,0}
                # As in the authors' code, the new sample comes first.
                samples = join([sample, self.recall(sample)]).samples()
                loss, *_ = [self.step(self.model.loss(one)) for one in samples]
                _keep_part(weights, before, self.within_batch_rate)
        except Diverged:
            torch._foreach_copy_(weights, before_all)
            raise
        _keep_part(weights, before_all, self.across_batch_rate)
        return loss


def _copies(weights: list[Tensor]) -> list[Tensor]:
    return [weight.clone() for weight in weights]


def _keep_part(weights: list[Tensor], before: list[Tensor], rate: float) -> None:
    """Reptile: θ ← θ_before + rate · (θ - θ_before), in place; a rate of 1 changes no bit."""
    torch._foreach_lerp_(weights, before, 1 - rate)
