from __future__ import annotations

import numpy as np
import pytest

from nnl_core.data import ArraySource, Field, open_source, select_fields
from nnl_core.data.arrays import read_arrays
from nnl_core.errors import DataError
from nnl_core.session import Session


def test_take_stacks_the_samples_of_the_given_numbers():
    source = ArraySource({"x": [[0, 1], [2, 3], [4, 5]], "y": [7, 8, 9]})
    taken = source.take(np.array([2, 0]))
    assert taken["x"].tolist() == [[4, 5], [0, 1]]
    assert taken["y"].tolist() == [9, 7]


def test_what_was_taken_can_be_written_without_changing_the_source():
    array = np.zeros((3, 2))
    ArraySource({"x": array}).take(np.array([0, 1]))["x"][:] = 1
    assert not array.any()


def test_fields_have_the_shape_and_dtype_of_one_sample():
    source = ArraySource({"x": np.zeros((5, 2, 3), np.uint8)})
    assert source.fields["x"].shape == (2, 3)
    assert source.fields["x"].dtype == np.uint8


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"x": [1, 2], "y": [1]}, "equally many samples: x 2, y 1"),
        ({}, "no field"),
        ({"x": ["a"]}, "field 'x' holds <U1, not numbers"),
        ({"x": 1.0}, "field 'x' is a single number"),
    ],
)
def test_arrays_that_make_no_data_set_are_refused(arrays, message):
    with pytest.raises(DataError, match=message):
        ArraySource(arrays)


def test_a_field_is_shifted_scaled_and_reshaped():
    source = ArraySource({"images": np.array([[0, 51], [102, 255]], np.uint8)})
    field = Field("images", shape=(2, 1), subtract=51, divide=102)
    x = select_fields(source, {"x": field}, "train").take(np.arange(2))["x"]
    assert x.dtype == np.float32
    np.testing.assert_array_equal(x, np.float32([[[-0.5], [0.0]], [[0.5], [2.0]]]))


def test_a_field_that_is_only_renamed_keeps_its_elements_and_dtype():
    labels = np.array([3, 1], np.int64)
    selected = select_fields(ArraySource({"labels": labels}), {"y": Field("labels")}, "train")
    assert selected.take(np.arange(2))["y"].dtype == np.int64
    assert selected.fields.keys() == {"y"}


class Lazy:
    """A source that is not in memory."""

    name = "lazy"

    def __init__(self, array):
        self.array = array
        self.fields = ArraySource({"a": array}).fields
        self.taken = 0

    def __len__(self):
        return len(self.array)

    def take(self, ids):
        self.taken += len(ids)
        return {"a": self.array[ids]}


def test_what_is_not_in_memory_is_prepared_when_it_is_taken():
    lazy = Lazy(np.arange(6, dtype=np.uint8).reshape(3, 2))
    selected = select_fields(lazy, {"x": Field("a", divide=2)}, "train")
    assert lazy.taken == 0
    np.testing.assert_array_equal(selected.take(np.array([1]))["x"], [[1.0, 1.5]])
    assert len(selected) == 3


@pytest.mark.parametrize(
    ("field", "message"),
    [
        (Field("imagse"), "no array 'imagse'; did you mean 'images'"),
        (Field("images", shape=(3,)), r"shape \[3\] does not fit .* shape \[4\]"),
    ],
)
def test_a_field_that_cannot_be_made_is_refused(field, message):
    source = ArraySource({"images": np.zeros((2, 4))})
    with pytest.raises(DataError, match=message):
        select_fields(source, {"x": field}, "train")


@pytest.fixture
def digits(tmp_path):
    np.savez(tmp_path / "digits.npz", images=np.zeros((3, 4)), labels=np.arange(3))
    return tmp_path / "digits.npz"


def test_only_the_wanted_arrays_of_a_file_are_read(digits):
    assert read_arrays(digits, ["labels"]).keys() == {"labels"}
    assert read_arrays(digits).keys() == {"images", "labels"}


def test_the_array_of_an_npy_file_is_called_x(tmp_path):
    np.save(tmp_path / "a.npy", np.arange(3))
    assert read_arrays(tmp_path / "a.npy")["x"].tolist() == [0, 1, 2]


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(DataError, match=r"no file .*nothing\.npz"):
        read_arrays(tmp_path / "nothing.npz")


def test_a_missing_array_is_named_with_the_nearest_one(digits):
    with pytest.raises(DataError, match=r"no array 'label'; did you mean 'labels'"):
        read_arrays(digits, ["label"])


@pytest.mark.parametrize("keep", [0, 10, 200, -30])
def test_a_damaged_file_is_a_data_error(digits, keep):
    digits.write_bytes(digits.read_bytes()[:keep])
    with pytest.raises(DataError, match="cannot read"):
        read_arrays(digits)


def test_python_objects_are_not_loaded(tmp_path):
    np.savez(tmp_path / "a.npz", x=np.array([{}], dtype=object))
    with pytest.raises(DataError, match="cannot read"):
        read_arrays(tmp_path / "a.npz")


@pytest.mark.parametrize("prefix", ["", "npz:"])
def test_a_source_is_opened_by_suffix_or_scheme(digits, prefix):
    with Session(discover=False) as session:
        location = digits.name if not prefix else str(digits)
        source = open_source(prefix + location, session, folder=digits.parent)
    assert len(source) == 3


def test_a_location_that_nothing_opens_is_an_error_that_says_what_is_opened(tmp_path):
    with Session(discover=False) as session, pytest.raises(DataError, match=r"\.npz, \.npy"):
        open_source("digits.xyz", session, folder=tmp_path)


def test_what_follows_the_scheme_of_files_is_a_path_from_the_same_folder(digits):
    with Session(discover=False) as session:
        assert len(open_source("npz:digits.npz", session, folder=digits.parent)) == 3
