"""The protocol on the real data sets, as far as minutes allow."""

import numpy as np
import pytest

from holdfast.experiments.recipes import load_recipe
from holdfast.experiments.results import ResultStore
from holdfast.experiments.run import run

pytestmark = pytest.mark.real_data


def test_er_learns_each_of_two_tasks_of_permuted_mnist(real_data, tmp_path):
    experiment = load_recipe("permuted_mnist").experiment("er", seed=1234, changes={"stream.n_tasks": 2})
    result = run(experiment, ResultStore(tmp_path), data=real_data)
    assert result.n_steps == 2 * 5500
    assert np.diagonal(result.matrix).min() >= 0.94


def test_er_learns_the_first_task_of_split_cifar100_well_above_chance(real_data, tmp_path):
    experiment = load_recipe("split_cifar100").experiment("er", seed=1234, changes={"stream.n_tasks": 1})
    result = run(experiment, ResultStore(tmp_path), data=real_data)
    assert result.n_steps == 250
    assert result.accuracies[0][0] > 0.55  # chance is 0.2


def test_er_learns_awa_features_above_chance_and_remembers_more_than_finetune(real_data, tmp_path):
    recipe = load_recipe("split_awa_features")
    averages = {}
    for row in ("finetune", "er"):
        experiment = recipe.experiment(row, seed=1234, changes={"stream.n_tasks": 5})
        averages[row] = run(experiment, ResultStore(tmp_path), data=real_data).metrics["average_accuracy"]
    assert averages["er"] > averages["finetune"] > 0.2


def test_a_photo_stream_is_learned_from_its_cache(real_data, tmp_path):
    changes = {"stream.n_tasks": 1, "stream.size": 84, "stream.samples_per_task": 20, "method.replay_size": 4}
    experiment = load_recipe("split_cub").experiment("er", seed=1234, changes=changes)
    result = run(experiment, ResultStore(tmp_path), data=real_data)
    assert result.n_steps == 2
    assert 0 <= result.accuracies[0][0] <= 1
