"""Running extremes, running log-sums, and the k largest."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nnl_core import functions as F
from nnl_core.errors import ShapeError
from nnl_core.graph.execute import forward_all
from nnl_core.graph.variable import Variable


def with_gradient(*values: float) -> Variable:
    x = Variable.from_numpy_array(np.array(values, np.float64), need_grad=True)
    x.grad.zero()
    return x


def backward(y: Variable, *weights: float) -> None:
    y.forward()
    y.backward(np.array(weights, np.float64))


# Running extremes --------------------------------------------------------------------------------


@given(st.lists(st.integers(-3, 3), min_size=1, max_size=8), st.booleans(), st.booleans())
@settings(deadline=None, max_examples=40)
def test_each_is_the_extreme_of_all_up_to_it(
    values: list[int], reverse: bool, smallest: bool
) -> None:
    function, best = (F.cummin, min) if smallest else (F.cummax, max)
    y, index = function(np.array(values, np.float32), reverse=reverse, with_index=True)
    forward_all([y, index])
    order = list(range(len(values)))[:: -1 if reverse else 1]
    for count, place in enumerate(order, 1):
        found = best(values[i] for i in order[:count])
        assert y.d[place] == found
        assert index.d[place] == next(i for i in order if values[i] == found)


def test_gradient_goes_to_the_first_of_equal_extremes() -> None:
    x = with_gradient(1, 3, 3, 2)
    backward(F.cummax(x), 1, 10, 100, 1000)
    assert x.g.tolist() == [1, 1110, 0, 0]


@pytest.mark.parametrize("function", [F.cummax, F.cummin])
def test_all_is_nan_from_the_first_nan_on(function: Any) -> None:
    y, index = function(np.array([1.0, np.nan, 5.0, np.nan, -5.0]), with_index=True)
    forward_all([y, index])
    assert np.isnan(y.d).tolist() == [False, True, True, True, True]
    assert index.d.tolist() == [0, 1, 1, 1, 1]


def test_integers_stay_integers() -> None:
    y = F.cummax(np.array([[3, 4], [1, 9]], np.int8))
    assert y.dtype == np.int8
    assert y.d.tolist() == [[3, 4], [3, 9]]


# Running log-sums --------------------------------------------------------------------------------


def test_log_of_running_sums() -> None:
    x = np.log(np.array([1.0, 2.0, 3.0]))
    assert np.exp(F.logcumsumexp(x).d) == pytest.approx([1, 3, 6])
    assert np.exp(F.logcumsumexp(x, reverse=True).d) == pytest.approx([6, 5, 3])
    assert np.exp(F.logcumsumexp(x, exclusive=True).d) == pytest.approx([0, 1, 3])
    assert np.exp(F.logcumsumexp(x, exclusive=True, reverse=True).d) == pytest.approx([5, 3, 0])


def test_large_exponents_overflow_neither_forwards_nor_backwards() -> None:
    x = with_gradient(1000, 1000, -1000, 0)
    y = F.logcumsumexp(x)
    backward(y, 1, 1, 1, 1)
    two = 1000 + np.log(2)
    assert y.d == pytest.approx([1000, two, two, two])
    assert x.g == pytest.approx([2.5, 1.5, 0, 0])


def test_what_is_nothing_has_no_gradient() -> None:
    x = with_gradient(-np.inf, -np.inf, 0, -np.inf)
    y = F.logcumsumexp(x)
    backward(y, 1, 1, 1, 1)
    assert y.d.tolist() == [-np.inf, -np.inf, 0, 0]
    assert x.g.tolist() == [0, 0, 2, 0]


def test_nan_stays() -> None:
    assert np.isnan(F.logcumsumexp(np.array([0.0, np.nan, 0.0])).d).tolist() == [False, True, True]


# The largest -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("largest", "values", "places"), [(True, [4, 3, 3], [2, 0, 4]), (False, [1, 2, 3], [1, 3, 0])]
)
def test_the_first_of_equal_elements_comes_first(
    largest: bool, values: list[int], places: list[int]
) -> None:
    found = F.topk(np.array([3.0, 1, 4, 2, 3]), 3, largest=largest)
    forward_all(found)
    assert found[0].d.tolist() == values
    assert found[1].d.tolist() == places


@given(st.integers(0, 2**32 - 1), st.integers(-3, 2), st.booleans(), st.booleans())
@settings(deadline=None, max_examples=30)
def test_the_largest_are_the_end_of_what_is_sorted(
    seed: int, axis: int, largest: bool, in_order: bool
) -> None:
    x = np.random.default_rng(seed).normal(size=(2, 3, 4))
    values, places = F.topk(x, 2, axis, largest, in_order)
    forward_all([values, places])
    ordered = np.sort(x, axis)
    ordered = np.flip(ordered, axis) if largest else ordered
    np.testing.assert_array_equal(values.d, np.take(ordered, [0, 1], axis))
    np.testing.assert_array_equal(np.take_along_axis(x, places.d, axis), values.d)


@given(st.integers(0, 2**32 - 1), st.integers(1, 200), st.integers(1, 60), st.booleans())
@settings(deadline=None, max_examples=60)
def test_ties_and_nan_are_ranked_as_in_a_stable_sort(
    seed: int, length: int, k: int, largest: bool
) -> None:
    levels = np.array([-np.inf, -1, 0, 1, np.inf, np.nan], np.float32)
    x = np.random.default_rng(seed).choice(levels, size=(3, length))
    k = min(k, length)
    rank = np.where(np.isnan(x), 6, np.searchsorted(levels[:5], x))
    expected = np.argsort(-rank if largest else rank, axis=1, kind="stable")[:, :k]
    values, places = F.topk(x, k, largest=largest)
    forward_all([values, places])
    np.testing.assert_array_equal(places.d, expected)
    np.testing.assert_array_equal(values.d, np.take_along_axis(x, expected, 1))


def test_gradient_goes_back_to_where_the_elements_were() -> None:
    x = with_gradient(3, 1, 4)
    values, _ = F.topk(x, 2)
    backward(values, 10, 20)
    assert x.g.tolist() == [20, 0, 10]


def test_nan_is_larger_than_all_numbers() -> None:
    x = np.array([1.0, np.nan, np.inf])
    assert F.topk(x, 1)[1].d.tolist() == [1]
    assert F.topk(x, 2, largest=False)[1].d.tolist() == [0, 2]


def test_none_may_be_asked_for() -> None:
    assert F.topk(np.zeros((2, 3)), 0)[0].shape == (2, 0)


@pytest.mark.parametrize("k", [-1, 4])
def test_more_than_there_are_is_refused(k: int) -> None:
    with pytest.raises(ShapeError, match=f"topk: k {k} must be between 0 and the 3 elements"):
        F.topk(np.zeros((2, 3)), k)


@pytest.mark.parametrize(
    "call", [F.cummax, F.cummin, F.logcumsumexp, lambda x, axis: F.topk(x, 1, axis)]
)
def test_an_axis_that_is_not_there_is_named(call: Any) -> None:
    with pytest.raises(ShapeError, match=r"axis 2 is out of range for 2 axes: input shape \(2, 3"):
        call(np.zeros((2, 3)), 2)
