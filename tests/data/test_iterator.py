from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nnl_core.data import ArraySource, DataIterator
from nnl_core.errors import DataError


def numbers(count):
    return ArraySource({"x": np.arange(count)})


@given(
    count=st.integers(1, 40), size=st.integers(1, 50), seed=st.integers(0, 9), epoch=st.integers(0)
)
def test_an_epoch_has_every_sample_once(count, size, seed, epoch):
    batches = list(DataIterator(numbers(count), size, seed=seed).epoch(epoch))
    assert sorted(np.concatenate([batch["x"] for batch in batches])) == list(range(count))
    assert all(len(batch) == size for batch in batches[:-1])


@given(count=st.integers(1, 40), size=st.integers(1, 40))
def test_its_length_is_the_number_of_batches(count, size):
    iterator = DataIterator(numbers(count), size)
    assert len(list(iterator.epoch())) == len(iterator)


@given(
    count=st.integers(1, 40), size=st.integers(1, 40), last_batch=st.sampled_from(["keep", "drop"])
)
def test_its_sizes_are_those_of_its_batches(count, size, last_batch):
    if last_batch == "drop":
        size = min(size, count)
    iterator = DataIterator(numbers(count), size, last_batch=last_batch)
    assert {len(batch) for batch in iterator.epoch()} == set(iterator.sizes)


def test_a_batch_knows_the_numbers_of_its_samples():
    for batch in DataIterator(numbers(10), 4).epoch():
        assert batch["x"].tolist() == batch.ids.tolist()


def test_the_order_depends_on_seed_and_epoch_alone():
    first, second = DataIterator(numbers(20), 3, seed=5), DataIterator(numbers(20), 7, seed=5)
    list(first.epoch(0))
    assert first.order(4).tolist() == second.order(4).tolist()


def test_epochs_and_seeds_differ_in_order():
    iterator = DataIterator(numbers(50), 3)
    other = DataIterator(numbers(50), 3, seed=1)
    assert iterator.order(0).tolist() != iterator.order(1).tolist()
    assert iterator.order(0).tolist() != other.order(0).tolist()


def test_without_shuffling_the_order_is_the_source_s():
    iterator = DataIterator(numbers(5), 2, shuffle=False)
    assert [batch["x"].tolist() for batch in iterator.epoch(3)] == [[0, 1], [2, 3], [4]]


def test_a_short_last_batch_can_be_dropped():
    iterator = DataIterator(numbers(5), 2, last_batch="drop")
    assert [len(batch) for batch in iterator.epoch()] == [2, 2]
    assert len(iterator) == 2


def test_an_epoch_can_be_entered_in_the_middle():
    iterator = DataIterator(numbers(10), 3)
    whole = [batch["x"].tolist() for batch in iterator.epoch(2)]
    assert [batch["x"].tolist() for batch in iterator.epoch(2, start=2)] == whole[2:]


@pytest.mark.parametrize(
    ("count", "size", "last_batch", "message"),
    [
        (0, 4, "keep", "the data set is empty"),
        (3, 4, "drop", "3 samples are less than one batch of 4"),
        (3, 0, "keep", "at least one sample, not 0"),
    ],
)
def test_what_would_give_no_batch_is_refused(count, size, last_batch, message):
    with pytest.raises(DataError, match=message):
        DataIterator(numbers(count), size, last_batch=last_batch)
