import torch

from holdfast.losses.distillation import distillation_loss


def test_it_is_the_mean_squared_distance_of_each_number():
    now, then = torch.tensor([[1.0, 2.0], [0.0, 0.0]]), torch.tensor([[1.0, 0.0], [3.0, 1.0]])
    assert float(distillation_loss(now, then)) == (0 + 4 + 9 + 1) / 4


def test_its_gradient_points_back_to_where_features_were():
    now, then = torch.tensor([[1.0, 2.0]], requires_grad=True), torch.tensor([[0.0, 2.0]])
    distillation_loss(now, then).backward()
    torch.testing.assert_close(now.grad, torch.tensor([[1.0, 0.0]]))
