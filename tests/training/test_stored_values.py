"""Nested values with arrays come back from JSON as they were."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nnl_core.training.stored_values import pack, unpack

numbers = st.floats(allow_nan=False) | st.integers(-(2**70), 2**70)
leaves = st.none() | st.booleans() | st.text() | numbers
keys = st.text(max_size=4) | st.integers() | st.sampled_from(["$array", "$tuple", "a/b"])
values = st.recursive(
    leaves,
    lambda inner: st.lists(inner) | st.dictionaries(keys, inner) | st.tuples(inner, inner),
    max_leaves=20,
)


def through_json(value):
    arrays = {}
    text = json.dumps(pack(value, arrays, "place"), allow_nan=False)
    return unpack(json.loads(text), arrays)


@given(values)
def test_what_json_can_hold_comes_back_with_its_types(value):
    found = through_json(value)
    assert (found, repr(found)) == (value, repr(value))


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int8", "uint64", "bool"])
def test_arrays_come_back_bit_for_bit(dtype):
    array = np.arange(6).reshape(2, 3).astype(dtype)
    found = through_json({"a/b": array, "a": {"b": array + array}})
    assert found["a/b"].dtype == array.dtype
    np.testing.assert_array_equal(found["a/b"], array)
    np.testing.assert_array_equal(found["a"]["b"], array + array)


def test_numbers_that_are_not_finite_come_back():
    found = through_json([math.inf, -math.inf, math.nan])
    assert found[:2] == [math.inf, -math.inf]
    assert math.isnan(found[2])


def test_scalars_of_numpy_become_python_s():
    found = through_json([np.float32(0.1), np.int64(3), np.bool_(True)])
    assert [type(value) for value in found] == [float, int, bool]
    assert found[0] == float(np.float32(0.1))


def test_a_copy_is_packed_not_the_array_itself():
    array, arrays = np.zeros(2), {}
    pack(array, arrays, "place")
    array[0] = 1
    assert arrays["place"][0] == 0


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"seen": {1, 2}}, "state/seen is a set"),
        ([print], "state/0 is a builtin_function"),
        ({"x": np.array(["text"])}, "state/x is an array of <U4"),
        ({"x": np.array([None])}, "state/x is an array of object"),
        ((1j,), "state/0 is a complex"),
    ],
)
def test_all_else_is_refused_by_its_place(value, message):
    with pytest.raises(TypeError, match=message):
        pack(value, {}, "state")
