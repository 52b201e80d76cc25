"""Flat storage of parameters."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nnl_core.errors import ClearedError, ParameterError
from nnl_core.flat_storage import FlatStorage
from nnl_core.graph.array import NdArray
from nnl_core.graph.variable import Variable
from nnl_core.parameters import Parameter

shapes = st.lists(st.lists(st.integers(0, 5), max_size=3).map(tuple), min_size=1, max_size=6)


def make(*shapes_, dtype=np.float32):
    result = {}
    for position, shape in enumerate(shapes_):
        parameter = Parameter(shape, dtype=dtype)
        parameter.d = np.arange(parameter.size).reshape(shape) + 100 * position
        parameter.g = -parameter.d
        result[f"p{position}"] = parameter
    return result


@given(shapes)
def test_segments_hold_each_parameter_and_its_gradient_and_gaps_are_zero(chosen):
    parameters = make(*chosen)
    before = {name: parameter.d.copy() for name, parameter in parameters.items()}
    storage = FlatStorage(parameters)
    flat, flat_gradient = storage.data.d, storage.grad.d
    covered = np.zeros(flat.size, bool)
    for name, (start, stop) in storage.segments.items():
        assert np.array_equal(flat[start:stop], before[name].ravel())
        assert np.array_equal(flat_gradient[start:stop], -before[name].ravel())
        assert np.array_equal(parameters[name].d, before[name])
        covered[start:stop] = True
    assert not flat[~covered].any()


def test_every_parameter_starts_on_a_cache_line():
    storage = FlatStorage(make((3,), (5, 7), (), (2,)))
    address = storage.data.d.ctypes.data
    assert all((address + 4 * start) % 64 == 0 for start, _ in storage.segments.values())


def test_a_write_to_a_parameter_is_seen_in_the_block_and_the_other_way_round():
    parameters = make((2, 2), (3,))
    storage = FlatStorage(parameters)
    parameters["p1"].d = 7
    start, stop = storage.segments["p1"]
    assert np.array_equal(storage.collect_data().read()[start:stop], [7, 7, 7])
    storage.data.d[...] = 1
    storage.publish_data()
    assert np.array_equal(parameters["p0"].d, np.ones((2, 2)))


def test_packing_is_no_write_and_publishing_is_one():
    parameters = make((2,))
    version = parameters["p0"].data.version
    storage = FlatStorage(parameters)
    assert parameters["p0"].data.version == version
    storage.publish_data()
    assert parameters["p0"].data.version > version


def test_a_gradient_made_zero_is_zero_in_the_block():
    parameters = make((3,))
    storage = FlatStorage(parameters)
    parameters["p0"].grad.zero()
    assert not storage.collect_gradients().read().any()


def test_gradients_computed_in_the_block_count_even_after_they_were_made_zero():
    parameters = make((3,))
    storage = FlatStorage(parameters)
    parameters["p0"].grad.zero()
    storage.grad.d[...] = 6
    storage.publish_gradients()
    assert np.array_equal(parameters["p0"].g, [6, 6, 6])


def test_publishing_reaches_what_another_storage_has_moved_away():
    parameters = make((3,))
    first = FlatStorage(parameters)
    FlatStorage(parameters)
    first.grad.d[...] = 6
    first.publish_gradients()
    assert np.array_equal(parameters["p0"].g, [6, 6, 6])


def test_a_parameter_given_other_storage_is_moved_back():
    parameters = make((3,), (2,))
    storage = FlatStorage(parameters)
    parameters["p0"].data = NdArray.from_numpy_array(np.full(3, 9, np.float32))
    start, stop = storage.segments["p0"]
    assert np.array_equal(storage.collect_data().read()[start:stop], [9, 9, 9])
    storage.data.d[...] = 4
    assert np.array_equal(parameters["p0"].d, [4, 4, 4])


def test_a_gradient_replaced_by_another_is_moved_back():
    parameters = make((3,))
    storage = FlatStorage(parameters)
    parameters["p0"].grad = NdArray.from_numpy_array(np.full(3, 8, np.float32))
    assert np.array_equal(storage.collect_gradients().read()[:3], [8, 8, 8])


def test_two_storages_with_a_parameter_in_common_both_see_what_it_holds():
    parameters = make((2,), (3,))
    first = FlatStorage(parameters)
    second = FlatStorage({"p1": parameters["p1"]})
    parameters["p1"].d = [1, 2, 3]
    start, stop = first.segments["p1"]
    assert np.array_equal(first.collect_data().read()[start:stop], [1, 2, 3])
    first.data.d[...] = 5
    first.publish_data()
    assert np.array_equal(second.collect_data().read()[:3], [5, 5, 5])


def test_an_unlinked_variable_follows_its_parameter_into_the_block():
    parameters = make((2,))
    other = parameters["p0"].get_unlinked_variable()
    storage = FlatStorage(parameters)
    storage.data.d[...] = 3
    assert np.array_equal(other.d, [3, 3])


def test_a_parameter_never_written_is_zero():
    storage = FlatStorage({"p": Variable((3,), need_grad=True)})
    assert not storage.data.d.any()


def test_a_released_parameter_is_an_error_not_zero():
    parameters = make((3,))
    parameters["p0"].data.clear()
    with pytest.raises(ClearedError):
        FlatStorage(parameters)


def test_one_storage_holds_one_dtype_and_by_dtype_makes_one_for_each():
    parameters = make((2,)) | {"half": Parameter((3,), dtype=np.float16)}
    with pytest.raises(ParameterError, match=r"'half' is float16"):
        FlatStorage(parameters)
    storages = FlatStorage.by_dtype(parameters)
    assert [str(storage.data.dtype) for storage in storages] == ["float32", "float16"]


def test_fits_tells_whether_the_set_of_parameters_changed():
    parameters = make((2,), (3,))
    storage = FlatStorage(parameters)
    assert storage.fits(parameters)
    assert not storage.fits({"p0": parameters["p0"]})
    assert not storage.fits({**parameters, "p1": Parameter((3,))})
    parameters["p0"].reset_shape((5,), force=True)
    assert not storage.fits(parameters)


def test_no_parameters_is_an_error():
    with pytest.raises(ParameterError, match="at least one"):
        FlatStorage({})
