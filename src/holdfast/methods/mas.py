from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, ClassVar

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from holdfast.core.batch import Batch
from holdfast.core.state import Count, State
from holdfast.methods._anchored import AnchoredMethod, zeros


@dataclass(kw_only=True, eq=False)
class MAS(AnchoredMethod):
    """Memory aware synapses: hold weights by how much the scores of the task's samples react to them.

        Ω = 1/N Σ_batches | ∂/∂θ Σ_{x in batch} ||scores of the competing classes||² |

    Aljundi et al., "Memory Aware Synapses: Learning what (not) to forget", ECCV 2018, by mini-batches as in Chaudhry et
    al., "Efficient Lifelong Learning with A-GEM", ICLR 2019. There a second pass over the task's N samples takes the
    importance when the task ends. A stream cannot be read twice, so here each batch is measured as it is learned, by
    the model of that moment; when the task ends, the mean replaces the Ω before.

    Args:
        strength: λ, 0.1 on Split CIFAR-100.
    """

    replaced: ClassVar[frozenset[str]] = AnchoredMethod.replaced | {"sensitivity"}

    strength: Annotated[float, Field(ge=0)] = 0.1

    sensitivity: list[Tensor] = field(init=False)  # the sum of |∂/∂θ| over
    n_measured: Count = field(default_factory=int, init=False)  # samples

    def __post_init__(self) -> None:
        super().__post_init__()
        self.sensitivity = zeros(self.anchor)

    def load_state_dict(self, state: State) -> None:
        super().load_state_dict(state)
        if self.n_batches and not self.n_measured:
            raise ValueError(f"{self.n_batches} batches were learned, but no sample was measured")

    def observe(self, batch: Batch) -> float:
        for _ in range(self.steps_per_batch):
            scores = self.model(batch.x)
            competing = scores[self.model.seen.competing(batch.task)]
            self.optimizer.zero_grad()
            competing.square().sum().backward(retain_graph=True)
            reaction = torch._foreach_abs(self.last_gradient())

            value, _ = self.anchored_step(F.cross_entropy(self.model.masked(scores, batch.task), batch.y))
            self.sensitivity = list(torch._foreach_add(self.sensitivity, reaction))
            self.n_measured += len(batch)
        self.end_batch()
        return value

    def take_importance(self) -> list[Tensor]:
        importance = torch._foreach_div(self.sensitivity, self.n_measured)
        self.sensitivity, self.n_measured = zeros(self.sensitivity), 0
        return list(importance)
