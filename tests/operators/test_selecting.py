"""Distinct elements, and places that are not zero."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from nnl_core import functions as F
from nnl_core.errors import OperatorError, ShapeError
from nnl_core.graph.execute import forward_all
from nnl_core.graph.modes import auto_forward
from nnl_core.graph.variable import Variable

ALL = {"with_index": True, "with_inverse": True, "with_counts": True}


def values(outputs: Any) -> list[Any]:
    return [output.d.tolist() for output in outputs]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, [[1, 2, 3], [1, 3, 0], [2, 0, 2, 1, 0, 0, 1, 2], [3, 2, 3]]),
        ({"sorted": False}, [[3, 1, 2], [0, 1, 3], [0, 1, 0, 2, 1, 1, 2, 0], [3, 3, 2]]),
        ({"axis": 1}, [[1, 2, 3], [1, 3, 0], [2, 0, 2, 1, 0, 0, 1, 2], [3, 2, 3]]),
        (
            {"flatten": False, "axis": 1},
            [[[1, 2, 3, 3], [1, 3, 1, 2]], [1, 3, 0, 2], [2, 0, 3, 1], [1, 1, 1, 1]],
        ),
        ({"flatten": False, "axis": -2}, [[[1, 1, 2, 3], [3, 1, 3, 2]], [1, 0], [1, 0], [1, 1]]),
    ],
)
def test_elements_or_slices_in_order_of_size_or_occurrence(
    options: dict[str, Any], expected: list[Any]
) -> None:
    x = np.array([[3, 1, 3, 2], [1, 1, 2, 3]], np.float32)
    outputs = F.unique(x, **options, **ALL)
    forward_all(outputs)
    assert values(outputs) == expected


def test_equal_slices_are_one() -> None:
    x = np.array([[2, 1, 2], [0, 5, 0]])
    outputs = F.unique(x, flatten=False, axis=1, sorted=False, **ALL)
    assert values(outputs) == [[[2, 1], [0, 5]], [0, 1], [0, 1, 0], [2, 1]]


@given(
    x=arrays.arrays(
        np.int64, arrays.array_shapes(max_dims=3, max_side=4), elements=st.integers(0, 3)
    ),
    ordered=st.booleans(),
    data=st.data(),
)
def test_slices_are_found_again(x: np.ndarray, ordered: bool, data: st.DataObject) -> None:
    axis = data.draw(st.sampled_from([None, *range(x.ndim)]))
    y, index, inverse, counts = (
        output.d for output in F.unique(x, axis is None, axis, ordered, **ALL)
    )
    whole, along = (x.reshape(-1), 0) if axis is None else (x, axis)
    np.testing.assert_array_equal(np.take(y, inverse, along), whole)
    np.testing.assert_array_equal(np.take(whole, index, along), y)
    np.testing.assert_array_equal(np.bincount(inverse, minlength=len(counts)), counts)


def test_only_what_is_asked_for_is_returned() -> None:
    x = np.array([2, 2, 1])
    assert isinstance(F.unique(x), Variable)
    assert values(F.unique(x, with_counts=True)) == [[1, 2], [1, 2]]
    assert values(F.unique(x, with_index=True, with_counts=True)) == [[1, 2], [2, 0], [1, 2]]


def test_all_nan_are_one_element() -> None:
    np.testing.assert_array_equal(F.unique(np.array([np.nan, 1, np.nan])).d, [1, np.nan])


@pytest.mark.parametrize("dynamic", [False, True])
def test_gradient_goes_to_the_first_of_equal_elements(dynamic: bool) -> None:
    x = Variable.from_numpy_array(np.array([3.0, 1, 3, 1, 2]), need_grad=True)
    with auto_forward(dynamic):
        y = F.unique(x)
    y.forward()
    y.backward(np.array([10.0, 20, 30]))
    assert x.g.tolist() == [30, 10, 0, 0, 20]


def test_another_number_in_a_later_run_is_an_error_that_says_what_to_do() -> None:
    x = Variable.from_numpy_array(np.array([1.0, 2, 0]))
    distinct, places = F.unique(x), F.nonzero(x)
    forward_all([distinct, places])
    x.d = [1, 1, 1]
    with pytest.raises(OperatorError, match=r"1 elements or slices differ, where 3 .*build the"):
        distinct.forward()
    with pytest.raises(OperatorError, match=r"3 elements are not 0, where 2 .*build the graph"):
        places.forward()


def test_slices_need_an_axis() -> None:
    with pytest.raises(ShapeError, match="flatten=False needs an axis"):
        F.unique(np.ones((2, 2)), flatten=False)
    with pytest.raises(ShapeError, match="axis 2 is out of range"):
        F.unique(np.ones((2, 2)), flatten=False, axis=2)


def test_positions_are_in_row_major_order() -> None:
    assert F.nonzero(np.array([[1.0, 0, 3], [0, np.nan, 0]])).d.tolist() == [[0, 0, 1], [0, 2, 1]]


def test_positions_read_elements_again() -> None:
    x = np.array([[0, 5, 0], [6, 0, 7]])
    assert F.gather_nd(x, F.nonzero(x)).d.tolist() == [5, 6, 7]


@pytest.mark.parametrize(
    ("x", "shape"),
    [(np.zeros((2, 3)), (2, 0)), (np.array(3.0), (0, 1)), (np.zeros((0, 2)), (2, 0))],
)
def test_nothing_found_and_arrays_without_axes(x: np.ndarray, shape: tuple[int, ...]) -> None:
    assert F.nonzero(x).d.shape == shape
