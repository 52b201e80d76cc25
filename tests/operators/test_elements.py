"""Single elements put into an array."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nnl_core import functions as F
from nnl_core.errors import OperatorError, ShapeError
from nnl_core.graph.variable import Variable


def with_gradient(*values: float) -> Variable:
    x = Variable.from_numpy_array(np.array(values, np.float64), need_grad=True)
    x.grad.zero()
    return x


def backward(y: Variable, *weights: float) -> None:
    y.forward()
    y.backward(np.array(weights, y.dtype))


JOIN: dict[str, Callable[[list[Any]], Any]] = {
    "add": sum,
    "mean": lambda values: sum(values) / len(values),
    "mul": lambda values: functools.reduce(lambda a, b: a * b, values),
    "max": max,
    "min": min,
    "none": lambda values: values[-1],
}


@given(
    st.sampled_from(sorted(JOIN)), st.booleans(), st.sampled_from([0, 1]), st.integers(0, 2**32 - 1)
)
@settings(deadline=None, max_examples=60)
def test_each_place_joins_what_names_it(
    reduction: str, include_self: bool, axis: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    x, updates = rng.normal(size=(3, 4)), rng.normal(size=(4, 4))
    indices = rng.integers(0, 3, (4, 3) if axis == 0 else (2, 4))
    expected = x.copy()
    for place in np.ndindex(x.shape):
        found = [
            updates[at]
            for at in np.ndindex(indices.shape)
            if indices[at] == place[axis] and at[1 - axis] == place[1 - axis]
        ]
        if found:
            expected[place] = JOIN[reduction]([x[place]] * include_self + found)
    y = F.scatter_elements(x, indices, updates, axis, reduction, include_self)
    np.testing.assert_allclose(y.d, expected, atol=1e-12)


def test_the_update_that_stays_gets_the_gradient() -> None:
    x, updates = with_gradient(1, 2, 3), with_gradient(5, 6, 7)
    backward(F.scatter_elements(x, np.array([2, 0, 2]), updates), 10, 20, 30)
    assert x.g.tolist() == [0, 20, 0]
    assert updates.g.tolist() == [0, 10, 30]


@pytest.mark.parametrize("reduction", ["max", "min"])
def test_equal_extremes_share_the_gradient(reduction: str) -> None:
    x, updates = with_gradient(5, 1), with_gradient(5, 5, 1)
    backward(F.scatter_elements(x, np.array([0, 0, 1]), updates, reduction=reduction), 3, 4)
    assert x.g.tolist() == [1, 2]
    assert updates.g.tolist() == [1, 1, 2]


def test_gradient_of_a_product_is_right_where_factors_are_zero() -> None:
    x, updates = with_gradient(2, 3), with_gradient(0, 5, 0, 0)
    backward(F.scatter_elements(x, np.array([0, 0, 1, 1]), updates, reduction="mul"), 1, 1)
    assert x.g.tolist() == [0, 0]
    assert updates.g.tolist() == [10, 0, 0, 0]


@pytest.mark.parametrize("reduction", ["add", "mean", "mul", "max", "min"])
def test_nan_wins(reduction: str) -> None:
    y = F.scatter_elements(
        np.array([1.0, np.nan, 1.0]), np.array([0, 1]), np.array([np.nan, 1.0]), 0, reduction
    )
    assert np.isnan(y.d).tolist() == [True, True, False]


@pytest.mark.parametrize("reduction", sorted(JOIN))
@pytest.mark.parametrize("include_self", [False, True])
def test_nothing_to_put_changes_nothing(reduction: str, include_self: bool) -> None:
    x = np.arange(6.0).reshape(2, 3)
    y = F.scatter_elements(
        x, np.zeros((0, 3), np.int64), np.zeros((0, 3)), 0, reduction, include_self
    )
    np.testing.assert_array_equal(y.d, x)


@pytest.mark.parametrize(
    ("reduction", "expected"),
    [("add", [9, 2]), ("mul", [20, 2]), ("max", [5, 2]), ("min", [4, 2]), ("none", [5, 2])],
)
def test_integers_stay_integers(reduction: str, expected: list[int]) -> None:
    x, updates = np.array([1, 2], np.int32), np.array([4, 5], np.int32)
    y = F.scatter_elements(x, np.array([0, 0]), updates, 0, reduction, include_self=False)
    assert y.dtype == np.int32
    assert y.d.tolist() == expected


def test_positions_may_be_whole_floats_and_updates_may_be_longer() -> None:
    y = F.scatter_elements(np.zeros((2, 3)), np.array([[1.0, 0.0]]), np.ones((4, 5)))
    assert y.d.tolist() == [[0, 1, 0], [1, 0, 0]]


@pytest.mark.parametrize("index", [-1, 3, 0.5])
@pytest.mark.parametrize("reduction", sorted(JOIN))
def test_positions_outside_are_named(index: float, reduction: str) -> None:
    with pytest.raises(OperatorError, match=f"index {index} is"):
        F.scatter_elements(np.zeros(3), np.array([index]), np.ones(1), 0, reduction).forward()


def test_an_unknown_reduction_is_refused() -> None:
    with pytest.raises(OperatorError, match="reduction 'sum' is not one of"):
        F.scatter_elements(np.zeros(3), np.array([0]), np.ones(1), reduction="sum")


@pytest.mark.parametrize(
    ("shapes", "reduction"),
    [
        (shapes, reduction)
        for shapes in [((2, 4), (2, 4)), ((2, 3), (1, 3)), ((2,), (2,))]
        for reduction in ("none", "max")
    ],
)
def test_shapes_that_do_not_fit_are_refused(
    shapes: tuple[tuple[int, ...], ...], reduction: str
) -> None:
    indices, updates = (np.zeros(shape, np.int64) for shape in shapes)
    with pytest.raises(ShapeError, match=r"too short|must not be longer"):
        F.scatter_elements(np.zeros((2, 3)), indices, updates, 0, reduction)
