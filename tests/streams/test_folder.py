from __future__ import annotations

import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from holdfast import Learner
from holdfast.data.photos import decode
from holdfast.data.places import BrokenData, MissingData
from holdfast.streams.folder import Folder
from tests.support.data_files import write_photo


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    """Three classes of five pictures each."""
    rng = np.random.default_rng(0)
    for name in ("cat", "dog", "ox"):
        for i in range(5):
            write_photo(tmp_path / f"mine/{name}/{i}.jpg", rng)
    return tmp_path / "mine"


def test_every_picture_is_in_one_task_under_the_name_of_its_folder(pictures: Path):
    stream = Folder(path=str(pictures), size=6, test_share=0.4, classes_per_task=2)
    assert [len(task.classes) for task in stream] == [2, 1]
    assert stream.classes == ("cat", "dog", "ox")
    expected = {
        (decode("own", file, size=6).tobytes(), stream.classes.index(file.parent.name))
        for file in pictures.rglob("*.jpg")
    }
    found = [
        (x.numpy().tobytes(), y)
        for task in stream
        for samples in (task.train, task.test)
        for x, y in zip(samples[:].x, samples.y.tolist(), strict=True)
    ]
    assert len(found) == 15
    assert set(found) == expected
    assert [len(task.test) for task in stream] == [4, 2]


def test_a_learner_with_default_settings_learns_pictures(pictures: Path):
    """Inputs of up to 255 made its loss NaN."""
    stream = Folder(path=str(pictures), size=16, test_share=0.4, classes_per_task=3)
    learner = Learner("er", input_shape=stream.input_shape, scale=stream.scale, mean=stream.mean)
    seen = learner.method.model.prepare(stream[0].train[:].x)
    assert seen.abs().max() <= 1
    for step in range(20):
        batch = stream[0].batch(step % 3, size=3, seed=0)
        assert learner.observe(batch.x, batch.y) < 100


def test_the_share_for_testing_is_the_same_for_every_seed_and_loses_none_to_a_new_picture(pictures: Path):
    def tested(seed: int) -> set[bytes]:
        stream = Folder(path=str(pictures), size=6, test_share=0.4, classes_per_task=1, seed=seed)
        return {x.numpy().tobytes() for task in stream for x in task.test[:].x}

    before = tested(1)
    assert tested(2) == before
    write_photo(pictures / "cat/9.jpg", np.random.default_rng(1))
    assert len(tested(1) & before) >= len(before) - 1


def test_folders_train_and_test_are_the_split(made_up_data: Path):
    stream = Folder(made_up_data, path="own/split", size=6)
    place = made_up_data / "own/split"
    for side, n in (("train", 6), ("test", 2)):
        for task in stream:
            samples = getattr(task, side)
            assert len(samples) == n
            own = {
                decode("own", file, size=6).tobytes()
                for c in task.classes
                for file in (place / side / stream.classes[c]).iterdir()
            }
            assert {x.numpy().tobytes() for x in samples[:].x} == own


def test_hidden_files_are_left_out(pictures: Path):
    (pictures / ".DS_Store").write_bytes(b"x")
    (pictures / "cat/.thumb").write_bytes(b"x")
    assert sum(len(task.train) for task in Folder(path=str(pictures), size=6, test_share=0.2)) == 12


def test_a_folder_that_will_not_do_is_one_sentence_that_says_what_to_do(pictures: Path, tmp_path: Path):
    def refused(message: str, error: type[Exception] = BrokenData, **options: object) -> None:
        with pytest.raises(error, match=re.escape(message)):
            Folder(**({"path": str(pictures), "size": 6, "test_share": 0.2} | options))  # type: ignore[arg-type]

    refused("no folders train and test in it: make them", test_share=None)
    refused("test_share=1.5: give a share between 0 and 1", ValueError, test_share=1.5)
    refused("no path is given: say where your data is, as in --set stream.path=my_pictures", ValueError, path="")
    refused("nothing at", MissingData, path=str(tmp_path / "nowhere"))
    (pictures / "cat/notes.txt").write_text("x")
    refused(f"{pictures}/cat/notes.txt: no picture by its name")
    (pictures / "cat/notes.txt").rename(pictures / "notes.txt")
    refused(f"{pictures}/notes.txt: found a file, expected nothing but a folder for each class")
    (pictures / "notes.txt").rename(pictures / "cat/notes.jpg")
    refused(f"{pictures}/cat/notes.jpg: found damaged data")
    (pictures / "cat/notes.jpg").unlink()
    (pictures / "emu").mkdir()
    refused(f"{pictures}/emu: no picture in it")
    write_photo(pictures / "emu/0.png", np.random.default_rng(0))
    refused(f"{pictures}/emu: 1 picture, expected one to learn and one to test")
    shutil.rmtree(pictures / "emu")
    shutil.copytree(pictures, pictures / "train")
    shutil.copytree(pictures / "train", pictures / "test")
    refused("its folders train and test are a split already: leave test_share out")
    shutil.rmtree(pictures / "test/ox")
    refused(f"{pictures}/test: no folder 'ox', which train has", test_share=None)


def test_a_link_out_of_the_folder_is_refused(pictures: Path, tmp_path: Path):
    write_photo(tmp_path / "private/0.jpg", np.random.default_rng(0))
    (pictures / "cat/7.jpg").symlink_to(tmp_path / "private/0.jpg")
    with pytest.raises(BrokenData, match="a link that leads out of the folder"):
        Folder(path=str(pictures), size=6, test_share=0.2)
