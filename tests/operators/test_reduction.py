"""Sums, means, extremes, products, norms, variance, log-sum-exp, cumulative sums and products."""

from __future__ import annotations

import math
import statistics

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nnl_core import functions as F
from nnl_core.errors import OperatorError, ShapeError
from nnl_core.graph.autodiff import grad
from nnl_core.graph.variable import Variable

NAN = float("nan")
LISTS = st.lists(st.integers(-9, 9), min_size=2, max_size=8)


def leaf(values, dtype=np.float64):
    return Variable.from_numpy_array(np.asarray(values, dtype), need_grad=True)


def integers(values, dtype):
    return Variable.from_numpy_array(np.asarray(values, dtype))


def slope(function, values):
    x = leaf(values)
    return grad(function(x), x)[0].d.tolist()


# Axes --------------------------------------------------------------------------------------------

CALLS = [F.sum, F.mean, F.max, F.min, F.prod, F.norm, F.logsumexp, F.var, F.std, F.argmax, F.argmin]


@pytest.mark.parametrize("function", CALLS)
@pytest.mark.parametrize(
    ("axis", "plain", "kept"),
    [
        (None, (), (1, 1, 1)),
        (1, (2, 4), (2, 1, 4)),
        (-1, (2, 3), (2, 3, 1)),
        ((0, 2), (3,), (1, 3, 1)),
        ([2, 0], (3,), (1, 3, 1)),
    ],
)
def test_an_axis_goes_or_stays_with_length_one(function, axis, plain, kept):
    x = leaf(np.random.default_rng(0).normal(size=(2, 3, 4)))
    assert function(x, axis=axis).d.shape == plain
    assert function(x, axis=axis, keepdims=True).d.shape == kept


@pytest.mark.parametrize("function", CALLS)
def test_an_axis_that_is_not_there_is_named(function):
    with pytest.raises(ShapeError, match=r"axis 2 .*2 axes.*\(2, 3\)"):
        function(leaf(np.zeros((2, 3))), axis=2)


def test_an_axis_given_twice_is_an_error():
    with pytest.raises(ShapeError, match="twice"):
        F.sum(leaf(np.zeros((2, 3))), axis=(0, -2))


# Sums and means ----------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int32, np.bool_])
def test_sums_of_integers_do_not_overflow_at_their_width(dtype):
    top = 1 if dtype is np.bool_ else np.iinfo(dtype).max
    total = F.sum(integers([top] * 1000, dtype))
    assert total.dtype.itemsize == 8
    assert total.d == int(top) * 1000


def test_products_of_integers_do_not_overflow_at_their_width():
    assert F.prod(integers([100, 100], np.int8)).d == 10000
    assert F.cumsum(integers([100, 100], np.int8)).d.tolist() == [100, 200]
    assert F.cumprod(integers([100, 100], np.int8)).d.tolist() == [100, 10000]


def test_half_precision_is_summed_in_single():
    ones = leaf(np.ones(4096), np.float16)  # beyond 2048, a half cannot count by ones
    assert F.sum(ones).d == 4096
    assert F.mean(ones).d == 1
    assert F.cumsum(ones).d[-1] == 4096
    assert F.sum(ones).dtype == np.float16


def test_a_mean_of_integers_is_a_float():
    assert F.mean(integers([1, 2], np.int64)).d == 1.5
    assert F.mean(integers([1, 2], np.int64)).dtype == np.float32


def test_empty_sums_have_their_neutral_element():
    x = leaf(np.zeros((0, 3)))
    assert F.sum(x, axis=0).d.tolist() == [0.0] * 3
    assert F.prod(x, axis=0).d.tolist() == [1.0] * 3
    assert F.logsumexp(x, axis=0).d.tolist() == [-np.inf] * 3
    assert np.isnan(F.mean(x, axis=0).d).all()
    assert F.sum(x, axis=1).d.shape == (0,)


def test_a_mean_gives_each_element_its_share_of_the_gradient():
    assert slope(F.mean, [[1.0, 2.0], [3.0, 4.0]]) == [[0.25, 0.25], [0.25, 0.25]]


def test_a_mean_follows_a_change_of_shape():
    x = leaf([1.0, 2.0, 3.0, 6.0])
    y = F.mean(x)
    y.forward()
    x.reset_shape((2,), force=True)
    x.d = [10.0, 20.0]
    y.forward()
    assert y.d == 15.0


