"""Caches on disk: equal samples, whole or made again, one file for the same contents."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nnl_core.data import (
    ArraySource,
    CachedSource,
    DataIterator,
    Field,
    FunctionSource,
    ImageFolder,
    TransformedSource,
    make_transforms,
    select_fields,
)
from nnl_core.data.cache import read_cache
from nnl_core.errors import DataError


class Counted:
    """A source that counts what is taken from it, and may fail."""

    def __init__(self, count=600, fail_at=None):
        rng = np.random.default_rng(0)
        self.arrays = ArraySource(
            {
                "x": rng.normal(size=(count, 3, 2)).astype(np.float32),
                "y": np.arange(count),
                "flag": rng.random(count) < 0.5,
                "nothing": np.zeros((count, 0), np.int8),
            }
        )
        self.name, self.fields = "some/data", self.arrays.fields
        self.taken, self.fail_at = 0, fail_at

    def __len__(self):
        return len(self.arrays)

    def take(self, ids):
        if self.fail_at is not None and self.fail_at in ids:
            raise KeyError(self.fail_at)
        self.taken += len(ids)
        return self.arrays.take(ids)


def assert_same(first, second):
    assert first.fields == second.fields
    a, b = (source.take(np.arange(len(source))) for source in (first, second))
    for field in a:
        assert a[field].dtype == b[field].dtype
        np.testing.assert_array_equal(a[field], b[field])


def test_a_cache_gives_the_samples_of_its_source_and_takes_each_once(tmp_path):
    source = Counted()
    cached = CachedSource(source, tmp_path, key="1")
    assert_same(cached, source.arrays)
    assert (source.taken, len(cached), cached.name) == (600, 600, "some/data")


def test_the_next_run_takes_nothing(tmp_path):
    CachedSource(Counted(), tmp_path, key="1")
    source = Counted()
    assert_same(CachedSource(source, tmp_path, key="1"), source.arrays)
    assert source.taken == 0


@given(ids=st.lists(st.integers(0, 9), max_size=15))
def test_samples_come_in_any_order(tmp_path_factory, ids):
    source = Counted(10)
    cached = CachedSource(source, tmp_path_factory.getbasetemp() / "any-order", key="1")
    samples = cached.take(np.array(ids, np.int64))
    assert samples["y"].tolist() == ids
    samples["x"] += 1  # the reader's own


def test_bfloat16_is_kept(tmp_path):
    source = select_fields(
        FunctionSource(lambda number: {"a": np.float32([number, 0.5])}, 3),
        {"x": Field("a", dtype="bfloat16")},
        "halves",
    )
    assert_same(CachedSource(source, tmp_path, key="1"), source)


@pytest.mark.parametrize("keep", [0, 5, 40, 5000, -1])
def test_a_cache_that_is_not_whole_is_made_again(tmp_path, keep):
    path = CachedSource(Counted(), tmp_path, key="1").path
    whole = path.read_bytes()
    path.write_bytes(whole[:keep])
    source = Counted()
    assert_same(CachedSource(source, tmp_path, key="1"), source.arrays)
    assert source.taken == 600
    assert path.read_bytes() == whole


@pytest.mark.parametrize("content", [b"NNLcache" + b"\xff" * 8, b"NNLcache\x02" + bytes(7) + b"{}"])
def test_what_only_begins_like_a_cache_is_made_again(tmp_path, content):
    path = CachedSource(Counted(), tmp_path, key="1").path
    path.write_bytes(content)
    with pytest.raises(DataError, match="cache"):
        read_cache(path)
    assert len(CachedSource(Counted(), tmp_path, key="1").take(np.arange(3))["y"]) == 3


def test_a_source_that_fails_leaves_nothing(tmp_path):
    with pytest.raises(KeyError):
        CachedSource(Counted(fail_at=500), tmp_path, key="1")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_made_is_an_error(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(DataError, match="cache cannot be written"):
        CachedSource(Counted(), tmp_path / "file" / "folder", key="1")


def test_several_may_write_it_at_the_same_time(tmp_path):
    barrier = threading.Barrier(4)
    made = []

    def run():
        source = Counted()
        barrier.wait(30)
        made.append(CachedSource(source, tmp_path, key="1"))

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(made) == 4
    for cached in made:
        assert_same(cached, Counted().arrays)
    assert [path.name for path in tmp_path.iterdir()] == [made[0].path.name]


def test_a_reader_keeps_what_it_has_when_another_replaces_the_file(tmp_path):
    cached = CachedSource(Counted(), tmp_path, key="1")
    before = cached.take(np.arange(600))
    replacement = cached.path.with_name("new")
    replacement.write_bytes(bytes(cached.path.stat().st_size))
    os.replace(replacement, cached.path)
    np.testing.assert_array_equal(cached.take(np.arange(600))["x"], before["x"])


def test_a_copy_for_another_process_holds_no_samples(tmp_path):
    cached = CachedSource(Counted(), tmp_path, key="1")
    pickled = pickle.dumps(cached)
    assert len(pickled) < 2000
    assert_same(pickle.loads(pickled), cached)


def test_processes_read_it(tmp_path):
    iterator = DataIterator(CachedSource(Counted(), tmp_path, key="1"), 100, workers=2)
    numbers = [number for batch in iterator.epoch() for number in batch["y"].tolist()]
    iterator.close()
    assert sorted(numbers) == list(range(600))
    assert not multiprocessing.active_children()


# -------------------------------------------------------------------- what tells contents apart


def fingerprint(source, folder):
    return CachedSource(source, folder).fingerprint


def test_arrays_are_known_by_their_elements(tmp_path):
    x = np.arange(6.0).reshape(3, 2)
    same, other = x.copy(), x.copy()
    other[2, 1] += 1
    marks = [fingerprint(ArraySource({"x": array}), tmp_path) for array in (x, same, other)]
    assert marks[0] == marks[1] != marks[2]
    assert fingerprint(ArraySource({"z": x}), tmp_path) != marks[0]
    assert fingerprint(ArraySource({"x": x.astype(np.float32)}), tmp_path) != marks[0]


def test_images_are_known_by_names_sizes_times_and_how_they_are_read(tmp_path, picture):
    folder, cache = tmp_path / "images", tmp_path / "cache"
    picture(folder / "a.png", (4, 4))
    first = fingerprint(ImageFolder(folder), cache)
    assert fingerprint(ImageFolder(folder), cache) == first
    assert fingerprint(ImageFolder(folder, size=(2, 2)), cache) != first
    os.utime(folder / "a.png", ns=(1, 1))
    assert fingerprint(ImageFolder(folder), cache) != first


def test_fields_and_transforms_are_part_of_it(tmp_path, picture):
    picture(tmp_path / "images" / "a.png", (4, 4))
    images = ImageFolder(tmp_path / "images")
    half = [
        select_fields(images, {"x": Field("x", divide=divide)}, "images") for divide in (2.0, 3.0)
    ]
    sizes = [
        TransformedSource(images, make_transforms([{"name": "resize", "size": size}, "to_float"]))
        for size in (2, 3)
    ]
    marks = {fingerprint(source, tmp_path / "cache") for source in (images, *half, *sizes)}
    assert len(marks) == 5


def test_a_source_that_cannot_tell_needs_a_key_which_makes_the_difference(tmp_path):
    with pytest.raises(DataError, match="give a key"):
        CachedSource(Counted(), tmp_path)
    keys = [CachedSource(Counted(), tmp_path, key=key).fingerprint for key in "112"]
    assert keys[0] == keys[1] != keys[2]


def test_samples_that_differ_from_epoch_to_epoch_are_refused(tmp_path):
    images = ArraySource({"x": np.zeros((3, 1, 4, 4))})
    source = TransformedSource(images, make_transforms(["random_flip"]))
    with pytest.raises(DataError, match="differ from epoch to epoch; cache the source that is"):
        CachedSource(source, tmp_path)


@pytest.mark.parametrize("letter", ["n", "\U00020000"])
def test_a_source_with_a_very_long_name_has_a_cache(tmp_path, letter):
    source = ArraySource({"x": np.arange(3)}, letter * 300)
    assert CachedSource(source, tmp_path).take(np.array([2]))["x"].tolist() == [2]
