"""Mathematical functions, roundings and constant arrays."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nnl_core import functions as F
from nnl_core.errors import ShapeError
from nnl_core.graph.autodiff import grad
from nnl_core.graph.modes import auto_forward
from nnl_core.graph.variable import Variable

FLOATS = st.floats(-1e3, 1e3)


def leaf(values, dtype=np.float64):
    return Variable.from_numpy_array(np.asarray(values, dtype), need_grad=True)


def slope(function, values):
    """Gradient of the sum of ``function`` at the values."""
    x = leaf(values)
    return grad(function(x), x)[0].d


# Values ------------------------------------------------------------------------------------------


@settings(deadline=None)
@given(st.floats(allow_nan=False))
def test_erf_agrees_with_the_c_library_to_the_last_places(x):
    assert float(F.erf(leaf(x)).d) == pytest.approx(math.erf(x), rel=1e-15, abs=1e-15)


def test_erf_is_exactly_one_far_out_and_odd_at_zero():
    y = F.erf(leaf([6.5, np.inf, -np.inf, -0.0])).d
    assert y.tolist() == [1.0, 1.0, -1.0, 0.0]
    assert np.signbit(y[3])


def test_expm1_and_log1p_are_exact_near_zero():
    assert F.expm1(leaf(1e-20)).d == 1e-20
    assert F.log1p(leaf(1e-20)).d == 1e-20


@settings(deadline=None)
@given(FLOATS, FLOATS)
def test_atan2_is_the_angle_of_a_point(ordinate, abscissa):
    angle = float(F.atan2(leaf(ordinate), leaf(abscissa)).d)
    assert angle == pytest.approx(math.atan2(ordinate, abscissa), rel=1e-15)


@pytest.mark.parametrize("name", ["exp", "log", "sqrt", "sin", "erf", "atanh", "rsqrt", "tan"])
def test_integers_become_float32(name):
    y = getattr(F, name)(Variable.from_numpy_array(np.array([0, 1])))
    assert y.dtype == np.float32
    assert y.d.dtype == np.float32


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lambda x: F.r_div_scalar(x, 3), [1.5, -0.75]),
        (lambda x: F.pow_scalar(x, -2), [0.25, 0.0625]),
        (lambda x: x**-1, [0.5, -0.25]),
    ],
    ids=["r_div_scalar", "pow_scalar", "**"],
)
def test_reciprocals_of_integers_are_float32(function, expected, dynamic):
    with auto_forward(dynamic):
        y = function(leaf([2, -4], np.int64))
        assert y.dtype == np.float32
        assert y.d.tolist() == expected


def test_the_width_of_floating_elements_stays():
    for dtype in (np.float16, np.float32, np.float64):
        assert F.exp(leaf([1.0], dtype)).d.dtype == dtype


def test_absolute_values_of_integers_are_integers():
    assert F.abs(Variable.from_numpy_array(np.array([-3, 4]))).d.tolist() == [3, 4]


# Signs and roundings -----------------------------------------------------------------------------


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("name", ["round", "ceil", "floor", "sign"])
def test_steps_of_truths_are_zeros_and_ones(name, dynamic):
    arguments = {"alpha": 0} if name == "sign" else {}
    with auto_forward(dynamic):
        y = getattr(F, name)(leaf([True, False], bool), **arguments)
        assert y.d.tolist() == [1, 0]


def test_sign_of_an_integer_zero_keeps_the_fraction_of_alpha():
    assert F.sign(leaf([2, 0, -3], np.int64), 0.5).d.tolist() == [1, 0.5, -1]


def test_sign_of_zero_is_alpha():
    x = leaf([-2.0, 0.0, 3.0])
    assert F.sign(x).d.tolist() == [-1.0, 1.0, 1.0]
    assert F.sign(x, alpha=0.0).d.tolist() == [-1.0, 0.0, 1.0]


@pytest.mark.parametrize("name", ["sign", "round", "ceil", "floor", "abs", "exp", "erf", "square"])
def test_nan_stays_nan(name):
    assert np.isnan(getattr(F, name)(leaf(np.nan)).d)


@pytest.mark.parametrize("name", ["sign", "round", "ceil", "floor"])
def test_the_gradient_of_a_step_goes_straight_through(name):
    assert slope(getattr(F, name), [-1.2, 0.3, 2.7]).tolist() == [1.0, 1.0, 1.0]


def test_halves_round_to_the_even_integer():
    assert F.round(leaf([0.5, 1.5, 2.5, -0.5, -1.5])).d.tolist() == [0.0, 2.0, 2.0, 0.0, -2.0]


def test_ceil_and_floor_bracket_a_number():
    assert F.ceil(leaf([-1.5, 1.2])).d.tolist() == [-1.0, 2.0]
    assert F.floor(leaf([-1.5, 1.2])).d.tolist() == [-2.0, 1.0]


# Gradients ---------------------------------------------------------------------------------------


def test_the_slope_of_an_absolute_value_at_zero_is_zero():
    assert slope(F.abs, [-2.0, 0.0, 3.0]).tolist() == [-1.0, 0.0, 1.0]


def test_the_second_derivative_of_sine_is_minus_sine():
    x = leaf([0.3, 1.1])
    first = grad(F.sin(x), x)[0]
    assert grad(first, x)[0].d == pytest.approx(-np.sin(x.d), rel=1e-12)


def test_the_third_derivative_of_the_exponential_is_the_exponential():
    x = leaf([0.3, -1.1])
    y = F.exp(x)
    for _ in range(3):
        y = grad(y, x)[0]
    assert y.d == pytest.approx(np.exp(x.d), rel=1e-12)


def test_chain_rule_gives_zero_where_no_gradient_arrives():
    z = F.chain_rule(leaf([0.0, 0.0, 2.0]), leaf([np.inf, np.nan, 3.0]))
    assert z.d.tolist() == [0.0, 0.0, 6.0]


# Constant arrays ---------------------------------------------------------------------------------


def test_constant_fills_a_shape_in_float32():
    y = F.constant(-2.0, [2, 3])
    assert y.dtype == np.float32
    assert y.d.tolist() == [[-2.0] * 3] * 2
    assert F.constant(5).d.shape == ()


def test_arange_stops_before_its_end():
    assert F.arange(0, 2, 0.5).d.tolist() == [0.0, 0.5, 1.0, 1.5]
    assert F.arange(3, 0, -1).d.tolist() == [3.0, 2.0, 1.0]
    assert F.arange(3, 0).d.size == 0
    assert F.arange(0, 3).d.dtype == np.float32


def test_linspace_includes_both_ends():
    assert F.linspace(-1, 1, 5).d.tolist() == [-1.0, -0.5, 0.0, 0.5, 1.0]
    assert F.linspace(4, 9, 1).d.tolist() == [4.0]
    assert F.linspace(4, 9, 0).d.size == 0


def test_impossible_ranges_and_shapes_are_errors_that_say_what_was_given():
    with pytest.raises(ShapeError, match="step is 0"):
        F.arange(0, 3, 0)
    with pytest.raises(ShapeError, match="num is -1"):
        F.linspace(0, 1, -1)
    with pytest.raises(ShapeError, match=r"\(2, -1\)"):
        F.constant(0, (2, -1))


def test_shapes_that_do_not_broadcast_are_named():
    with pytest.raises(ShapeError, match=r"atan2.*\(2,\).*\(3,\)"):
        F.atan2(leaf([1.0, 2.0]), leaf([1.0, 2.0, 3.0]))