def test_reduce_names_its_operations():
    x = leaf([[1.0, 2.0], [3.0, 6.0]])
    assert F.reduce(x).d == 12.0 == F.reduce_sum(x).d
    assert F.reduce(x, "mean").d == 3.0 == F.reduce_mean(x).d
    with pytest.raises(OperatorError, match=r"'median'.*'sum' or 'mean'"):
        F.reduce(x, "median")


def test_add_n_and_mul_n_take_any_number_of_arrays():
    x, y, z = leaf([2.0, 0.0]), leaf([3.0, 4.0]), leaf([5.0, 6.0])
    assert F.add_n(x, y, z).d.tolist() == [10.0, 10.0]
    assert F.mul_n(x, y, z).d.tolist() == [30.0, 0.0]
    assert F.add_n(x).d.tolist() == F.mul_n(x).d.tolist() == [2.0, 0.0]
    assert grad(F.mul_n(x, y, z), x)[0].d.tolist() == [15.0, 24.0]
    with pytest.raises(OperatorError, match="add_n needs at least one"):
        F.add_n()
    with pytest.raises(OperatorError, match="mul_n needs at least one"):
        F.mul_n()


def test_repeated_use_accumulates():
    x = leaf([2.0, 3.0])
    assert grad(F.sum(x) + F.sum(x * x), x)[0].d.tolist() == [5.0, 7.0]


# Extremes ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("function", [F.max, F.min])
def test_nan_propagates_through_an_extreme(function):
    y = function(leaf([[1.0, NAN, 2.0], [3.0, 4.0, 5.0]]), axis=1).d
    assert np.isnan(y[0])
    assert not np.isnan(y[1])


@pytest.mark.parametrize("function", [F.argmax, F.argmin])
def test_the_first_nan_is_the_position_of_an_extreme(function):
    assert function(leaf([3.0, NAN, 1.0, NAN])).d == 1


def test_among_equal_elements_the_first_counts():
    x = leaf([[2.0, 5.0, 5.0, 2.0]])
    assert F.argmax(x, axis=1).d.tolist() == [1]
    assert F.argmin(x, axis=1).d.tolist() == [0]


@pytest.mark.parametrize("function", [F.max, F.min])
def test_the_gradients_of_equal_elements_add_up_to_one(function):
    gradient = slope(lambda x: function(x, axis=1), [[5.0, 5.0, 5.0], [7.0, 7.0, 7.0]])
    assert gradient == [[1.0, 0.0, 0.0], [1.0, 0.0, 0.0]]


def test_an_index_is_returned_beside_the_value_or_alone():
    x = leaf([[1.0, 4.0, 2.0], [9.0, 0.0, 3.0]])
    value, index = F.max(x, axis=1, with_index=True)
    assert value.d.tolist() == [4.0, 9.0]
    assert index.d.tolist() == [1, 0]
    assert index.dtype == np.int64
    assert F.min(x, axis=1, only_index=True).d.tolist() == [0, 1]
    assert F.max(x, axis=1, with_index=True, only_index=True).d.tolist() == [1, 0]


def test_an_index_counts_through_all_reduced_axes():
    x = leaf(np.arange(24.0).reshape(2, 3, 4))
    assert F.max(x, axis=(0, 2), only_index=True).d.tolist() == [7, 7, 7]
    assert F.argmax(x).d == 23
    assert F.argmax(x, axis=(0, 2), keepdims=True).d.shape == (1, 3, 1)


def test_a_gradient_flows_beside_an_index():
    x = leaf([1.0, 4.0, 2.0])
    value, _ = F.max(x, with_index=True)
    assert grad(value, x)[0].d.tolist() == [0.0, 1.0, 0.0]


def test_there_is_no_extreme_of_nothing():
    with pytest.raises(ShapeError, match=r"max.*no elements.*\(2, 0\)"):
        F.max(leaf(np.zeros((2, 0))), axis=1)
    assert F.max(leaf(np.zeros((0, 2))), axis=1).d.shape == (0,)


# Products ----------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=40)
@given(LISTS)
def test_the_gradient_of_a_product_is_the_product_of_the_others(factors):
    expected = [
        float(math.prod(factors[:place] + factors[place + 1 :])) for place in range(len(factors))
    ]
    assert slope(F.prod, factors) == expected


def test_a_product_with_zeros_has_the_right_second_derivative():
    x = leaf([2.0, 0.0, 5.0])  # d2(xyz) = z, y, x off the diagonal
    first = grad(F.prod(x), x)[0]
    rows = [grad(F.sum(first * np.eye(3)[k]), x)[0].d.tolist() for k in range(3)]
    assert rows == [[0.0, 5.0, 0.0], [5.0, 0.0, 2.0], [0.0, 2.0, 0.0]]


