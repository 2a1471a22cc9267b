import torch

from holdfast.backbones.mlp import Mlp
from holdfast.core.model import Model


def test_the_paper_model_for_permuted_mnist_has_269_312_parameters():
    model = Model(Mlp((784,)), n_features=256, n_classes=10, setting="task", head="cosine")
    assert sum(p.numel() for p in model.parameters()) == 269_312


def test_it_is_linear_layers_with_relu_after_each():
    mlp = Mlp((2,), hidden=(2, 1))
    first, second = mlp.layers
    with torch.no_grad():
        first.weight.copy_(torch.tensor([[1.0, 1.0], [-1.0, 0.0]]))
        first.bias.copy_(torch.tensor([0.0, 2.0]))
        second.weight.copy_(torch.tensor([[2.0, -3.0]]))
        second.bias.copy_(torch.tensor([1.0]))
    # (1, 3) -> relu(4, 1) -> 2·4 - 3·1 + 1 = 6;  (5, 0) -> relu(5, -3) -> 2·5 + 1 = 11;  (-1, 0) -> (0, 3) -> -8
    assert mlp(torch.tensor([[1.0, 3.0], [5.0, 0.0], [-1.0, 0.0]])).tolist() == [[6.0], [11.0], [0.0]]


def test_images_are_flattened():
    mlp = Mlp((3, 4, 5), hidden=(7,))
    x = torch.rand(2, 3, 4, 5)
    assert mlp(x).shape == (2, mlp.n_features) == (2, 7)
    assert torch.equal(mlp(x), mlp(x.reshape(2, 60)))
