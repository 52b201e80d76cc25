from __future__ import annotations

import threading

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


def test_what_is_no_source_is_refused_with_what_makes_one():
    with pytest.raises(DataError, match=r"a dict is no data source: .*; ArraySource\(.* arrays"):
        DataIterator({"x": np.zeros((3, 2))}, 2)


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


# -------------------------------------------------------------------- slices and padding

WAYS = st.sampled_from(["keep", "drop", "pad"])


def iterators(count, size, batch_size, **options):
    return [
        DataIterator(numbers(count), batch_size, rank=rank, size=size, **options)
        for rank in range(size)
    ]


@given(
    count=st.integers(1, 60), size=st.integers(1, 7), shuffle=st.booleans(), epoch=st.integers(0, 9)
)
def test_slices_have_every_sample_once_and_differ_by_one_at_most(count, size, shuffle, epoch):
    slices = [
        iterator.order(epoch).tolist()
        for iterator in iterators(count, size, 4, shuffle=shuffle, last_batch="pad")
    ]
    assert sorted(number for part in slices for number in part) == list(range(count))
    lengths = [len(part) for part in slices]
    assert max(lengths) - min(lengths) <= 1


@given(count=st.integers(1, 60), size=st.integers(1, 7), batch_size=st.integers(1, 9))
def test_the_samples_that_count_in_padded_slices_are_all_of_them_once(count, size, batch_size):
    slices = iterators(count, size, batch_size, last_batch="pad", seed=2)
    batches = [batch for iterator in slices for batch in iterator.epoch(1)]
    assert {len(batch) for batch in batches} == {batch_size}
    counting = [number for batch in batches for number in batch.ids[: batch.count].tolist()]
    assert sorted(counting) == list(range(count))


@given(
    count=st.integers(1, 60),
    size=st.integers(1, 7),
    batch_size=st.integers(1, 9),
    last_batch=st.sampled_from(["drop", "pad"]),
)
def test_dropped_and_padded_slices_have_equally_many_batches(count, size, batch_size, last_batch):
    if last_batch == "drop" and count // size < batch_size:
        return
    slices = iterators(count, size, batch_size, last_batch=last_batch)
    lengths = {len(list(iterator.epoch())) for iterator in slices}
    assert lengths == {len(slices[0])}


@given(
    count=st.integers(7, 60), size=st.integers(1, 7), batch_size=st.integers(1, 9), last_batch=WAYS
)
def test_length_and_sizes_of_a_slice_are_those_of_its_batches(count, size, batch_size, last_batch):
    if last_batch == "drop" and count // size < batch_size:
        return
    for iterator in iterators(count, size, batch_size, last_batch=last_batch):
        lengths = [len(batch) for batch in iterator.epoch()]
        assert len(lengths) == len(iterator)
        assert set(lengths) == set(iterator.sizes)


@given(count=st.integers(1, 20), batch_size=st.integers(1, 30))
def test_padding_repeats_the_order_from_its_beginning(count, batch_size):
    iterator = DataIterator(numbers(count), batch_size, last_batch="pad", seed=1)
    found = np.concatenate([batch["x"] for batch in iterator.epoch()])
    np.testing.assert_array_equal(found, np.resize(iterator.order(0), len(found)))
    assert [batch.count for batch in iterator.epoch()][:-1] == [batch_size] * (len(iterator) - 1)


def test_a_slice_that_has_no_sample_is_all_padding():
    (_, _, last) = iterators(2, 3, 4, last_batch="pad", shuffle=False)
    (batch,) = last.epoch()
    assert batch.count == 0
    assert batch["x"].tolist() == [0, 1, 0, 1]


def test_the_mask_is_one_more_field_and_tells_padding_from_samples():
    iterator = DataIterator(numbers(5), 3, last_batch="pad", shuffle=False, mask="counts")
    assert iterator.fields["counts"] == ((), np.float32)
    assert [batch["counts"].tolist() for batch in iterator.epoch()] == [[1, 1, 1], [1, 1, 0]]


def test_a_mean_over_the_mask_is_that_of_the_samples_alone():
    iterator = DataIterator(numbers(11), 4, last_batch="pad", mask="m")
    total = sum(float((batch["x"] * batch["m"]).sum()) for batch in iterator.epoch())
    assert total / sum(batch.count for batch in iterator.epoch()) == np.arange(11).mean()


def test_without_padding_all_samples_count():
    assert [batch.count for batch in DataIterator(numbers(5), 2).epoch()] == [2, 2, 1]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rank": 2, "size": 2}, "rank 2 is not one of 2 slices"),
        ({"size": 6}, "5 samples are not enough for 6 slices; pad them"),
        ({"size": 2, "last_batch": "drop"}, "2 samples in each of 2 slices are less than one"),
        ({"last_batch": "padd"}, "last_batch is keep, drop or pad, not 'padd'"),
        ({"mask": "x"}, "has a field 'x'; choose another name for the mask"),
        ({"workers": -1}, "no -1 workers"),
        ({"workers": 1, "prefetch": 0}, "no 0 batches ahead"),
        ({"worker_kind": "fibre"}, "a process or a thread, not 'fibre'"),
    ],
)
def test_arguments_that_make_no_sense_are_refused(options, message):
    with pytest.raises(DataError, match=message):
        DataIterator(numbers(5), 4, **options)


# -------------------------------------------------------------------- placing


def test_the_batch_behind_the_one_that_is_read_is_placed_already():
    placed = []

    def place(arrays):
        placed.append(arrays["x"].tolist())
        return len(placed)

    iterator = DataIterator(numbers(5), 2, shuffle=False, place=place)
    seen = [(batch.placed, len(placed)) for batch in iterator.epoch()]
    assert seen == [(1, 2), (2, 3), (3, 3)]
    assert placed == [[0, 1], [2, 3], [4]]


def test_breaking_off_placed_batches_ends_the_workers():
    iterator = DataIterator(numbers(40), 2, workers=2, worker_kind="thread", place=len)
    for batch in iterator.epoch():
        assert batch.placed == 1
        break
    assert not [thread for thread in threading.enumerate() if "data worker" in thread.name]


def test_without_a_place_nothing_is_placed():
    assert next(DataIterator(numbers(3), 2).epoch()).placed is None
