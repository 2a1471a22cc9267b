import copy

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from holdfast.core.batch import Batch
from holdfast.core.model import PREDICT_SIZE, Head, HeadKind, Model, predicting
from tests.support.same import assert_same

both_heads = pytest.mark.parametrize("kind", ["linear", "cosine"])


def long(*numbers: int) -> Tensor:
    return torch.tensor(numbers, dtype=torch.int64)


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def small_model(**options) -> Model:
    """Three inputs, four features, five classes."""
    backbone = nn.Linear(3, 4)
    with torch.no_grad():
        backbone.weight.copy_(random(4, 3, seed=1))
        backbone.bias.copy_(random(4, seed=2))
    return Model(backbone, **{"n_features": 4, "n_classes": 5, "setting": "task"} | options)


def head_of(kind: HeadKind, n_classes: int, seed: int = 0) -> Head:
    return Head(4, n_classes, kind=kind, cosine_scale=10.0, seed=seed)


# The classes that compete.


@both_heads
def test_the_rows_of_a_task_learn_as_a_head_of_their_own(kind: HeadKind):
    model = small_model(head=kind)
    model.seen.announce([0, 1], task=0)
    model.seen.announce([2, 3, 4], task=1)
    x, y = random(6, 3), long(2, 3, 4, 4, 3, 2)
    model.loss(Batch(x, y, torch.ones_like(y))).backward()

    alone = copy.deepcopy(model)
    alone.zero_grad()
    weight = alone.head.weight.detach()[2:].requires_grad_()
    features = alone.backbone(x)
    if kind == "linear":
        scores = F.linear(features, weight, alone.head.bias.detach()[2:])
    else:
        scores = 10.0 * F.cosine_similarity(features[:, None], weight[None], dim=2)
    F.cross_entropy(scores, y - 2).backward()

    torch.testing.assert_close(model.head.weight.grad[2:], weight.grad)
    torch.testing.assert_close(model.backbone.weight.grad, alone.backbone.weight.grad)
    assert not model.head.weight.grad[:2].any()


def test_the_loss_of_a_mixed_batch_is_the_mean_over_its_tasks():
    model = small_model()
    model.seen.announce([0, 1], task=0)
    model.seen.announce([2, 3, 4], task=1)
    x = random(3, 3)
    parts = [Batch(x[:1], long(1), long(0)), Batch(x[1:], long(4, 2), long(1, 1))]
    mixed = Batch(x, long(1, 4, 2), long(0, 1, 1))
    torch.testing.assert_close(model.loss(mixed), (model.loss(parts[0]) + 2 * model.loss(parts[1])) / 3)


def test_a_class_alone_has_nothing_to_lose_against():
    model = small_model(setting="class")
    model.seen.announce([3], task=0)
    assert model.loss(Batch(random(2, 3), long(3, 3), long(0, 0))).item() == 0


def test_masked_scores_are_minus_infinity_where_a_class_does_not_compete():
    model = small_model(setting="class")
    model.seen.announce([0, 2], task=0)
    masked = model.masked(torch.ones(2, 5), long(0, 1))
    assert masked.tolist() == [[1, -torch.inf, 1, -torch.inf, -torch.inf]] * 2


def test_no_score_is_masked_once_all_classes_compete_until_there_is_room_for_more():
    model = small_model(setting="class")
    model.seen.announce(range(5), task=0)
    assert torch.equal(model.masked(torch.ones(1, 5), long(0)), torch.ones(1, 5))
    model.grow(6)
    assert model.masked(torch.ones(1, 6), long(0)).tolist() == [[1, 1, 1, 1, 1, -torch.inf]]


# Heads.


def test_the_cosine_head_is_the_scaled_cosine_similarity():
    head = Head(4, 3, kind="cosine", cosine_scale=7.0, seed=0)
    features = random(5, 4) * torch.tensor([[0.01], [1.0], [3.0], [100.0], [1.0]])
    expected = F.cosine_similarity(features[:, None], head.weight[None], dim=2)
    torch.testing.assert_close(head.cosines(features), expected)
    torch.testing.assert_close(head(features), 7.0 * expected)


