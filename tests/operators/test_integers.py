"""Remainders, and shifts of bits."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nnl_core import functions as F
from nnl_core.errors import OperatorError, ShapeError
from nnl_core.graph.autodiff import grad
from nnl_core.graph.variable import Variable

# Remainders --------------------------------------------------------------------------------------

whole = st.integers(-(2**31), 2**31 - 1)


@given(whole, whole.filter(bool))
def test_remainders_of_integers_have_the_sign_of_the_divisor(x, y):
    assert F.mod2(np.array(x), np.array(y)).d == x % y


@given(whole, whole.filter(bool))
def test_remainders_of_integers_have_the_sign_of_the_dividend_if_asked(x, y):
    assert F.mod2(np.array(x), np.array(y), fmod=True).d == int(math.fmod(x, y))


@pytest.mark.parametrize("fmod", [False, True])
def test_remainders_of_floating_numbers_have_the_sign_of_the_dividend(fmod):
    x, y = np.array([-7.5, 7.5, -7.5]), np.array([2.0, -2.0, -2.0])
    assert F.mod2(x, y, fmod).d.tolist() == [-1.5, 1.5, -1.5]


def test_remainders_by_zero():
    assert np.isnan(F.mod2(np.array([3.0]), np.array([0.0])).d).all()
    assert F.mod2(np.array([3]), np.array([0])).d.tolist() == [0]


def test_numbers_do_not_widen_remainders():
    narrow = np.array([7, -7], np.int8)
    assert F.mod2(narrow, 3).dtype == np.int8
    assert F.mod2(3, narrow).d.tolist() == [3, -4]
    assert F.mod2(narrow.astype(np.float16), 2.5).dtype == np.float16
    assert F.mod2(narrow, 2.5).d.tolist() == [2.0, -2.0]


def test_truths_are_counted():
    y = F.mod2(np.array([True, False]), np.array([True, True]))
    assert (y.dtype, y.d.tolist()) == (np.int64, [0, 0])


def test_remainders_have_the_slopes_of_their_pieces():
    x = Variable.from_numpy_array(np.array([7.5, -7.5]), need_grad=True)
    y = Variable.from_numpy_array(np.array([2.0]), need_grad=True)
    dx, dy = grad(F.mod2(x, y), (x, y))
    assert (dx.d.tolist(), dy.d.tolist()) == ([1.0, 1.0], [0.0])  # -3 and 3
    (dy,) = grad(F.mod2(x, y)[:1], (y,))
    assert dy.d.tolist() == [-3.0]


# Bits --------------------------------------------------------------------------------------------


@given(
    st.sampled_from([np.uint8, np.uint16, np.uint32, np.uint64]),
    st.integers(0, 2**64 - 1),
    st.integers(-5, 70),
)
def test_bits_are_shifted_within_the_dtype(dtype, number, shift):
    bits = np.iinfo(dtype).bits
    number %= 2**bits
    x = np.array([number], dtype)
    left, right = ((number << shift) % 2**bits, number >> shift) if shift >= 0 else (0, 0)
    for amount in (shift, np.array([shift]), np.array([float(shift)])):
        assert F.bit_shift(x, amount).d.tolist() == [left]
        assert F.bit_shift(x, amount, "RIGHT").d.tolist() == [right]
        assert F.bit_shift(x, amount).dtype == dtype


def test_bits_of_signed_and_floating_numbers_are_not_shifted():
    for dtype in (np.int32, np.float32):
        with pytest.raises(ShapeError, match=rf"unsigned .* not those of {np.dtype(dtype)}"):
            F.bit_shift(np.zeros(2, dtype), 1)


def test_shifts_by_fractions_and_other_directions_are_named():
    x = np.array([1], np.uint8)
    with pytest.raises(OperatorError, match=r"shift 1.5 is not a whole number"):
        F.bit_shift(x, np.array([1.5])).forward()
    with pytest.raises(OperatorError, match=r"direction 'UP' must be 'LEFT' or 'RIGHT'"):
        F.bit_shift(x, 1, "UP")