@settings(deadline=None, max_examples=40)
@given(LISTS, st.booleans(), st.booleans())
def test_running_products_and_sums_are_those_of_the_elements_so_far(values, exclusive, reverse):
    def parts(place):
        before = values[place + 1 :] if reverse else values[:place]
        return before if exclusive else [*before, values[place]]

    x, places = leaf(values), range(len(values))
    options = {"exclusive": exclusive, "reverse": reverse}
    assert F.cumsum(x, **options).d.tolist() == [float(sum(parts(p))) for p in places]
    assert F.cumprod(x, **options).d.tolist() == [float(math.prod(parts(p))) for p in places]


def test_the_gradient_of_a_running_product_is_right_at_zeros():
    # y = (a, ab, abc) with b = 0: the sum's slopes are 1 + b + bc, a + ac, ab.
    assert slope(F.cumprod, [2.0, 0.0, 5.0]) == [1.0, 12.0, 0.0]


def test_cumulation_runs_along_any_axis():
    x = leaf([[1.0, 2.0], [3.0, 4.0]])
    assert F.cumsum(x).d.tolist() == [[1.0, 2.0], [4.0, 6.0]]
    assert F.cumsum(x, axis=-1).d.tolist() == [[1.0, 3.0], [3.0, 7.0]]
    with pytest.raises(ShapeError, match=r"cumsum: axis 2 .*\(2, 2\)"):
        F.cumsum(x, axis=2)


# Norms -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("p", "expected"), [(None, 5.0), (2, 5.0), (1, 7.0), (3, 91 ** (1 / 3)), (math.inf, 4.0)]
)
def test_norms_of_three_and_minus_four(p, expected):
    assert F.norm(leaf([3.0, -4.0]), p).d == pytest.approx(expected, rel=1e-15)


@pytest.mark.parametrize("p", [None, 1, 1.5, 2, 3, math.inf])
def test_the_gradient_of_a_norm_at_zero_is_zero(p):
    assert slope(lambda x: F.norm(x, p), [0.0, 0.0]) == [0.0, 0.0]


@pytest.mark.parametrize("p", [1, 2, 3])
def test_a_zero_beside_other_elements_leaves_the_gradient_finite(p):
    assert np.isfinite(slope(lambda x: F.norm(x, p), [0.0, 2.0])).all()


@pytest.mark.parametrize("p", [0, -1, NAN])
def test_a_power_that_makes_no_norm_is_named(p):
    with pytest.raises(OperatorError, match=f"p(=| is ){p}"):
        F.norm(leaf([1.0]), p)


# Variance ----------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=40)
@given(LISTS)
def test_variance_is_that_of_the_statistics_module(values):
    x = leaf(values)
    assert F.var(x).d == pytest.approx(statistics.pvariance(values), abs=1e-12)
    assert F.var(x, ddof=1).d == pytest.approx(statistics.variance(values), abs=1e-12)
    assert F.std(x).d == pytest.approx(statistics.pstdev(values), abs=1e-12)


def test_variance_takes_two_passes():
    # One pass, mean of squares less square of mean, would lose all digits here in float32.
    x = leaf([10000.0, 10001.0, 10002.0], np.float32)
    assert F.var(x).d == pytest.approx(2 / 3, rel=1e-6)


def test_the_slope_of_the_deviation_of_equal_elements_is_zero():
    assert slope(F.std, [3.0, 3.0, 3.0]) == [0.0, 0.0, 0.0]


def test_too_few_elements_for_their_correction_are_an_error():
    with pytest.raises(ShapeError, match=r"var.*ddof 1.*1 elements"):
        F.var(leaf([2.0]), ddof=1)


# Log-sum-exp -------------------------------------------------------------------------------------


def test_log_sum_exp_of_great_numbers_is_finite():
    assert F.logsumexp(leaf([1000.0, 1000.0])).d == pytest.approx(1000 + math.log(2), rel=1e-15)
    assert F.logsumexp(leaf([-1000.0, -1000.0])).d == pytest.approx(-1000 + math.log(2), rel=1e-15)


def test_the_gradient_of_log_sum_exp_adds_up_to_one():
    assert sum(slope(F.logsumexp, [1000.0, 999.0, -5.0])) == pytest.approx(1.0, rel=1e-12)


def test_log_sum_exp_of_infinities():
    assert F.logsumexp(leaf([-np.inf, -np.inf])).d == -np.inf
    assert F.logsumexp(leaf([np.inf, 0.0])).d == np.inf
    assert slope(F.logsumexp, [-np.inf, 2.0]) == [0.0, 1.0]
