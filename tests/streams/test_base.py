from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from holdfast.data.places import data_root, missing
from holdfast.streams._base import Task, all_rows, chosen, first, seeded_generator, shuffled, thinned


def numbered_task(n: int) -> Task:
    """A task whose sample i has the input i."""
    samples = all_rows(lambda rows: rows.clone(), torch.zeros(n, dtype=torch.long)).of_task(0)
    return Task(0, (0,), samples, samples)


@given(n=st.integers(1, 60), size=st.integers(1, 70), seed=st.integers(0, 5))
def test_the_batches_of_a_task_cover_every_sample_exactly_once(n: int, size: int, seed: int):
    task = numbered_task(n)
    batches = [task.batch(step, size=size, seed=seed) for step in range(task.n_steps(size))]
    assert all(len(batch) == size for batch in batches[:-1])
    assert sorted(torch.cat([batch.x for batch in batches]).tolist()) == list(range(n))


def test_a_batch_depends_on_the_seed_and_its_number_only():
    task, again = numbered_task(50), numbered_task(50)
    task.batch(0, size=10, seed=2)
    assert torch.equal(task.batch(3, size=10, seed=1).x, again.batch(3, size=10, seed=1).x)
    assert not torch.equal(task.batch(3, size=10, seed=1).x, task.batch(3, size=10, seed=2).x)


def test_generators_differ_by_purpose_and_by_number():
    draws = [
        torch.randint(2**60, (), generator=seeded_generator(purpose, *numbers)).item()
        for purpose, numbers in [("order", (1, 2)), ("order", (2, 1)), ("order", (1,)), ("classes", (1, 2))]
    ]
    assert len(set(draws)) == 4


@given(st.lists(st.integers(), max_size=20), st.integers(0, 100))
def test_shuffling_keeps_all_values_and_repeats_for_one_seed(values: list[int], seed: int):
    order = shuffled(values, seeded_generator("test", seed))
    assert sorted(order) == sorted(values)
    assert order == shuffled(values, seeded_generator("test", seed))


def test_all_tasks_are_those_for_tuning_and_then_those_reported():
    assert chosen([1], [2, 3], "tuning") == [1]
    assert chosen([1], [2, 3], "report") == [2, 3]
    assert chosen([1], [2, 3], "all") == [1, 2, 3]


def test_an_unknown_subset_of_tasks_is_an_error():
    with pytest.raises(ValueError, match=r"tasks='test': expected 'tuning', 'report' or 'all'"):
        chosen([1], [2], "test")  # type: ignore[arg-type]


def test_a_stream_without_tasks_for_tuning_says_so():
    with pytest.raises(ValueError, match="holds out no tasks for that: use tasks='report'"):
        chosen([], [2], "tuning")


def test_the_first_tasks_are_kept():
    assert first([5, 6, 7], 2) == [5, 6]
    assert first([5, 6, 7], None) == [5, 6, 7]


@pytest.mark.parametrize("n_tasks", [-1, 0, 4])
def test_a_number_of_tasks_that_there_is_not_is_an_error(n_tasks: int):
    with pytest.raises(ValueError, match=f"n_tasks={n_tasks}, but the stream has 3: ask for 1 to 3"):
        first([5, 6, 7], n_tasks)


def test_thinning_keeps_different_samples_for_different_seeds_and_more_includes_fewer():
    def kept(n: int, seed: int) -> set[int]:
        [task] = thinned([numbered_task(50)], n, seed=seed)
        assert len(task.train) == n
        assert len(task.test) == 50
        return set(task.train[:].x.tolist())

    assert kept(10, 1) == kept(10, 1)
    assert kept(10, 1) != kept(10, 2)
    assert kept(10, 1) < kept(20, 1)


def test_a_thinned_task_forgets_the_order_of_the_whole_one():
    task = numbered_task(50)
    task.batch(0, size=50, seed=1)
    [thin] = thinned([task], 5, seed=1)
    assert len(thin.batch(0, size=50, seed=1)) == 5


@pytest.mark.parametrize("n", [-3, 0, 51])
def test_a_number_of_samples_that_there_is_not_is_an_error(n: int):
    with pytest.raises(ValueError, match=f"samples_per_task={n}, but task 0 has 50 training samples"):
        thinned([numbered_task(50)], n, seed=1)


def test_data_is_looked_for_as_given_then_in_the_environment_then_in_the_cache(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setenv("XDG_CACHE_HOME", "/cache")
    monkeypatch.setenv("HOLDFAST_DATA", "/data")
    assert data_root(Path("/given")) == Path("/given")
    assert data_root() == Path("/data")
    monkeypatch.delenv("HOLDFAST_DATA")
    assert data_root() == Path("/cache/holdfast/data")


def test_the_error_for_missing_data_says_what_to_do():
    message = str(missing("mnist", Path("/data"), "mnist/x.gz"))
    assert message.startswith("no mnist/x.gz in /data: run 'holdfast data download mnist'")
