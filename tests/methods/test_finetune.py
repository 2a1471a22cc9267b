import copy
import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from holdfast.core.batch import Batch
from holdfast.core.model import Model
from holdfast.core.optimizers import make_optimizer
from holdfast.methods.finetune import Finetune
from tests.support.same import assert_same
from tests.support.small import small_batch, small_model


def finetune(model: Model, *, lr: float = 0.1, momentum: float = 0.0, **options: Any) -> Finetune:
    return Finetune(model=model, optimizer=make_optimizer("sgd", model, lr=lr, momentum=momentum), **options)


def test_the_first_step_from_zero_weights_is_the_one_on_paper():
    model = Model(nn.Identity(), n_features=2, n_classes=2, setting="class")
    model.seen.announce([0, 1], task=0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    batch = Batch(torch.tensor([[1.0, 2.0]]), torch.tensor([0]), torch.tensor([0]))
    loss = finetune(model, lr=0.5).observe(batch)
    assert loss == pytest.approx(math.log(2))
    assert model.head.weight.tolist() == [[0.25, 0.5], [-0.25, -0.5]]  # lr · (1 - ½) · x, and its negative
    assert model.head.bias.tolist() == [0.25, -0.25]


def test_steps_are_those_of_sgd_to_the_bit():
    model, batches = small_model(), [small_batch(5, seed=seed) for seed in range(3)]
    by_hand = copy.deepcopy(model)
    method = finetune(model, lr=0.3)
    for batch in batches:
        loss = F.cross_entropy(by_hand(batch.x), batch.y)
        parameters = list(by_hand.parameters())
        with torch.no_grad():
            for parameter, gradient in zip(parameters, torch.autograd.grad(loss, parameters), strict=True):
                parameter.add_(gradient, alpha=-0.3)
        assert method.observe(batch) == loss.item()
    assert_same(dict(model.state_dict()), dict(by_hand.state_dict()))


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_several_steps_a_batch_are_as_many_steps_on_it(momentum: float):
    batch = small_batch(5)
    several = finetune(small_model(), momentum=momentum, steps_per_batch=3)
    one = finetune(small_model(), momentum=momentum)
    losses = [one.observe(batch) for _ in range(3)]
    assert several.observe(batch) == losses[-1] < losses[0]
    assert_same(several.model.state_dict()["head.weight"], one.model.state_dict()["head.weight"])


def test_against_all_seen_a_sample_is_told_from_classes_of_other_tasks_but_predicted_within_its_own():
    model = Model(nn.Identity(), n_features=2, n_classes=4, setting="task")
    model.seen.announce([0, 1], task=0)
    model.seen.announce([2], task=1)  # class 3 was never seen
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    batch = Batch(torch.tensor([[1.0, 2.0]]), torch.tensor([0]), torch.tensor([0]))
    method = finetune(model, lr=3.0, against="seen")
    assert method.observe(batch) == pytest.approx(math.log(3))
    # lr · (1[c = y] - ⅓) · x
    torch.testing.assert_close(model.head.weight, torch.tensor([[2.0, 4.0], [-1.0, -2.0], [-1.0, -2.0], [0.0, 0.0]]))
    assert method.scores(batch.x, batch.task).isfinite().tolist() == [[True, True, False, False]]
