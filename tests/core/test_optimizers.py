import copy

import pytest
import torch
from torch import Tensor, nn

from holdfast.core.batch import Batch
from holdfast.core.model import Model
from holdfast.core.optimizers import SGD, Optimizer, OptimizerName, grow_optimizer, make_optimizer
from holdfast.core.undo import Undo

# State that an optimiser keeps beside each parameter, one number for each of its numbers.
KEPT = {"sgd": ["momentum_buffer"], "adam": ["exp_avg", "exp_avg_sq"], "adamw": ["exp_avg", "exp_avg_sq"]}


def grow(model: Model, optimizer: Optimizer, n_classes: int) -> None:
    model.grow(n_classes)
    grow_optimizer(optimizer)


def learn(model: Model, optimizer: Optimizer, y: list[int]) -> None:
    """One step on inputs that depend on the labels."""
    labels = torch.tensor(y)
    x = torch.randn(len(y), 3, generator=torch.Generator().manual_seed(sum(y)))
    model.seen.add(labels, torch.zeros_like(labels))
    optimizer.zero_grad()
    model.loss(Batch(x, labels, torch.zeros_like(labels))).backward()
    optimizer.step()


@pytest.mark.parametrize("name", KEPT)
def test_what_is_kept_for_old_rows_stays_and_new_rows_begin_with_nothing(name: OptimizerName):
    model = Model(nn.Linear(3, 4), n_features=4, n_classes=2, setting="class")
    optimizer = make_optimizer(name, model, lr=0.1, momentum=0.9)
    learn(model, optimizer, [0, 1, 1])
    before = copy.deepcopy([dict(optimizer.state[p]) for p in model.parameters()])
    grow(model, optimizer, 5)
    for parameter, old in zip(model.parameters(), before, strict=True):
        kept = optimizer.state[parameter]
        assert set(kept) == set(old)
        for column in KEPT[name]:
            assert old[column].any()
            assert kept[column].shape == parameter.shape
            assert torch.equal(kept[column][: len(old[column])], old[column])
            assert not kept[column][len(old[column]) :].any()
        if name != "sgd":
            assert torch.equal(kept["step"], old["step"])


@pytest.mark.parametrize(("name", "momentum"), [("sgd", 0.0), ("sgd", 0.9), ("adam", 0.0)])
def test_a_head_that_grows_learns_what_a_head_with_room_from_the_start_learns(name: OptimizerName, momentum: float):
    torch.manual_seed(0)
    backbone = nn.Linear(3, 4)
    weights: list[Tensor] = []
    for n_classes in (2, 5):
        model = Model(copy.deepcopy(backbone), n_features=4, n_classes=n_classes, setting="class", head="cosine")
        model.double()
        optimizer = make_optimizer(name, model, lr=0.1, momentum=momentum)
        for y in ([0, 1], [1, 0, 1], [0, 1]):
            learn(model, optimizer, y)
        if n_classes < 5:
            grow(model, optimizer, 5)
        for y in ([2, 1], [4, 3, 0], [0, 1, 2, 3, 4]):
            learn(model, optimizer, y)
        weights.append(torch.cat([p.detach().flatten() for p in model.parameters()]))
    torch.testing.assert_close(*weights)


def test_an_optimiser_that_has_made_no_step_has_nothing_to_grow():
    model = Model(nn.Linear(3, 4), n_features=4, n_classes=1, setting="class")
    optimizer = make_optimizer("sgd", model, lr=0.1, momentum=0.9)
    grow(model, optimizer, 3)
    learn(model, optimizer, [0, 2])
    assert optimizer.state[model.head.weight]["momentum_buffer"].shape == (3, 4)


def test_an_optimiser_is_found_by_its_name():
    layer = nn.Linear(1, 1)
    kinds = [type(make_optimizer(name, layer, lr=0.1)) for name in KEPT]
    assert kinds == [SGD, torch.optim.Adam, torch.optim.AdamW]


def test_momentum_counts_for_sgd():
    assert make_optimizer("sgd", nn.Linear(1, 1), lr=0.1, momentum=0.5).param_groups[0]["momentum"] == 0.5


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_sgd_takes_the_steps_of_torchs_own_and_goes_on_from_what_that_has_saved(momentum: float):
    torch.manual_seed(0)
    models = [nn.Sequential(nn.Linear(5, 4), nn.Linear(4, 3))]
    models.append(copy.deepcopy(models[0]))
    ours = SGD(models[0][0].parameters(), lr=0.3, momentum=momentum)
    theirs = torch.optim.SGD(models[1][0].parameters(), lr=0.3, momentum=momentum)
    for optimizer, model in zip((ours, theirs), models, strict=True):
        optimizer.add_param_group({"params": list(model[1].parameters())})
        model[1].bias.requires_grad = False
    for step in range(9):
        if step in (3, 6):
            ours.load_state_dict(copy.deepcopy((theirs if step == 3 else ours).state_dict()))
        x = torch.randn(6, 5)
        for optimizer, model in zip((ours, theirs), models, strict=True):
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
        assert all(torch.equal(p, q) for p, q in zip(*(model.parameters() for model in models), strict=True))


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("layout", ["as they are", "turned", "of a larger one"])
def test_a_step_that_leaves_the_old_weights_alone_makes_the_bits_of_one_in_place(momentum: float, layout: str):
    torch.manual_seed(0)
    copies = [nn.Linear(5, 4), nn.Linear(5, 4)]
    copies[1].load_state_dict(copies[0].state_dict())
    aside, in_place = (SGD(layer.parameters(), lr=0.3, momentum=momentum) for layer in copies)
    aside.swaps = True
    for _ in range(3):
        undo = Undo()
        undo.begin(aside)
        before = [(p.detach(), p.detach().clone()) for p in copies[0].parameters()]
        gradients = [torch.randn_like(p) for p in copies[0].parameters()]
        for one, other, gradient in zip(copies[0].parameters(), copies[1].parameters(), gradients, strict=True):
            larger = torch.stack([gradient, gradient])
            turned = gradient.mT.contiguous().mT if gradient.ndim == 2 else gradient.clone()
            kinds = {"as they are": gradient.clone(), "turned": turned, "of a larger one": larger[1]}
            one.grad, other.grad = kinds[layout], gradient
        aside.step()
        in_place.step()
        assert all(torch.equal(p, q) for p, q in zip(*(each.parameters() for each in copies), strict=True))
        assert all(torch.equal(old, as_it_was) for old, as_it_was in before)
        assert all(p.is_contiguous() and p.untyped_storage().nbytes() == p.nbytes for p in copies[0].parameters())
        undo.close()
    undo.begin(aside)
    copies[0].weight.grad = torch.ones_like(copies[0].weight)
    aside.step()
    undo.roll_back()
    assert all(torch.equal(p, q) for p, q in zip(*(each.parameters() for each in copies), strict=True))


def test_sgd_refuses_what_was_saved_of_other_parameters():
    one, other = (SGD(nn.Linear(n, 2).parameters(), lr=0.1, momentum=0.9) for n in (3, 4))
    for parameter in one.param_groups[0]["params"]:
        parameter.grad = torch.ones_like(parameter)
    one.step()
    with pytest.raises(ValueError, match="the shape of another parameter"):
        other.load_state_dict(one.state_dict())
    with pytest.raises(ValueError, match="other parameters"):
        SGD([torch.zeros(2, 3)], lr=0.1).load_state_dict(one.state_dict())
