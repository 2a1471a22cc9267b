from pathlib import Path

import pytest

from tests.support import data_files


@pytest.fixture(scope="session")
def made_up_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data root with a small copy of every data set."""
    root = tmp_path_factory.mktemp("data")
    data_files.write_mnist(root)
    data_files.write_cifar100(root)
    data_files.write_cifar10(root)
    data_files.write_cub(root)
    data_files.write_awa2(root)
    data_files.write_awa1_features(root)
    data_files.write_own(root)
    return root
