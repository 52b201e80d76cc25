"""Quantizers: levels, roundings, and gradients that go through."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nnl_core import functions as F
from nnl_core.errors import OperatorError, ShapeError
from nnl_core.graph.autodiff import grad
from nnl_core.graph.modes import auto_forward
from nnl_core.graph.variable import Variable
from nnl_core.operators.surrogates import half_away

NAN = float("nan")


def leaf(values, dtype=np.float64):
    return Variable.from_numpy_array(np.asarray(values, dtype), need_grad=True)


def slopes(y, *inputs):
    """Gradients of the sum of ``y``."""
    return [one.d.tolist() for one in grad(y, inputs)]


def level(value, dtype=np.float64):
    return Variable.from_numpy_array(np.asarray([value], dtype))


# Rounding ----------------------------------------------------------------------------------------


def test_halves_are_rounded_away_from_zero():
    x = np.array([0.5, 1.5, 2.5, -0.5, -1.5, -2.5])
    assert half_away(x).tolist() == [1.0, 2.0, 3.0, -1.0, -2.0, -3.0]


def test_the_number_just_below_a_half_is_rounded_down():
    below = np.nextafter(np.float32(0.5), np.float32(0))
    assert half_away(np.array([below, -below])).tolist() == [0.0, -0.0]


@given(st.floats(-1e15, 1e15))
def test_rounding_is_to_one_of_the_nearest(x):
    assert abs(half_away(np.array(x)) - x) <= 0.5
    assert abs(half_away(np.array(x))) >= abs(round(x))  # `round` takes the even one


# Two levels --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("function", "low"), [(F.binary_sigmoid, 0.0), (F.binary_tanh, -1.0)])
def test_binarization_gives_the_upper_level_for_positive_numbers_only(function, low):
    y = function(np.array([-2.0, -0.0, 0.0, 0.1, np.inf, NAN])).d
    np.testing.assert_array_equal(y, [low, low, low, 1.0, 1.0, NAN])


@pytest.mark.parametrize(("function", "slope"), [(F.binary_sigmoid, 0.5), (F.binary_tanh, 1.0)])
def test_binarization_passes_the_gradient_between_minus_one_and_one(function, slope):
    x = leaf([-2.0, -1.0, -0.9, 0.0, 0.9, 1.0, 2.0])
    assert slopes(function(x), x) == [[0.0, 0.0, slope, slope, slope, 0.0, 0.0]]


# Fixed point -------------------------------------------------------------------------------------


def test_signed_fixed_point_numbers_are_symmetric():
    y = F.fixed_point_quantize(np.array([-9.0, -0.25, 0.0, 0.6, 9.0]), n=3, delta=0.5).d
    assert y.tolist() == [-1.5, -0.5, 0.0, 0.5, 1.5]


def test_unsigned_fixed_point_numbers_begin_at_zero():
    x = np.array([-9.0, 0.3, 9.0])
    assert F.fixed_point_quantize(x, sign=False, n=3, delta=0.5).d.tolist() == [0.0, 0.5, 3.5]


@given(st.floats(-100, 100), st.integers(2, 12), st.sampled_from([0.125, 0.5, 1.0]), st.booleans())
def test_fixed_point_gives_the_nearest_multiple_within_range(x, n, delta, sign):
    count = 2 ** (n - sign) - 1
    levels = np.arange(-count if sign else 0, count + 1) * delta
    y = F.fixed_point_quantize(np.array(x), sign, n, delta).d
    assert y in levels
    assert abs(y - x) == np.abs(levels - x).min()


def test_the_fine_gradient_of_fixed_point_stops_outside_the_range():
    x = leaf([-1.6, -1.5, 0.2, 1.5, 1.6])
    assert slopes(F.fixed_point_quantize(x, n=3, delta=0.5), x) == [[0.0, 1.0, 1.0, 1.0, 0.0]]
    coarse = F.fixed_point_quantize(x, n=3, delta=0.5, ste_fine_grained=False)
    assert slopes(coarse, x) == [[1.0] * 5]


def test_impossible_fixed_point_numbers_are_refused():
    with pytest.raises(OperatorError, match=r"n = 1 bits leave 0"):
        F.fixed_point_quantize(np.zeros(2), n=1)
    with pytest.raises(OperatorError, match=r"delta -1 must be positive"):
        F.fixed_point_quantize(np.zeros(2), delta=-1)


# Powers of two -----------------------------------------------------------------------------------


def test_the_border_between_powers_of_two_is_their_geometric_mean():
    below, above = np.float32(math.sqrt(2)), np.nextafter(np.float32(math.sqrt(2)), np.float32(2))
    assert float(below) < math.sqrt(2) < float(above)
    assert F.pow2_quantize(np.array([below, above]), m=4).d.tolist() == [1.0, 2.0]
    assert F.pow2_quantize(np.array([4 * below, 4 * above]), m=4).d.tolist() == [4.0, 8.0]


def test_small_numbers_become_zero_or_the_least_power():
    x = np.array([0.0, -0.0, 0.01, -0.01])
    signed = {"n": 4, "m": 1}
    assert F.pow2_quantize(x, **signed).d.tolist() == [0.0, 0.0, 0.0, 0.0]
    least = 2.0 ** (1 - 7)
    assert F.pow2_quantize(x, with_zero=False, **signed).d.tolist() == [
        least, least, least, -least,
    ]  # fmt: skip


def test_unsigned_powers_of_two_raise_negative_numbers_to_the_least_level():
    x = np.array([-3.0, 3.0])
    assert F.pow2_quantize(x, sign=False, n=3, m=0).d.tolist() == [0.0, 1.0]
    assert F.pow2_quantize(x, sign=False, with_zero=False, n=3, m=0).d.tolist() == [2.0**-7, 1.0]


def test_large_numbers_and_nan_among_powers_of_two():
    y = F.pow2_quantize(np.array([np.inf, -np.inf, 1e30, NAN]), m=3).d
    np.testing.assert_array_equal(y, [8.0, -8.0, 8.0, NAN])


def test_a_least_power_below_the_dtype_is_zero():
    x = np.array([0.0, 1e-30], np.float32)
    y = F.pow2_quantize(x, with_zero=False, sign=False, n=12).d
    assert y.tolist() == [0.0, 2.0**-100]


@given(st.floats(2.0**-20, 2.0**20), st.sampled_from([-1.0, 1.0]))
def test_powers_of_two_are_within_half_an_octave(size, sign):
    y = float(F.pow2_quantize(np.array(sign * size), n=8, m=20).d)
    assert math.frexp(abs(y))[0] == 0.5
    assert y * sign > 0
    assert abs(math.log2(abs(y) / size)) <= 0.5 + 1e-9


def test_the_fine_gradient_of_powers_of_two_stops_where_they_saturate():
    x = leaf([-3.0, -2.0, 0.0, 2.8, 2.9])
    assert slopes(F.pow2_quantize(x, m=1), x) == [[0.0, 1.0, 1.0, 1.0, 0.0]]
    assert slopes(F.pow2_quantize(x, m=1, sign=False), x) == [[0.0, 0.0, 1.0, 1.0, 0.0]]
    assert slopes(F.pow2_quantize(x, m=1, ste_fine_grained=False), x) == [[1.0] * 5]


def test_powers_of_two_need_a_bit_for_the_exponent():
    with pytest.raises(OperatorError, match=r"n = 2 bits leave 0 for the exponent"):
        F.pow2_quantize(np.zeros(2), n=2)


# Ranges ------------------------------------------------------------------------------------------

VALUES = [-7.0, -1.0, -0.4, 0.5, 2.0, 9.0]


def test_values_are_rounded_to_levels_of_the_range():
    y = F.min_max_quantize(np.array(VALUES), level(-6), level(6), level(0), level(12))
    assert y.d.tolist() == [-6.0, -1.0, 0.0, 1.0, 2.0, 6.0]


def test_the_range_is_moved_so_that_zero_is_a_level():
    low, high = level(-2.5), level(3.5)
    y = F.min_max_quantize(np.array([-9.0, 0.0, 9.0]), low, high, level(0), level(6))
    assert y.d.tolist() == [-3.0, 0.0, 3.0]  # the level of zero is 2.5, rounded to 3
    assert (low.d.tolist(), high.d.tolist()) == ([-2.5], [3.5])


def test_a_range_above_zero_begins_at_zero():
    y = F.min_max_quantize(np.array([0.4, 1.6, 9.0]), level(1), level(4), level(0), level(3))
    assert y.d.tolist() == [0.0, 2.0, 3.0]


def test_a_range_that_is_too_narrow_is_widened_and_stored():
    low, high = level(0.0), level(0.0)
    y = F.min_max_quantize(np.array([0.3, 9.0]), low, high, level(0), level(4), eps=2.0)
    assert y.d.tolist() == [0.5, 2.0]
    assert high.d.tolist() == [2.0]


@pytest.mark.parametrize("dynamic", [False, True])
def test_the_range_of_the_input_is_used_and_stored(dynamic):
    low, high = level(NAN), level(NAN)
    with auto_forward(dynamic):
        y = F.min_max_quantize(
            np.array([-4.0, 1.2, 8.0]), low, high, level(0), level(12), x_min_max=True
        )
        y.forward()
    assert (low.d.tolist(), high.d.tolist()) == ([-4.0], [8.0])
    assert y.d.tolist() == [-4.0, 1.0, 8.0]


def test_a_moving_average_of_the_range_is_used_and_stored():
    low, high = level(-2.0), level(2.0)
    y = F.min_max_quantize(
        np.array([-6.0, 10.0]), low, high, level(0), level(10), decay=0.5, x_min_max=True, ema=True
    )
    y.forward()
    assert (low.d.tolist(), high.d.tolist()) == ([-4.0], [6.0])
    assert y.d.tolist() == [-4.0, 6.0]
    y.forward()
    assert (low.d.tolist(), high.d.tolist()) == ([-5.0], [8.0])


def test_each_channel_has_a_range_of_its_own():
    x = np.array([[-1.0, -10.0], [3.0, 30.0]])
    low, high = (Variable((1, 2), dtype=np.float64) for _ in range(2))
    levels = (np.zeros((1, 2)), np.full((1, 2), 4.0))
    y = F.min_max_quantize(x, low, high, *levels, x_min_max=True)
    assert y.d.tolist() == x.tolist()
    assert (low.d.tolist(), high.d.tolist()) == ([[-1.0, -10.0]], [[3.0, 30.0]])


def test_what_is_beyond_a_trained_range_moves_its_ends():
    x, low, high = leaf(VALUES), leaf([-6.0]), leaf([6.0])
    y = F.min_max_quantize(x, low, high, level(0), level(12))
    assert slopes(y, x, low, high) == [[0.0, 1.0, 1.0, 1.0, 1.0, 0.0], [1.0], [1.0]]
    coarse = F.min_max_quantize(x, low, high, level(0), level(12), ste_fine_grained=False)
    assert slopes(coarse, x, low, high) == [[1.0] * 6, [1.0], [1.0]]


@pytest.mark.parametrize(("x_min_max", "ema"), [(True, False), (False, True), (True, True)])
def test_a_range_that_is_not_trained_has_no_gradient(x_min_max, ema):
    x, low, high = leaf(VALUES), leaf([-6.0]), leaf([6.0])
    y = F.min_max_quantize(x, low, high, level(0), level(12), x_min_max=x_min_max, ema=ema)
    for variable in (x, low, high):
        variable.grad.zero()
    y.forward()
    y.backward(np.ones(6))
    assert (low.g.tolist(), high.g.tolist()) == ([0.0], [0.0])
    assert x.g.sum() > 0


def test_ranges_that_cannot_be_updated_are_named():
    computed = level(1.0) + 1
    with pytest.raises(OperatorError, match=r"qr_max is computed by"):
        F.min_max_quantize(
            np.zeros(2), level(0), computed, level(0), level(4), x_min_max=True
        ).forward()
    y = F.min_max_quantize(np.array([0.9]), level(0), computed, level(0), level(2))
    assert y.d.tolist() == [1.0]


def test_ranges_of_other_shapes_are_named():
    with pytest.raises(ShapeError, match=r"one shape"):
        F.min_max_quantize(np.zeros(2), level(0), level(1), np.zeros((1, 1)), level(4))
    with pytest.raises(ShapeError, match=r"shape \(3,\) does not broadcast .* \(2,\)"):
        F.min_max_quantize(np.zeros(2), *(np.zeros(3) for _ in range(4)))


@pytest.mark.parametrize(
    "quantizer",
    [
        lambda x: F.fixed_point_quantize(x, quantize=False),
        lambda x: F.pow2_quantize(x, quantize=False),
        lambda x: F.min_max_quantize(x, 0.0, 1.0, 0.0, 4.0, quantize=False),
    ],
)
def test_quantizers_may_be_switched_off(quantizer):
    x = leaf([0.123])
    assert quantizer(x) is x


# Pruning -----------------------------------------------------------------------------------------


def test_pruning_keeps_what_equals_the_threshold():
    x = np.array([3.0, -1.0, 2.0, -2.0, 0.5])
    assert F.prune(x, rate=0.5).d.tolist() == [3.0, 0.0, 2.0, -2.0, 0.0]


def test_pruning_nothing_and_everything():
    x = np.array([3.0, -1.0, 0.0])
    assert F.prune(x, rate=0.0).d.tolist() == [3.0, -1.0, 0.0]
    assert F.prune(x, rate=1.0).d.tolist() == [0.0, 0.0, 0.0]
    assert F.prune(np.zeros((0, 3))).d.shape == (0, 3)


@given(st.integers(1, 40), st.floats(0, 0.99))
def test_pruning_takes_the_share_it_says(size, rate):
    x = np.random.default_rng(size).permutation(size) + 1.0
    kept = np.count_nonzero(F.prune(x, rate=rate).d)
    assert kept == size - int(np.float32(size - 1) * np.float32(rate))


def test_what_is_pruned_keeps_its_gradient():
    x = leaf([3.0, 0.1])
    assert slopes(F.prune(x, rate=1.0), x) == [[1.0, 1.0]]


def test_a_rate_beyond_one_is_refused():
    with pytest.raises(OperatorError, match=r"rate 1.5 must be from 0 to 1"):
        F.prune(np.zeros(2), rate=1.5)


# Integers as ONNX has them -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("round_mode", "expected"),
    [
        ("HALF_AWAY_FROM_ZERO", [1.0, 2.0, 3.0, -1.0, -2.0, -3.0]),
        ("HALF_TO_EVEN", [0.0, 2.0, 2.0, 0.0, -2.0, -2.0]),
    ],
)
def test_linear_quantization_rounds_as_it_is_told(round_mode, expected):
    x = np.array([0.5, 1.5, 2.5, -0.5, -1.5, -2.5])
    assert F.quantize_linear(x, 1.0, 0.0, round_mode).d.tolist() == expected


@pytest.mark.parametrize(
    ("dtype", "narrow", "low", "high"),
    [
        (np.int8, False, -128, 127),
        (np.int8, True, -127, 127),
        (np.uint8, False, 0, 255),
        ("uint8", True, 1, 255),
    ],
)
def test_linear_quantization_saturates(dtype, narrow, low, high):
    y = F.quantize_linear(np.array([-1e6, 1e6, NAN]), 0.5, 3.0, narrow_range=narrow, dtype=dtype)
    np.testing.assert_array_equal(y.d, [low, high, NAN])


def test_zero_points_are_rounded_and_saturated_without_being_changed():
    zero = np.array([2.5, 300.0])
    y = F.quantize_linear(np.zeros(2), 1.0, zero, "HALF_TO_EVEN")
    assert y.d.tolist() == [2.0, 127.0]
    assert zero.tolist() == [2.5, 300.0]


def test_dequantization_undoes_linear_quantization_up_to_half_a_step():
    rng = np.random.default_rng(0)
    x, scale = rng.uniform(-3, 3, size=(5, 4)), rng.uniform(0.05, 0.2, size=(1, 4))
    zero = rng.integers(-9, 9, size=(1, 4))
    back = F.dequantize_linear(F.quantize_linear(x, scale, zero), scale, zero).d
    assert (np.abs(back - x) <= scale / 2 + 1e-12).all()


def test_integers_are_dequantized_to_single_precision():
    y = F.dequantize_linear(np.array([0, 200], np.uint8), 0.5, np.array(100, np.uint8))
    assert (y.dtype, y.d.tolist()) == (np.float32, [-50.0, 50.0])


def test_linear_quantization_has_the_gradient_of_what_it_rounds():
    x, scale, zero = leaf([3.0, 1e6]), leaf([2.0]), leaf([1.0])
    expected = [[0.5, 0.5], [-(3.0 + 1e6) / 4], [2.0]]
    assert slopes(F.quantize_linear(x, scale, zero), x, scale, zero) == expected


def test_dequantization_has_its_derivatives():
    x, scale, zero = leaf([3.0, 5.0]), leaf([2.0]), leaf([1.0])
    y = F.dequantize_linear(x, scale, zero)
    assert slopes(y, x, scale, zero) == [[2.0, 2.0], [6.0], [-4.0]]


@pytest.mark.parametrize("function", [F.quantize_linear, F.dequantize_linear])
def test_scales_that_do_not_fit_are_named(function):
    with pytest.raises(ShapeError, match=r"scale of shape \(3,\) does not broadcast to \(2, 1\)"):
        function(np.zeros((2, 1)), np.ones(3), 0.0)


def test_unknown_roundings_and_dtypes_are_named():
    with pytest.raises(OperatorError, match=r"round_mode 'UP' must be one of HALF_AWAY"):
        F.quantize_linear(np.zeros(2), 1.0, 0.0, "UP")
    with pytest.raises(OperatorError, match=r"dtype int16 must be int8 or uint8"):
        F.quantize_linear(np.zeros(2), 1.0, 0.0, dtype=np.int16)


# All ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize(
    "quantizer",
    [
        F.binary_sigmoid,
        F.binary_tanh,
        F.fixed_point_quantize,
        F.pow2_quantize,
        F.prune,
        lambda x: F.quantize_linear(x, 0.5, 1.0),
        lambda x: F.dequantize_linear(x, 0.5, 1.0),
        lambda x: F.min_max_quantize(x, level(-1), level(1), level(0), level(9)),
    ],
)
def test_quantizers_keep_the_dtype(quantizer, dtype):
    assert quantizer(np.array([0.25, -3.0], dtype)).d.dtype == dtype
