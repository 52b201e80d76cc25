"""HDF5 files: datasets as fields, rows in any order, errors that name file and dataset."""

from __future__ import annotations

import pickle

import h5py
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nnl_core.data import DataIterator, Hdf5Source, open_source
from nnl_core.errors import DataError
from nnl_core.session import Session

X = np.random.default_rng(0).normal(size=(7, 2, 3)).astype(np.float32)


@pytest.fixture
def path(tmp_path):
    with h5py.File(tmp_path / "data.h5", "w") as file:
        file["x"] = X
        file["more/y"] = np.arange(7)
        file["names"] = ["a"] * 7  # no numbers: not a field
    return tmp_path / "data.h5"


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(ids=st.lists(st.integers(0, 6), max_size=12))
def test_rows_come_in_any_order_and_as_often_as_asked(path, ids):
    samples = Hdf5Source(path).take(np.array(ids, np.int64))
    np.testing.assert_array_equal(samples["x"], X[np.array(ids, np.int64)])
    assert samples["more/y"].tolist() == ids


def test_fields_are_the_datasets_of_numbers(path):
    source = Hdf5Source(path)
    assert source.fields.keys() == {"x", "more/y"}
    assert source.fields["x"] == ((2, 3), np.float32)
    assert len(source) == 7


def test_big_endian_numbers_are_read_in_this_machines_order(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["x"] = np.arange(3, dtype=">i4")
    samples = Hdf5Source(tmp_path / "a.h5").take(np.array([2]))
    assert samples["x"].dtype.isnative
    assert samples["x"].tolist() == [2]


def test_a_copy_in_another_process_opens_the_file_itself(path):
    source = Hdf5Source(path)
    source.take(np.array([0]))
    copy = pickle.loads(pickle.dumps(source))
    assert copy.take(np.array([3]))["more/y"].tolist() == [3]


def test_processes_read_it(path):
    iterator = DataIterator(Hdf5Source(path), 3, workers=2)
    ids = [number for batch in iterator.epoch() for number in batch["more/y"].tolist()]
    iterator.close()
    assert sorted(ids) == list(range(7))


def test_it_is_opened_by_its_suffix_with_the_wanted_fields(path):
    with Session(discover=False) as session:
        source = open_source("data.h5", session, folder=path.parent, wanted=["x"])
    assert source.fields.keys() == {"x"}


def test_datasets_of_two_lengths_are_refused_unless_one_is_wanted(path):
    with h5py.File(path, "a") as file:
        file["z"] = np.arange(3)
    with pytest.raises(DataError, match=r"equally many samples: more/y 7, x 7, z 3"):
        Hdf5Source(path)
    assert len(Hdf5Source(path, ["z"])) == 3


def test_a_missing_dataset_is_named_with_the_nearest(path):
    with pytest.raises(DataError, match="no dataset 'more/z'; did you mean 'more/y'"):
        Hdf5Source(path, ["more/z"])


@pytest.mark.parametrize("keep", [0, 100, -200])
def test_a_damaged_file_is_an_error_that_names_it(path, keep):
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(DataError, match=r"cannot read .*data\.h5"):
        Hdf5Source(path)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(DataError, match=r"no file .*none\.h5"):
        Hdf5Source(tmp_path / "none.h5")


def test_a_file_without_numbers_says_what_it_lacks(tmp_path):
    with h5py.File(tmp_path / "data.h5", "w") as file:
        file["names"] = ["a", "b"]
        file["one"] = 3.0
    with pytest.raises(DataError, match="holds no dataset of numbers with an axis of samples"):
        Hdf5Source(tmp_path / "data.h5")