def test_the_cosine_head_has_no_bias_and_looks_at_directions_only():
    head = head_of("cosine", 3)
    assert head.bias is None
    torch.testing.assert_close(head(random(2, 4)), head(5 * random(2, 4)))


def test_features_of_length_zero_have_a_score_and_a_gradient():
    head = head_of("cosine", 3)
    features = torch.zeros(1, 4, requires_grad=True)
    scores = head(features)
    scores.sum().backward()
    assert scores.tolist() == [[0, 0, 0]]
    assert features.grad.isfinite().all()


def test_the_linear_head_is_w_times_f_plus_b():
    head = head_of("linear", 2)
    with torch.no_grad():
        head.weight.copy_(torch.tensor([[1.0, 0, 0, 2], [0, 3, 0, 0]]))
        head.bias.copy_(torch.tensor([0.5, -1]))
    assert head(torch.tensor([[1.0, 2, 3, 4]])).tolist() == [[9.5, 5.0]]


@both_heads
def test_new_rows_are_within_the_bounds_of_a_linear_layer(kind: HeadKind):
    head = Head(16, 200, kind=kind, cosine_scale=10.0, seed=0)
    assert 0.24 < head.weight.abs().max() <= 0.25  # 1 / √16


# Growth.


@both_heads
def test_growth_keeps_the_old_rows_to_the_bit(kind: HeadKind):
    head = head_of(kind, 2)
    weight, before = head.weight, copy.deepcopy(dict(head.named_parameters()))
    head.grow(5)
    assert head.n_classes == 5
    assert head.weight is weight
    for name, parameter in head.named_parameters():
        assert len(parameter) == 5
        assert torch.equal(parameter[:2], before[name])


def test_growth_keeps_the_old_scores_to_the_bit():
    head = head_of("linear", 2)
    with torch.no_grad():  # eighths, so that a sum is exact in whatever order it is taken
        for parameter in head.parameters():
            parameter.mul_(16).round_().div_(8)
    features = torch.arange(12.0).reshape(3, 4)
    before = head(features)
    head.grow(5)
    assert torch.equal(head(features)[:, :2], before)


@both_heads
def test_growth_needs_no_gradient_of_before(kind: HeadKind):
    head = head_of(kind, 2)
    head(random(3, 4)).sum().backward()
    head.grow(3)
    assert all(parameter.grad is None for parameter in head.parameters())
    head(random(3, 4)).sum().backward()
    assert head.weight.grad.shape == (3, 4)


def test_rows_that_come_later_are_those_that_room_from_the_start_would_have_had():
    grown = head_of("cosine", 1)
    grown.grow(3)
    grown.grow(6)
    assert torch.equal(grown.weight, head_of("cosine", 6).weight)


@both_heads
def test_rows_depend_on_the_seed_and_leave_the_global_generator_alone(kind: HeadKind):
    before = torch.get_rng_state()
    head, same, other = head_of(kind, 2), head_of(kind, 2), head_of(kind, 2, seed=1)
    head.grow(4)
    same.grow(4)
    assert torch.equal(torch.get_rng_state(), before)
    assert_same(dict(head.state_dict()), dict(same.state_dict()))
    assert not torch.equal(head.weight[:2], other.weight)


def test_a_model_in_double_precision_stays_so_when_it_grows():
    model = small_model().double()
    model.grow(7)
    assert model.head.weight.dtype == model.head.bias.dtype == torch.float64
    assert model(random(2, 3)).dtype == torch.float64


# Inputs.


def test_bytes_are_scaled_and_the_mean_taken_off():
    model = small_model(scale=1 / 255, mean=torch.tensor([0.5, 0.0, 1.0]))
    prepared = model.prepare(torch.tensor([[255, 0, 255], [0, 51, 0]], dtype=torch.uint8))
    torch.testing.assert_close(prepared, torch.tensor([[0.5, 0.0, 0.0], [-0.5, 0.2, -1.0]]))


