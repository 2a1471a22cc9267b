from pathlib import Path

import pytest

from . import made_up


@pytest.fixture(scope="session")
def made_up_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data root with a small copy of every data set."""
    root = tmp_path_factory.mktemp("data")
    made_up.write_mnist(root)
    made_up.write_cifar100(root)
    made_up.write_cub(root)
    made_up.write_awa2(root)
    made_up.write_awa1_features(root)
    return root
