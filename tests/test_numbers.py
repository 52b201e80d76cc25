"""The rules of numbers: each from first principles, in static, dynamic and compiled execution."""

from __future__ import annotations

import numpy as np
import pytest

import nnl_core as nnl
from nnl_core import F, Variable
from nnl_core.errors import ShapeError


def leaf(values, dtype=np.float64, need_grad=True):
    return Variable.from_numpy_array(np.array(values, dtype), need_grad=need_grad)


def given(values, dtype=None):
    return Variable.from_numpy_array(np.array(values, dtype))


def run(build):
    """Return the value of what ``build`` returns, which static and dynamic execution agree on."""
    static = build().d.copy()
    with nnl.auto_forward():
        dynamic = build().d.copy()
    assert static.dtype == dynamic.dtype
    np.testing.assert_array_equal(static, dynamic)
    return static


# Python scalars -----------------------------------------------------------------------------------

INTEGERS = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]
FLOATS = ["float16", "float32", "float64"]
ARITHMETIC = ["add", "sub", "mul", "pow", "maximum2", "minimum2"]
COMPARISONS = ["equal", "not_equal", "less", "less_equal", "greater", "greater_equal"]
NUMPY = {"maximum2": np.maximum, "minimum2": np.minimum, "sub": np.subtract, "mul": np.multiply}
NUMPY["pow"] = np.power


def numpy_function(name):
    return NUMPY.get(name) or getattr(np, name)


@pytest.mark.parametrize("reverse", [False, True], ids=["array-scalar", "scalar-array"])
@pytest.mark.parametrize("name", ARITHMETIC)
@pytest.mark.parametrize("dtype", INTEGERS + FLOATS)
def test_an_integer_scalar_keeps_the_dtype_of_the_array(dtype, name, reverse):
    x, function = given([3, 2, 5], dtype), getattr(F, name)
    result = run(lambda: function(2, x) if reverse else function(x, 2))
    expected = numpy_function(name)(*((2, x.d) if reverse else (x.d, 2)))  # NumPy's rule is ours
    assert result.dtype == dtype == expected.dtype
    np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("name", [*ARITHMETIC, "div"])
@pytest.mark.parametrize("dtype", FLOATS)
def test_a_float_scalar_keeps_the_width_of_a_floating_array(dtype, name):
    x, function = given([3, 2, 5], dtype), getattr(F, name)
    for scalar in (2.0, np.float64(2.0)):
        assert run(lambda scalar=scalar: function(x, scalar)).dtype == dtype
        assert run(lambda scalar=scalar: function(scalar, x)).dtype == dtype


@pytest.mark.parametrize("name", [*ARITHMETIC, "div"])
@pytest.mark.parametrize("dtype", INTEGERS)
def test_integers_and_a_float_scalar_give_default_floats(dtype, name):
    x, function = given([3, 2, 5], dtype), getattr(F, name)
    assert run(lambda: function(x, 2.5)).dtype == np.float32
    np.testing.assert_allclose(
        run(lambda: function(2.5, x)),
        (np.true_divide if name == "div" else numpy_function(name))(2.5, [3.0, 2.0, 5.0]),
        rtol=1e-6,
    )


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integers_divide_to_floats(dtype):
    np.testing.assert_array_equal(run(lambda: given([3, 1], dtype) / 2), np.float32([1.5, 0.5]))
    assert run(lambda: given([3], dtype) / given([2], dtype)).dtype == np.float32


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "uint32", "uint64"])
def test_unsigned_integers_subtract_and_negate_without_a_negative_number(dtype):
    x = given([3, 2], dtype)
    np.testing.assert_array_equal(run(lambda: x - 1), np.array([2, 1], dtype))
    np.testing.assert_array_equal(run(lambda: -x), -np.array([3, 2], dtype))


@pytest.mark.parametrize("build", [lambda x: x + 300, lambda x: x - 300, lambda x: x * -1])
def test_a_scalar_that_the_integers_cannot_hold_is_an_error_that_names_it(build):
    with pytest.raises(ShapeError, match=r"uint8 cannot hold (-1|-?300)"):
        build(given([1], "uint8"))


@pytest.mark.parametrize("name", COMPARISONS)
@pytest.mark.parametrize("dtype", ["bool", *INTEGERS, *FLOATS])
def test_comparisons_with_any_scalar_give_truths_and_are_exact(dtype, name):
    x, function = given([0, 1, 1], dtype), getattr(F, name)
    for scalar in (1, 0.5, True, -1, 300):
        np.testing.assert_array_equal(
            run(lambda scalar=scalar: function(x, scalar)),
            numpy_function(name)(np.array([0.0, 1.0, 1.0]), float(scalar)),
        )


@pytest.mark.parametrize("name", ["add", "sub", "mul", "pow"])
def test_truths_and_integers_are_counted_in_64_bits(name):
    x, function = given([True, False]), getattr(F, name)
    result = run(lambda: function(x, 2))
    assert result.dtype == np.int64
    np.testing.assert_array_equal(result, numpy_function(name)(np.array([1, 0]), 2))


def test_differences_of_truths_may_be_negative():
    x = given([True, False])
    np.testing.assert_array_equal(run(lambda: x - given([False, True])), [1, -1])
    np.testing.assert_array_equal(run(lambda: x - True), [0, -1])
    np.testing.assert_array_equal(run(lambda: True - x), [0, 1])


@pytest.mark.parametrize("dtype", FLOATS)
def test_clip_and_power_do_not_widen(dtype):
    x = given([-2, 0.5, 3], dtype)
    np.testing.assert_array_equal(run(lambda: F.clip(x, -1, 1)), np.array([-1, 0.5, 1], dtype))
    assert run(lambda: x**2).dtype == run(lambda: 2.0**x).dtype == dtype
    assert run(lambda: F.where(x > 0, x, 0.5)).dtype == dtype