def test_floats_are_taken_as_they_are():
    x = random(2, 3)
    assert torch.equal(small_model().prepare(x), x)


def test_a_mean_may_be_one_number():
    assert small_model(mean=0.5).prepare(torch.ones(1, 3)).tolist() == [[0.5, 0.5, 0.5]]


# Predicting.


def normalised() -> nn.Sequential:
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(0.5))


@pytest.mark.parametrize("n", [1, PREDICT_SIZE, PREDICT_SIZE + 1])
def test_embedding_gives_the_features_however_many_samples_there_are(n: int):
    model, x = small_model(), random(n, 3)
    with torch.no_grad():
        torch.testing.assert_close(model.embed(x), model.eval().features(x))


@pytest.mark.parametrize(("shape", "largest"), [((3,), PREDICT_SIZE), ((3, 84, 84), 24), ((3, 224, 224), 4)])
def test_large_inputs_go_through_the_backbone_in_smaller_parts(shape: tuple[int, ...], largest: int):
    sizes = []

    class Mean(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            sizes.append(len(x))
            return x.flatten(1).mean(dim=1, keepdim=True)

    model = Model(Mean(), n_features=1, n_classes=2, setting="free")
    x = random(2 * largest + 1, *shape)
    torch.testing.assert_close(model.embed(x), x.flatten(1).mean(dim=1, keepdim=True))
    assert sizes == [largest, largest, 1]


def test_embedding_changes_no_statistics_draws_nothing_and_keeps_no_gradient():
    model = Model(normalised(), n_features=4, n_classes=2, setting="free")
    model(random(8, 3))
    before, rng = copy.deepcopy(model.state_dict()), torch.get_rng_state()
    features = model.embed(random(8, 3, seed=1))
    assert not features.requires_grad
    assert torch.equal(features, model.embed(random(8, 3, seed=1)))
    assert torch.equal(torch.get_rng_state(), rng)
    assert_same(dict(model.state_dict()), dict(before))
    assert all(module.training for module in model.modules())


def test_predicting_leaves_every_layer_in_the_mode_it_was_in():
    backbone = normalised()
    backbone[1].eval()  # as one does to keep the statistics of a pre-trained network
    with predicting(backbone):
        assert not any(module.training for module in backbone.modules())
    assert [layer.training for layer in backbone] == [True, False, True]


class Deaf(nn.Linear):
    """Stay in evaluation, whatever is asked for, and count how often it was asked."""

    n_asked = 0

    def train(self, mode: bool = True) -> nn.Module:
        self.n_asked += 1
        return super().train(False)


def test_a_module_that_decides_about_its_mode_is_asked():
    deaf = Deaf(3, 3)
    deaf.training = True
    with predicting(nn.Sequential(deaf, nn.Dropout())):
        assert deaf.n_asked == 1
        assert not deaf.training


def test_a_model_in_evaluation_stays_so():
    model = small_model().eval()
    model.embed(random(2, 3))
    assert not model.training


def test_an_error_while_predicting_leaves_the_mode_alone():
    model = small_model()
    with pytest.raises(RuntimeError):
        model.embed(torch.zeros(2, 7))
    assert model.training
    assert torch.is_grad_enabled()


# State.


@both_heads
def test_a_model_of_one_class_takes_the_state_of_one_that_has_grown(kind: HeadKind):
    saved = small_model(head=kind, n_classes=1, seed=3)
    saved.grow(4)
    saved.seen.announce([0, 3], task=2)
    restored = small_model(head=kind, n_classes=1, seed=8)
    restored.load_state_dict(saved.state_dict())
    assert_same(dict(restored.state_dict()), dict(saved.state_dict()))
    assert restored.seen.competing(long(2)).tolist() == [[True, False, False, True]]

    for model in (saved, restored):
        model.grow(6)
    assert_same(dict(restored.state_dict()), dict(saved.state_dict()))
