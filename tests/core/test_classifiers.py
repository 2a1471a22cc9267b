import torch
from sklearn.neighbors import KNeighborsClassifier

from holdfast.core.classifiers import class_means, nearest_mean_scores


def test_it_predicts_as_scikit_learns_nearest_neighbour_among_the_means():
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(40) % 4
    features = torch.randn(40, 6, generator=generator) + 2 * torch.nn.functional.one_hot(y, 6)
    new = torch.randn(50, 6, generator=generator)
    unit, new_unit = (torch.nn.functional.normalize(f, dim=1) for f in (features, new))
    # With means of length one, the nearest by angle is the nearest by distance.
    means = torch.nn.functional.normalize(torch.stack([unit[y == c].mean(dim=0) for c in range(4)]), dim=1)
    oracle = KNeighborsClassifier(1).fit(means.numpy(), range(4))
    ours = nearest_mean_scores(new, class_means(features, y, 4)).argmax(dim=1)
    assert ours.tolist() == oracle.predict(new_unit.numpy()).tolist()


def test_weights_count_a_row_several_times():
    features = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    y = torch.tensor([0, 0])
    twice = class_means(features[[0, 0, 1]], torch.zeros(3, dtype=torch.int64), 1)
    torch.testing.assert_close(class_means(features, y, 1, torch.tensor([2, 1])), twice)


def test_a_class_without_samples_is_never_the_nearest():
    means = class_means(torch.tensor([[1.0, 0.0]]), torch.tensor([1]), 3)
    scores = nearest_mean_scores(torch.tensor([[-0.9, 0.1]]), means)
    assert int(scores.argmax()) == 1
