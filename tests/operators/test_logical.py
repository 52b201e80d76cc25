"""Comparisons, logic, choices, and replacing what is not a finite number."""

from __future__ import annotations

import operator as python

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nnl_core import functions as F
from nnl_core.errors import ShapeError
from nnl_core.graph.autodiff import grad
from nnl_core.graph.variable import Variable

COMPARISONS = {
    "equal": python.eq,
    "not_equal": python.ne,
    "greater": python.gt,
    "greater_equal": python.ge,
    "less": python.lt,
    "less_equal": python.le,
}
NAN = float("nan")


def leaf(values, dtype=np.float64):
    return Variable.from_numpy_array(np.asarray(values, dtype), need_grad=True)


def slopes(y, *inputs):
    """Gradients of the sum of ``y``."""
    return [one.d.tolist() for one in grad(y, inputs)]


# Comparisons -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", COMPARISONS)
@settings(deadline=None, max_examples=30)
@given(st.lists(st.tuples(st.integers(-2, 2), st.integers(-2, 2)), min_size=1))
def test_a_comparison_is_what_python_says_of_each_pair(name, pairs):
    compare = COMPARISONS[name]
    left, right = np.array(pairs, np.float64).T
    assert getattr(F, name)(left, right).d.tolist() == [compare(a, b) for a, b in pairs]


@pytest.mark.parametrize("name", COMPARISONS)
def test_a_number_may_stand_on_either_side(name):
    compare, x = COMPARISONS[name], leaf([-1.0, 0.5, 2.0])
    call = getattr(F, name)
    assert call(x, 0.5).d.tolist() == [compare(v, 0.5) for v in x.d]
    assert call(0.5, x).d.tolist() == [compare(0.5, v) for v in x.d]
    assert getattr(F, f"{name}_scalar")(x, 0.5).d.tolist() == call(x, 0.5).d.tolist()


@pytest.mark.parametrize("name", COMPARISONS)
def test_the_operators_of_a_variable_compare_elementwise(name):
    x, y = leaf([1.0, 2.0, 3.0]), leaf([3.0, 2.0, 1.0])
    assert COMPARISONS[name](x, y).d.tolist() == getattr(F, name)(x, y).d.tolist()
    assert COMPARISONS[name](x, 2).d.tolist() == getattr(F, name)(x, 2).d.tolist()


def test_a_number_is_compared_in_the_array_s_own_width():
    assert F.equal(leaf([0.1], np.float32), 0.1).d.tolist() == [True]


def test_large_integers_are_compared_exactly():
    x = Variable.from_numpy_array(np.array([2**53, 2**53 + 1]))
    assert F.equal_scalar(x, 2**53 + 1).d.tolist() == [False, True]


def test_an_integer_array_is_compared_with_a_fraction_as_numbers():
    assert F.greater(Variable.from_numpy_array(np.array([0, 1])), 0.5).d.tolist() == [False, True]


def test_nothing_equals_nan():
    x = leaf([NAN, 1.0])
    assert F.equal(x, x).d.tolist() == [False, True]
    assert F.not_equal(x, x).d.tolist() == [True, False]


def test_shapes_that_do_not_broadcast_are_named():
    with pytest.raises(ShapeError, match=r"greater.*\(2,\).*\(3,\)"):
        F.greater(leaf([1.0, 2.0]), leaf([1.0, 2.0, 3.0]))


# Truth in arithmetic -----------------------------------------------------------------------------


def test_truth_is_bool():
    assert F.less(leaf([1.0]), 2).dtype == np.bool_


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_truth_times_an_array_has_the_array_s_dtype(dtype):
    x = leaf([2.0, -3.0], dtype)
    masked = F.greater(x, 0) * x
    assert masked.dtype == dtype
    assert masked.d.tolist() == [2.0, 0.0]


def test_truths_add_up_as_numbers():
    x = leaf([-1.0, 1.0, 3.0])
    both = F.greater(x, 0) + F.greater(x, 2)
    assert both.d.tolist() == [0, 1, 2]
    assert (F.greater(x, 2) - F.greater(x, 0)).d.tolist() == [0, -1, 0]
    assert (1 - F.greater(x, 0)).d.tolist() == [1, 0, 0]
    assert F.sum(F.greater(x, 0)).d == 2
    assert F.mean(F.greater(x, 0)).d == pytest.approx(2 / 3)


def test_a_gradient_passes_a_mask_and_stops_at_its_condition():
    x = leaf([-1.0, 2.0])
    assert slopes(F.greater(x, 0) * x, x) == [[0.0, 1.0]]


# Logic -------------------------------------------------------------------------------------------


def test_all_but_zero_is_true():
    x, y = leaf([0.0, 0.5, -1.0, NAN]), leaf([0.0, 0.0, 2.0, 0.0])
    assert F.logical_and(x, y).d.tolist() == [False, False, True, False]
    assert F.logical_or(x, y).d.tolist() == [False, True, True, True]
    assert F.logical_xor(x, y).d.tolist() == [False, True, False, True]
    assert F.logical_not(x).d.tolist() == [True, False, False, False]


