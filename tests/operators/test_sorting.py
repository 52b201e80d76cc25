"""Sorting, and the largest elements."""

from __future__ import annotations

import numpy as np
import pytest

from nnl_core import functions as F
from nnl_core.errors import ShapeError
from nnl_core.graph.execute import forward_all
from nnl_core.graph.variable import Variable


def given(*rows: list[float]) -> Variable:
    return Variable.from_numpy_array(np.array(rows, np.float32), need_grad=True)


@pytest.mark.parametrize(
    ("reverse", "values", "places"),
    [(False, [1, 2, 2, 3], [3, 0, 2, 1]), (True, [3, 2, 2, 1], [1, 0, 2, 3])],
)
def test_equal_elements_stay_in_their_order(
    reverse: bool, values: list[int], places: list[int]
) -> None:
    y, index = F.sort(given([2, 3, 2, 1]), reverse=reverse, with_index=True)
    forward_all([y, index])
    assert y.d.tolist() == [values]
    assert index.d.tolist() == [places]


def test_nan_is_sorted_as_larger_than_all_numbers() -> None:
    x = given([np.nan, 1, np.inf])
    assert F.sort(x, only_index=True).d.tolist() == [[1, 2, 0]]
    assert F.sort(x, reverse=True, only_index=True).d.tolist() == [[0, 2, 1]]


def test_gradient_of_sort_goes_back_to_where_the_elements_were() -> None:
    x = given([20, 30, 10])
    y = F.sort(x)
    y.forward()
    y.backward(np.array([[1.0, 2.0, 3.0]]))
    assert x.g.tolist() == [[2, 3, 1]]


def test_top_k_of_each_sample_by_size_and_by_magnitude() -> None:
    x = given([3, -9, 1, 5], [0, 2, -4, -1])
    assert F.top_k_data(x, 2).d.tolist() == [[5, 3], [2, 0]]
    assert F.top_k_data(x, 2, abs=True).d.tolist() == [[-9, 5], [-4, 2]]
    assert F.top_k_data(x, 2, largest=False).d.tolist() == [[-9, 1], [-4, -1]]
    assert F.top_k_data(x, 2, reduce=False).d.tolist() == [[3, 0, 0, 5], [0, 2, 0, 0]]
    assert F.top_k_data(x, 3, base_axis=0).d.tolist() == [5, 3, 2]


def test_top_k_gives_positions_in_the_flat_sample() -> None:
    x = given([3, -9, 1, 5], [0, 2, -4, -1])
    _, index = F.top_k_data(x, 2, with_index=True)
    assert index.d.tolist() == [[3, 0], [1, 0]]
    _, index = F.top_k_data(x, 2, reduce=False, with_index=True)
    assert index.d.tolist() == [[0, -1, -1, 3], [0, 1, -1, -1]]


def test_top_k_grad_lets_the_largest_gradients_through() -> None:
    x = given([1, 1, 1])
    y = F.top_k_grad(x, 1, abs=True)
    y.forward()
    assert y.d.tolist() == [[1, 1, 1]]
    y.backward(np.array([[1.0, -5.0, 4.0]]))
    assert x.g.tolist() == [[0, -5, 0]]


@pytest.mark.parametrize("k", [0, 4])
def test_k_must_fit_the_sample(k: int) -> None:
    for function in (F.top_k_data, F.top_k_grad):
        with pytest.raises(ShapeError, match=f"k {k} must be between 1 and the 3 elements"):
            function(given([1, 2, 3]), k)