def test_logic_with_a_truth_value():
    x = leaf([0.0, 3.0])
    assert F.logical_and_scalar(x, True).d.tolist() == [False, True]
    assert F.logical_or_scalar(x, True).d.tolist() == [True, True]
    assert F.logical_xor_scalar(x, True).d.tolist() == [True, False]


# Greater and smaller -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["maximum2", "minimum2"])
def test_nan_wins_on_either_side(name):
    y = getattr(F, name)(leaf([NAN, 1.0, NAN]), leaf([1.0, NAN, NAN]))
    assert np.isnan(y.d).all()


@pytest.mark.parametrize("name", ["maximum_scalar", "minimum_scalar"])
def test_nan_wins_against_a_number(name):
    assert np.isnan(getattr(F, name)(leaf([NAN]), 0.5).d).all()


@pytest.mark.parametrize("name", ["maximum2", "minimum2"])
def test_at_a_tie_the_second_gets_the_whole_gradient(name):
    x, y = leaf([1.0, 2.0]), leaf([1.0, 2.0])
    assert slopes(getattr(F, name)(x, y), x, y) == [[0.0, 0.0], [1.0, 1.0]]


def test_the_gradient_goes_to_what_was_chosen():
    x, y = leaf([1.0, 5.0]), leaf([3.0, 2.0])
    assert slopes(F.maximum2(x, y), x, y) == [[0.0, 1.0], [1.0, 0.0]]
    assert slopes(F.minimum2(x, y), x, y) == [[1.0, 0.0], [0.0, 1.0]]


def test_the_gradient_of_a_broadcast_operand_is_summed():
    x, y = leaf([[1.0, 5.0], [0.0, 7.0]]), leaf(4.0)
    assert slopes(F.maximum2(x, y), y) == [2.0]


def test_a_bound_does_not_widen_the_dtype():
    assert F.maximum_scalar(leaf([1.0], np.float16), 0.3).dtype == np.float16
    assert F.maximum2(Variable.from_numpy_array(np.array([1, 4])), 2).d.tolist() == [2, 4]
    assert F.minimum_scalar(Variable.from_numpy_array(np.array([1])), 0.5).dtype == np.float32


# Where -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.bool_, np.float32, np.int64])
def test_where_takes_conditions_of_any_dtype(dtype):
    condition = np.array([1, 0, 1]).astype(dtype)
    assert F.where(condition, leaf([1.0] * 3), leaf([2.0] * 3)).d.tolist() == [1.0, 2.0, 1.0]


def test_where_sends_the_gradient_to_what_it_selected():
    x, y = leaf([1.0, 2.0]), leaf([3.0, 4.0])
    assert slopes(F.where([True, False], x, y), x, y) == [[1.0, 0.0], [0.0, 1.0]]


def test_a_condition_of_fewer_axes_selects_whole_sub_arrays():
    x, y = leaf(np.zeros((2, 2))), leaf(np.ones((2, 2)))
    assert F.where([True, False], x, y).d.tolist() == [[0.0, 0.0], [1.0, 1.0]]


def test_a_number_beside_an_array_takes_its_dtype():
    assert F.where([True, False], leaf([1.0, 2.0], np.float16), 0.1).dtype == np.float16
    assert F.where([True], 1, 0.5).dtype == np.float32


@pytest.mark.parametrize(
    ("function", "point"),
    [
        (F.log, 0.0),
        (F.sqrt, 0.0),
        (F.rsqrt, 0.0),
        (lambda x: 1 / x, 0.0),
        (lambda x: x / x, 0.0),
        (lambda x: x**-1, 0.0),
        (lambda x: x**0.5, 0.0),
        (lambda x: F.pow(x, Variable.constant(np.array(-2.0))), 0.0),
        (F.exp, 1000.0),
        (F.asin, 1.0),
        (F.atanh, 1.0),
    ],
)
def test_a_branch_that_is_not_selected_never_poisons_the_gradient(function, point):
    x = leaf([point, 0.5])
    safe = F.where(F.not_equal(x, point), function(x), 0.0)
    gradient = grad(safe, x)[0].d
    assert gradient[0] == 0.0
    assert np.isfinite(gradient[1])


def test_an_infinite_gradient_stays_out_of_the_branch_that_is_not_selected():
    x, y = leaf([1.0, 1.0]), leaf([1.0, 1.0])
    gradients = grad(F.where([True, False], x, y), (x, y), [np.array([np.inf, NAN])])
    assert gradients[0].d[1] == 0.0
    assert gradients[1].d[0] == 0.0


# Not a finite number -----------------------------------------------------------------------------


def test_isnan_and_isinf_tell_the_three_kinds_apart():
    x = leaf([NAN, np.inf, -np.inf, 1.0])
    assert F.isnan(x).d.tolist() == [True, False, False, False]
    assert F.isinf(x).d.tolist() == [False, True, True, False]


def test_replaced_elements_have_no_gradient():
    x = leaf([NAN, np.inf, 2.0])
    assert F.reset_inf(F.reset_nan(x, -1), 7).d.tolist() == [-1.0, 7.0, 2.0]
    assert slopes(F.reset_inf(F.reset_nan(x, -1), 7), x) == [[0.0, 0.0, 1.0]]
