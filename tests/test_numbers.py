"""The rules of numbers: each from first principles, in static, dynamic and compiled execution."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import nnl_core as nnl
from nnl_core import F, Variable
from nnl_core.errors import OperatorError, ShapeError, StaleValueError
from nnl_core.graph.dtypes import as_dtype, bfloat16
from nnl_core.testing import operators


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


# Python scalars ----------------------------------------------------------------------------------

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


@pytest.mark.parametrize("name", [*ARITHMETIC, "div"])
def test_a_scalar_keeps_bfloat16(name):
    x, function = given([3, 2, 5], bfloat16()), getattr(F, name)
    for scalar in (2, 2.5, True, np.float64(2.5)):
        for build in (lambda s=scalar: function(x, s), lambda s=scalar: function(s, x)):
            assert run(build).dtype == bfloat16()


@pytest.mark.parametrize("dtype", [name for name in INTEGERS if not name.startswith("u")])
def test_integers_to_a_negative_power_are_fractions(dtype):
    x = given([2, -4], dtype)
    np.testing.assert_array_equal(run(lambda: x**-1), np.float32([0.5, -0.25]))


@pytest.mark.parametrize(
    "build", [lambda x: F.pow(given([2, 2], x.dtype), x), lambda x: 2**x], ids=["array", "number"]
)
def test_integers_to_negative_powers_in_an_array_say_what_to_cast(build):
    with pytest.raises(OperatorError, match="cast the base to a floating dtype"):
        build(given([1, -1], "int32")).forward()


def test_integers_divide_as_real_numbers_do():
    np.testing.assert_array_equal(
        run(lambda: given([-7, 7], "int32") / given([2, -2], "int32")), np.float32([-3.5, -3.5])
    )


# Two dtypes --------------------------------------------------------------------------------------

EXPONENT_AND_DIGITS = {"float16": (5, 11), "bfloat16": (8, 8), "float32": (8, 24)}
EXPONENT_AND_DIGITS["float64"] = (11, 53)


def narrowest(left, right):
    """The narrowest dtype of its kind that holds all numbers of both, from their definitions."""
    floating = [EXPONENT_AND_DIGITS[n] for n in (left, right) if n in EXPONENT_AND_DIGITS]
    if floating:
        exponent, digits = (max(parts) for parts in zip(*floating, strict=True))
        return next(n for n, (e, d) in EXPONENT_AND_DIGITS.items() if e >= exponent and d >= digits)
    bounds = [np.iinfo(name) for name in (left, right) if name != "bool"]
    if not bounds:
        return "bool"
    low, high = min(one.min for one in bounds), max(one.max for one in bounds)
    for name in INTEGERS:  # by width
        is_unsigned = np.iinfo(name).min == 0
        if is_unsigned == (low == 0) and np.iinfo(name).min <= low and high <= np.iinfo(name).max:
            return name
    return "float64"


EVERY = ["bool", *INTEGERS, *EXPONENT_AND_DIGITS]


@pytest.mark.parametrize("right", EVERY)
@pytest.mark.parametrize("left", EVERY)
def test_two_dtypes_give_the_narrowest_that_holds_both(left, right):
    x, y = given([1, 0], as_dtype(left)), given([1, 1], as_dtype(right))
    expected = as_dtype(narrowest(left, right))
    for function in (F.mul, F.maximum2, lambda a, b: F.where(x == 1, a, b)):
        assert run(lambda f=function: f(x, y)).dtype == expected
    np.testing.assert_array_equal(run(lambda: F.mul(x, y)).astype(float), [1, 0])


def test_the_page_on_numbers_has_the_same_tables():
    page = (Path(__file__).parents[1] / "docs" / "numbers.md").read_text("utf-8")
    rows = [[cell.strip(" *") for cell in line.split("|")[1:-1]] for line in page.splitlines()]
    columns, checked = [], 0
    for row in rows:
        if row and not row[0] and any(cell in EVERY for cell in row):
            columns = [cell.replace("bool or integer", "int8") for cell in row]
        elif row and row[0] in EVERY and len(row) == len(columns):
            for column, cell in zip(columns[1:], row[1:], strict=True):
                assert cell == narrowest(row[0], column), (row[0], column)
                checked += 1
    assert checked == 9 * 9 + 4 * 5


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


# Gradients of use --------------------------------------------------------------------------------


def differentiate(build, *arrays):
    """Return the value of ``build(*leaves)`` and the gradients of its sum.

    Static, dynamic and compiled execution must agree on them, bit for bit.
    """

    def leaves():
        return [Variable.from_numpy_array(np.asarray(a), need_grad=True) for a in arrays]

    found = []
    for dynamic in (False, True):
        variables = leaves()
        with nnl.auto_forward(dynamic):
            y = build(*variables)
            loss = F.sum(y)
            loss.forward() if not dynamic else None
            loss.backward()
        found.append((y.d, *(v.g for v in variables)))
    variables = leaves()
    y = build(*variables)
    solver = nnl.S.Sgd(0.0)
    solver.set_parameters({str(n): v for n, v in enumerate(variables)})
    nnl.compile_step(F.sum(y), solver, outputs=[y]).run()
    found.append((y.d, *(v.g for v in variables)))
    for other in found[1:]:
        for one, two in zip(found[0], other, strict=True):
            assert one.dtype == two.dtype
            np.testing.assert_array_equal(one, two)
    return found[0]


@pytest.mark.parametrize(
    ("function", "left", "right"),
    [
        (F.add, 12, 12),
        (F.sub, 12, -12),
        (F.mul, 12 * 2, 12 * 3),
        (F.div, 12 / 2, -12 * 3 / 4),
        (F.pow, 12 * 2 * 3, 12 * 9 * np.log(3)),
        (F.maximum2, 12, 0),
        (F.minimum2, 0, 12),
        (F.squared_error, 12 * 2, -12 * 2),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
@pytest.mark.parametrize(
    ("one", "other"),
    [((4, 1), (1, 3)), ((), (4, 3)), ((4, 3), (1,)), ((1, 4, 1), (3,)), ((1, 1), (4, 3))],
)
def test_gradients_of_broadcast_inputs_are_summed_back(function, left, right, one, other):
    """The result has twelve elements, of 3 and 2."""
    y, first, second = differentiate(function, np.full(one, 3.0), np.full(other, 2.0))
    assert y.size == 12 and first.shape == one and second.shape == other
    np.testing.assert_allclose(first, left / first.size)
    np.testing.assert_allclose(second, right / second.size)


def test_gradients_of_where_are_summed_back_to_each_branch():
    mask = np.array([[True, False, True], [True, True, False]])
    _, a, b = differentiate(lambda a, b: F.where(mask, a, b), np.ones((2, 1)), np.ones(()))
    np.testing.assert_array_equal(a, [[2], [2]])
    assert b == 2


@pytest.mark.parametrize(
    ("build", "expected"),
    [
        (lambda x: x + x, 2),
        (lambda x: x * x, 2 * 3),
        (lambda x: x * x * x, 3 * 9),
        (lambda x: F.concatenate(x, x, x, axis=0), 3),
        (lambda x: F.add_n(x, x, x, x), 4),
        (lambda x: F.stack(x, x) * x, 4 * 3),
        (lambda x: F.where(x > 0, x, x) + x, 2),
        (lambda x: F.maximum2(x, x), 1),
        (lambda x: x / x, 0),
        (lambda x: x - x, 0),
    ],
)
def test_repeated_use_accumulates(build, expected):
    _, gradient = differentiate(build, np.array([3.0, 3.0]))
    np.testing.assert_array_equal(gradient, [expected] * 2)


def test_a_variable_multiplied_with_itself_accumulates_both_factors():
    square = np.array([[1.0, 2.0], [3.0, 4.0]])
    _, gradient = differentiate(F.matmul, square, square)[0:2]
    np.testing.assert_array_equal(gradient, np.ones((2, 2)) @ square.T)
    _, gradient = differentiate(lambda x: F.matmul(x, x), square)
    np.testing.assert_array_equal(gradient, np.ones((2, 2)) @ square.T + square.T @ np.ones((2, 2)))


def test_gradients_accumulate_over_backward_passes_until_they_are_zeroed():
    x = leaf([3.0])
    y = x * x
    y.forward()
    for times in (1, 2, 3):
        y.backward()
        np.testing.assert_array_equal(x.g, [6 * times])
    x.grad.zero()
    y.backward()
    np.testing.assert_array_equal(x.g, [6])


ROWS = np.array([2, 0, 2, 2])


@pytest.mark.parametrize(
    "take",
    [
        lambda x: F.gather(x, ROWS, axis=0),
        lambda x: F.embed(given(ROWS), x),
        lambda x: x[ROWS],
        lambda x: x[given(ROWS)],
        lambda x: F.gather_nd(x, ROWS[None]),
        lambda x: F.gather_elements(x, np.stack([ROWS, ROWS], axis=1), axis=0),
    ],
    ids=["gather", "embed", "getitem", "getitem variable", "gather_nd", "gather_elements"],
)
def test_repeated_indices_accumulate_in_the_gradient(take):
    y, gradient = differentiate(take, np.arange(6.0).reshape(3, 2))
    np.testing.assert_array_equal(y, np.arange(6.0).reshape(3, 2)[ROWS])
    np.testing.assert_array_equal(gradient, [[1, 1], [0, 0], [3, 3]])


@pytest.mark.parametrize(
    "put",
    [
        lambda x, y: F.scatter_add(x, np.stack([ROWS, ROWS], axis=1), y, axis=0),
        lambda x, y: x + F.scatter_nd(y, ROWS[None], shape=(3, 2), add=True),
    ],
    ids=["scatter_add", "scatter_nd"],
)
def test_repeated_indices_accumulate_in_the_value(put):
    addends = np.array([[1.0, 10], [2, 20], [4, 40], [8, 80]])
    y, dx, dy = differentiate(put, np.ones((3, 2)), addends)
    np.testing.assert_array_equal(y, [[3, 21], [1, 1], [14, 131]])
    np.testing.assert_array_equal(dx, np.ones((3, 2)))
    np.testing.assert_array_equal(dy, np.ones((4, 2)))


# Integers ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["bool", *INTEGERS])
def test_integer_sums_do_not_overflow_at_the_width_of_the_input(dtype):
    largest = 1 if dtype == "bool" else min(int(np.iinfo(dtype).max), 2**40)
    x = given(np.full((3, 4), largest), dtype)
    wide = np.uint64 if dtype.startswith("u") else np.int64
    for result, count in [
        (run(lambda: F.sum(x)), 12),
        (run(lambda: F.sum(x, axis=1)), 4),
        (run(lambda: F.cumsum(x, axis=1))[:, -1], 4),
        (run(lambda: F.prod(x[0, :1])), 1),
        (run(lambda: F.matmul(x, given(np.ones((4, 1)), dtype))), 4),
        (run(lambda: F.einsum("ij->i", x)), 4),
    ]:
        assert result.dtype == wide
        np.testing.assert_array_equal(result, np.full(result.shape, count * largest, wide))
    np.testing.assert_allclose(run(lambda: F.mean(x)), largest, rtol=1e-6)


def test_integer_products_do_not_overflow_at_the_width_of_the_input():
    np.testing.assert_array_equal(run(lambda: F.prod(given([100, 100], "int8"))), 10_000)
    np.testing.assert_array_equal(
        run(lambda: F.cumprod(given([100, 100], "uint8"), axis=0))[-1], 10_000
    )


# NaN ---------------------------------------------------------------------------------------------

UNARY = [
    *("relu", "relu6", "leaky_relu", "elu", "selu", "sigmoid", "tanh", "softplus", "softsign"),
    *("sign", "abs", "exp", "log", "sin", "cos", "sinh", "cosh", "hard_sigmoid", "hard_tanh"),
    *("gelu", "mish", "silu", "swish", "log_sigmoid", "tanh_shrink", "sinc", "floor", "ceil"),
    *("round", "sqrt", "square", "erf", "expm1", "log1p", "neg", "identity", "rsqrt"),
]
NAN = np.float32([1.0, np.nan, -2.0, np.nan])


@pytest.mark.parametrize("name", UNARY)
def test_nan_stays_nan_and_stays_alone(name):
    result = run(lambda: getattr(F, name)(given(NAN)))
    alone = run(lambda: getattr(F, name)(given(NAN[::2])))
    assert np.isnan(result[[1, 3]]).all()
    np.testing.assert_array_equal(result[::2], alone)


@pytest.mark.parametrize("low_high", [(-1, 1), (-1.0, None), (None, 1.0)], ids=str)
def test_nan_passes_through_clip(low_high):
    result = run(lambda: F.clip(given(NAN), *low_high))
    np.testing.assert_array_equal(np.isnan(result), np.isnan(NAN))


@pytest.mark.parametrize("name", ["max", "min", "sum", "mean", "prod", "logsumexp", "var", "norm"])
def test_nan_wins_a_reduction(name):
    assert np.isnan(run(lambda: getattr(F, name)(given(NAN))))
    along = run(lambda: getattr(F, name)(given(NAN.reshape(2, 2)), axis=0))
    np.testing.assert_array_equal(np.isnan(along), [False, True])


@pytest.mark.parametrize("name", ["maximum2", "minimum2"])
def test_nan_wins_from_either_side_and_against_a_number(name):
    function = getattr(F, name)
    for other in (np.zeros(4, np.float32), 0.0):
        other = given(other) if isinstance(other, np.ndarray) else other
        for build in (
            lambda o=other: function(given(NAN), o),
            lambda o=other: function(o, given(NAN)),
        ):
            np.testing.assert_array_equal(np.isnan(run(build)), np.isnan(NAN))


def test_the_first_nan_is_the_extreme():
    for function in (F.argmax, F.argmin):
        assert run(lambda function=function: function(given(NAN))) == 1
        both = run(lambda function=function: function(given(NAN.reshape(2, 2)), axis=0))
        assert both[1] == 0
    _, gradient = differentiate(lambda x: F.max(x), np.float64([1, np.nan, 3, np.nan]))
    np.testing.assert_array_equal(gradient, [0, 1, 0, 0])


@pytest.mark.parametrize("name", ["max_pooling", "average_pooling", "sum_pooling"])
def test_nan_wins_its_window_and_no_other(name):
    image = np.arange(16, dtype=np.float32).reshape(1, 1, 4, 4)
    image[0, 0, 1, 0] = np.nan
    result = run(lambda: getattr(F, name)(given(image), (2, 2)))
    np.testing.assert_array_equal(np.isnan(result.ravel()), [True, False, False, False])


@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_nan_takes_its_own_row_of_a_softmax(name):
    result = run(lambda: getattr(F, name)(given([[1.0, 2.0], [np.nan, 0.0]]), axis=1))
    np.testing.assert_array_equal(np.isnan(result), [[False, False], [True, True]])


def test_nan_in_a_batch_reaches_a_loss():
    logits = given([[1.0, np.nan], [0.0, 1.0]])
    losses = run(lambda: F.softmax_cross_entropy(logits, np.array([[0], [1]])))
    np.testing.assert_array_equal(np.isnan(losses.ravel()), [True, False])
    assert np.isnan(run(lambda: F.sigmoid_cross_entropy(logits, np.zeros((2, 2))))[0, 1])


# Ties --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "build",
    [
        lambda x: F.max(x),
        lambda x: F.min(x),
        lambda x: F.max(F.reshape(x, (2, 2)), axis=(0, 1)),
        lambda x: F.max_pooling(F.reshape(x, (1, 1, 2, 2)), (2, 2)),
        lambda x: F.maximum2(F.maximum2(x[0], x[1]), F.maximum2(x[2], x[3])),
        lambda x: F.minimum2(F.minimum2(x[0], x[1]), F.minimum2(x[2], x[3])),
        lambda x: F.sort(x)[3],
        lambda x: F.norm(x, p=float("inf")),
    ],
)
def test_gradients_of_equal_elements_sum_to_one(build):
    _, gradient = differentiate(build, np.full(4, 2.0))
    assert np.sum(gradient) == 1 and np.sort(gradient)[-1] == 1


def test_the_first_of_equal_elements_is_taken():
    x = np.array([[1.0, 5, 5], [5, 5, 5]])
    assert run(lambda: F.argmax(given(x))) == 1
    np.testing.assert_array_equal(run(lambda: F.argmin(given(x), axis=0)), [0, 0, 0])
    _, gradient = differentiate(lambda x: F.max(x, axis=1), x)
    np.testing.assert_array_equal(gradient, [[0, 1, 0], [1, 0, 0]])
    _, gradient = differentiate(lambda x: F.max_pooling(x, (1, 3)), x[None, None])
    np.testing.assert_array_equal(gradient[0, 0], [[0, 1, 0], [1, 0, 0]])


@pytest.mark.parametrize("name", ["relu", "abs", "relu6"])
def test_at_a_kink_at_zero_the_gradient_is_zero(name):
    _, gradient = differentiate(getattr(F, name), np.zeros(3))
    np.testing.assert_array_equal(gradient, np.zeros(3))


# Finite at a thousand ----------------------------------------------------------------------------

LOGITS = [-1000.0, -100.0, 0.0, 100.0, 1000.0]


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(
    ("function", "value", "slope"),
    [
        (F.softplus, [0, 0, np.log(2), 100, 1000], [0, 0, 0.5, 1, 1]),
        (F.log_sigmoid, [-1000, -100, -np.log(2), 0, 0], [1, 1, 0.5, 0, 0]),
        (F.sigmoid, [0, 0, 0.5, 1, 1], [0, 0, 0.25, 0, 0]),
        (F.tanh, [-1, -1, 0, 1, 1], [0, 0, 1, 0, 0]),
        (F.silu, [0, 0, 0, 100, 1000], [0, 0, 0.5, 1, 1]),
        (F.gelu, [0, 0, 0, 100, 1000], [0, 0, 0.5, 1, 1]),
        (F.mish, [0, 0, 0, 100, 1000], [0, 0, 0.6, 1, 1]),
        (F.elu, [-1, -1, 0, 100, 1000], [0, 0, 1, 1, 1]),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_activations_are_finite_and_right_at_a_thousand(function, value, slope, dtype):
    absolute, relative = (1e-3, 2e-3) if dtype == "float16" else (1e-30, 1e-6)
    y, gradient = differentiate(function, np.array(LOGITS, dtype))
    assert y.dtype == gradient.dtype == dtype
    np.testing.assert_allclose(y, value, relative, absolute)
    np.testing.assert_allclose(gradient, slope, relative, absolute)


@pytest.mark.parametrize("dtype", FLOATS)
def test_softmaxes_are_finite_and_right_at_a_thousand(dtype):
    logits = np.array([[-1000, 1000], [1000, 1000], [-1000, -1000], [0, -1000]], dtype)
    likely = np.array([[0, 1], [0.5, 0.5], [0.5, 0.5], [1, 0]])
    logs = np.array([[-2000, 0], [-np.log(2)] * 2, [-np.log(2)] * 2, [0, -1000]])
    close = {"rtol": 1e-3, "atol": 1e-3} if dtype == "float16" else {"rtol": 1e-6}
    np.testing.assert_allclose(run(lambda: F.softmax(given(logits), axis=1)), likely, **close)
    y, gradient = differentiate(lambda x: F.log_softmax(x, axis=1), logits)
    np.testing.assert_allclose(y, logs, **close)
    np.testing.assert_allclose(gradient, 1 - 2 * likely, **close)
    y, gradient = differentiate(lambda x: F.logsumexp(x, axis=1), logits)
    np.testing.assert_allclose(y, np.add(np.max(logits, 1), [0, np.log(2), np.log(2), 0]), **close)
    np.testing.assert_allclose(gradient, likely, **close)


@pytest.mark.parametrize("dtype", FLOATS)
def test_cross_entropies_are_finite_and_right_at_a_thousand(dtype):
    close = {"rtol": 1e-3, "atol": 1e-3} if dtype == "float16" else {"rtol": 1e-6}
    logits = np.array([[-1000, 1000], [1000, -1000], [0, 0]], dtype)
    labels = np.zeros((3, 1), np.int64)
    y, gradient = differentiate(lambda x: F.softmax_cross_entropy(x, labels), logits)
    np.testing.assert_allclose(y.ravel(), [2000, 0, np.log(2)], **close)
    np.testing.assert_allclose(gradient, [[-1, 1], [0, 0], [-0.5, 0.5]], **close)
    x, target = np.array([-1000, -1000, 0, 1000, 1000], dtype), np.array([0, 1, 1, 0, 1], dtype)
    y, gradient = differentiate(lambda x: F.sigmoid_cross_entropy(x, given(target)), x)
    np.testing.assert_allclose(y, [0, 1000, np.log(2), 1000, 0], **close)
    np.testing.assert_allclose(gradient, [0, -1, -0.5, 1, 0], **close)


# Variance ----------------------------------------------------------------------------------------


def around(mean, shape):
    """Return ``mean`` plus and minus one in turn along the last axis."""
    return np.broadcast_to(mean + np.where(np.arange(shape[-1]) % 2, 1.0, -1.0), shape).copy()


SIGNS = np.where(np.arange(6) % 2, 1.0, -1.0)


@pytest.mark.parametrize(
    "normalize",
    [
        lambda x: F.transpose(
            F.batch_normalization(F.transpose(x, (2, 1, 0)), None, None, None, None), (2, 1, 0)
        ),
        lambda x: F.layer_normalization(x, None, None),
        lambda x: F.layer_normalization(x, None, None, batch_axis=(0, 1)),
        lambda x: F.instance_normalization(x, None, None),
        lambda x: F.group_normalization(x, None, None, num_groups=2),
        lambda x: F.tensor_normalization(x, (0, 1)),
        lambda x: F.weight_standardization(x),
    ],
    ids=["batch", "layer", "layer rows", "instance", "group", "tensor", "weight"],
)
def test_normalisation_far_from_zero_loses_nothing(normalize):
    """In one pass, mean of squares minus square of mean, nothing of the variance would be left."""
    result = run(lambda: normalize(given(around(1e6, (2, 4, 6)), "float32")))
    np.testing.assert_allclose(result, np.broadcast_to(SIGNS, (2, 4, 6)), rtol=1e-5)


def test_variance_far_from_zero_loses_nothing():
    x = given(around(1e6, (3, 6)), "float32")
    np.testing.assert_array_equal(run(lambda: F.var(x, axis=1)), np.ones(3))
    np.testing.assert_array_equal(run(lambda: F.std(x)), 1)
    np.testing.assert_allclose(run(lambda: F.var(x, axis=1, ddof=1)), np.full(3, 6 / 5), rtol=1e-6)


def test_running_variance_far_from_zero_loses_nothing():
    mean, variance = given(np.zeros((1, 1))), given(np.zeros((1, 1)))
    x = given(around(1e6, (6,)).reshape(6, 1), "float32")
    F.batch_normalization(x, None, None, mean, variance, decay_rate=0.0).forward()
    assert mean.d == 1e6
    np.testing.assert_allclose(variance.d, 6 / 5)


# Branches that are not selected, and norms of nothing --------------------------------------------

HALF = np.array([4.0, -4.0, 0.0])


@pytest.mark.parametrize(
    ("function", "slope", "second"),
    [
        (F.log, 1 / 4, -1 / 16),
        (F.sqrt, 1 / 4, -1 / 32),
        (lambda x: x**0.5, 1 / 4, -1 / 32),
        (lambda x: x**-1.5, -1.5 * 4**-2.5, 3.75 * 4**-3.5),
        (lambda x: 1 / x, -1 / 16, 2 / 64),
        (lambda x: x / x**2.0, -1 / 16, 2 / 64),
        (F.rsqrt, -1 / 16, 3 / 128),
        (lambda x: F.pow(x, F.constant(0.5, x.shape)), 1 / 4, -1 / 32),
        (F.log1p, 1 / 5, -1 / 25),
        (lambda x: F.exp(x * 200), 0, 0),
        (lambda x: F.acosh(x / 2), 0.5 / np.sqrt(3), -0.25 * 2 / 3**1.5),
    ],
)
def test_a_branch_that_is_not_selected_never_poisons_a_gradient(function, slope, second):
    """The branch has no slope, or no finite one, where it is not selected."""
    if second == 0:  # exp overflows where it is not selected; elsewhere it is constant here
        x, expected = np.array([-4.0, 4.0, 4.0]), [0, 1, 1]
        build = lambda x: F.where(x < 0, F.exp(x * 200), x)  # noqa: E731  # as the others are
    else:
        x, expected = HALF, [slope, 1, 1]
        build = lambda x: F.where(x > 0, function(x), x)  # noqa: E731
    _, gradient = differentiate(build, x)
    np.testing.assert_allclose(gradient, expected, atol=1e-300)
    variable = leaf(x)
    (first,) = nnl.grad(build(variable), variable)
    (again,) = nnl.grad(first, variable)
    np.testing.assert_allclose(again.d, [second, 0, 0], atol=1e-300)
    _, again = differentiate(lambda x: nnl.grad(build(x), x)[0], x)
    np.testing.assert_allclose(again, [second, 0, 0], atol=1e-300)


NOT_FINITE = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e30, -1e30, 1, -1, 5, -5, 0.3])
# A gradient that is clipped from below is not 0; statistics carry NaN to all they are taken of.
OTHERWISE = {"nnl::clip_grad_by_value", "nnl::clip_grad_by_norm", "nnl::normalize"}


def elementwise_calls():
    for operator in operators("nnl"):
        if operator.is_elementwise and operator.has_vjp and operator.name not in OTHERWISE:
            seen = set()
            for sample in operator.iterate_samples(np.random.default_rng(0)):
                if operator.__name__ == "r_pow_scalar" and sample.attributes["val"] < 0:
                    continue  # the logarithm of the number itself is NaN
                kinds = [None if x is None else x.dtype.kind for x in sample.inputs]
                call = (tuple(kinds), tuple(sample.attributes.items()))
                if "f" in kinds and None not in kinds and call not in seen:
                    seen.add(call)
                    yield pytest.param(operator, sample, id=f"{operator.__name__}-{len(seen)}")


@pytest.mark.parametrize(("operator", "sample"), [*elementwise_calls()])
def test_no_elementwise_gradient_makes_anything_of_zero(operator, sample):
    """What `where` gives a branch that it does not select is 0; whatever the branch holds."""
    floating = [x.dtype.kind == "f" for x in sample.inputs]
    grids = iter(np.meshgrid(*[NOT_FINITE] * sum(floating), indexing="ij"))
    inputs = [
        leaf(next(grids).ravel()) if is_floating else given(np.resize(x, 12 ** sum(floating)))
        for x, is_floating in zip(sample.inputs, floating, strict=True)
    ]
    y = operator(*inputs, **sample.attributes)
    if y.dtype.kind != "f":
        return
    leaves = [x for x in inputs if x.dtype.kind == "f"]
    zero = leaf(np.zeros(y.shape))
    first = nnl.grad(y, leaves, zero, allow_unused=True)
    second = nnl.grad(first, leaves, [np.ones(x.shape) for x in first], allow_unused=True)
    nnl.forward_all([*first, *second])
    for gradient in (*first, *second):
        np.testing.assert_array_equal(gradient.d, np.zeros(y.shape))


@pytest.mark.parametrize(
    "reduce",
    [F.norm, F.std, F.var, F.logsumexp, F.max, F.mean, F.sum, lambda x, axis: F.norm(x, 3, axis)],
)
def test_a_row_that_is_not_selected_never_poisons_a_gradient(reduce):
    x = np.array([[1.0, 2.0], [np.nan, np.inf], [3.0, 4.0]])
    keep = np.array([True, False, True])
    _, gradient = differentiate(lambda x: F.where(keep, reduce(x, axis=1), 0.0), x)
    _, expected = differentiate(lambda x: reduce(x, axis=1), x[keep])
    np.testing.assert_allclose(gradient, [expected[0], [0, 0], expected[1]])


@pytest.mark.parametrize("p", [1, 1.5, 2, 3, float("inf")])
def test_a_norm_at_zero_has_gradient_zero(p):
    y, gradient = differentiate(
        lambda x: F.norm(x, p=p, axis=1), np.array([[0.0, 0.0], [3.0, 0.0]])
    )
    np.testing.assert_allclose(y, [0, 3], rtol=1e-12)
    np.testing.assert_allclose(gradient[1], [1, 0], atol=1e-12)
    np.testing.assert_array_equal(gradient[0], [0, 0])


def test_a_deviation_of_equal_elements_has_gradient_zero():
    y, gradient = differentiate(lambda x: F.std(x, axis=1), np.array([[2.0, 2.0], [1.0, 3.0]]))
    np.testing.assert_array_equal(y, [0, 1])
    np.testing.assert_array_equal(gradient, [[0, 0], [-0.5, 0.5]])


def test_clipping_by_the_norm_of_nothing_is_nothing():
    y, gradient = differentiate(lambda x: F.clip_by_norm(x, 2.0), np.zeros(3))
    np.testing.assert_array_equal(y, np.zeros(3))
    np.testing.assert_array_equal(gradient, np.ones(3))


# Empty batches -----------------------------------------------------------------------------------

W = np.ones((4, 3, 2, 2))
EMPTY = {
    "convolution": ((0, 3, 5, 5), (0, 4, 4, 4), lambda x: F.convolution(x, W, np.ones(4))),
    "deconvolution": ((0, 4, 3, 3), (0, 3, 4, 4), lambda x: F.deconvolution(x, W, np.ones(3))),
    "max_pooling": ((0, 3, 4, 4), (0, 3, 2, 2), lambda x: F.max_pooling(x, (2, 2))),
    "average_pooling": ((0, 3, 4, 4), (0, 3, 2, 2), lambda x: F.average_pooling(x, (2, 2))),
    "sum_pooling": ((0, 3, 4, 4), (0, 3, 2, 2), lambda x: F.sum_pooling(x, (2, 2))),
    "global pooling": ((0, 3, 4, 4), (0, 3, 1, 1), F.global_average_pooling),
    "batch_normalization": (
        (0, 3, 2),
        (0, 3, 2),
        lambda x: F.batch_normalization(x, np.ones((1, 3, 1)), np.ones((1, 3, 1)), None, None),
    ),
    "layer_normalization": ((0, 3), (0, 3), lambda x: F.layer_normalization(x, None, None)),
    "instance_normalization": (
        (0, 3, 2),
        (0, 3, 2),
        lambda x: F.instance_normalization(x, None, None),
    ),
    "group_normalization": (
        (0, 4, 2),
        (0, 4, 2),
        lambda x: F.group_normalization(x, None, None, num_groups=2),
    ),
    "affine": ((0, 3), (0, 2), lambda x: F.affine(x, np.ones((3, 2)), np.ones(2))),
    "matmul": ((0, 3), (0, 2), lambda x: F.matmul(x, np.ones((3, 2)))),
    "attention": ((0, 5, 4), (0, 5, 4), lambda x: F.scaled_dot_product_attention(x, x, x)),
    "no queries": (
        (2, 0, 4),
        (2, 0, 4),
        lambda x: F.scaled_dot_product_attention(x, np.ones((2, 3, 4)), np.ones((2, 3, 4))),
    ),
    "softmax": ((0, 3), (0, 3), lambda x: F.softmax(x, axis=1)),
    "softmax_cross_entropy": (
        (0, 3),
        (0, 1),
        lambda x: F.softmax_cross_entropy(x, np.zeros((0, 1), np.int64)),
    ),
    "sigmoid_cross_entropy": (
        (0, 3),
        (0, 3),
        lambda x: F.sigmoid_cross_entropy(x, np.zeros((0, 3))),
    ),
    "squared_error": ((0, 3), (0, 3), lambda x: F.squared_error(x, np.zeros((0, 3)))),
    "huber_loss": ((0, 3), (0, 3), lambda x: F.huber_loss(x, np.zeros((0, 3)))),
    "concatenate": ((0, 3), (0, 6), lambda x: F.concatenate(x, x, axis=1)),
    "concatenate rows": ((0, 3), (2, 3), lambda x: F.concatenate(x, np.ones((2, 3)), x, axis=0)),
    "sum over the batch": ((0, 3), (3,), lambda x: F.sum(x, axis=0)),
    "sort": ((0, 3), (0, 3), lambda x: F.sort(x, axis=1)),
    "dropout": ((0, 3), (0, 3), lambda x: F.dropout(x, 0.5)),
    "reshape": ((0, 6), (0, 2, 3), lambda x: F.reshape(x, (0, 2, 3))),
    "einsum": ((0, 3), (0,), lambda x: F.einsum("ij,j->i", x, np.ones(3))),
    "getitem": ((0, 3), (0, 2), lambda x: x[:, ::2]),
    "cumsum": ((0, 3), (0, 3), lambda x: F.cumsum(x, axis=0)),
    "pad": ((0, 3), (0, 5), lambda x: F.pad(x, (1, 1))),
}


@pytest.mark.parametrize(("shape", "result", "build"), EMPTY.values(), ids=EMPTY)
def test_empty_batches_work_forward_and_backward(shape, result, build):
    y, gradient = differentiate(build, np.zeros(shape))
    assert y.shape == result and gradient.shape == shape
    assert not np.isnan(y).any()


@pytest.mark.parametrize("name", ["W", "b"])
def test_parameters_get_gradient_zero_from_an_empty_batch(name):
    nnl.clear_parameters()
    x = Variable((0, 3, 4, 4))
    h = F.relu(nnl.PF.batch_normalization(nnl.PF.convolution(x, 4, (3, 3), name="conv")))
    loss = F.sum(F.softmax_cross_entropy(nnl.PF.affine(h, 2), Variable((0, 1), dtype="int64")))
    before = {key: p.d.copy() for key, p in nnl.get_parameters(grad_only=False).items()}
    solver = nnl.S.Sgd(1.0)
    solver.set_parameters(nnl.get_parameters())
    nnl.compile_step(loss, solver).run()
    assert loss.d == 0
    for key, p in nnl.get_parameters(grad_only=False).items():
        np.testing.assert_array_equal(p.d, before[key])
    np.testing.assert_array_equal(nnl.get_parameters()[f"conv/conv/{name}"].g, 0)
    nnl.clear_parameters()


def test_rows_of_no_embedding_are_embedded():
    y, gradient = differentiate(
        lambda w: F.embed(given(np.zeros((0, 2), np.int64)), w), np.ones((3, 4))
    )
    assert y.shape == (0, 2, 4)
    np.testing.assert_array_equal(gradient, np.zeros((3, 4)))


# Windows, against direct loops -------------------------------------------------------------------


def convolve(x, w, b, before, after, stride, dilation, group):
    """Correlate, one product at a time: ONNX ``Conv`` for (channels, height, width)."""
    maps, inner, *kernel = w.shape
    padded = np.pad(x, [(0, 0), *zip(before, after, strict=True)])
    sizes = [
        (n - d * (k - 1) - 1) // s + 1
        for n, k, s, d in zip(padded.shape[1:], kernel, stride, dilation, strict=True)
    ]
    y = np.zeros((maps, *sizes))
    for m, i, j in np.ndindex(*y.shape):
        y[m, i, j] = b[m]
        for c, p, q in np.ndindex(inner, *kernel):
            channel = m // (maps // group) * inner + c
            row, column = i * stride[0] + p * dilation[0], j * stride[1] + q * dilation[1]
            y[m, i, j] += w[m, c, p, q] * padded[channel, row, column]
    return y


def transpose_convolve(x, w, b, before, after, stride, dilation, group, extra):
    """Spread each element, one product at a time: ONNX ``ConvTranspose``."""
    channels, inner, *kernel = w.shape
    full = [
        (n - 1) * s + d * (k - 1) + 1 + e
        for n, k, s, d, e in zip(x.shape[1:], kernel, stride, dilation, extra, strict=True)
    ]
    y = np.zeros((inner * group, *full))
    for c, i, j in np.ndindex(*x.shape):
        for m, p, q in np.ndindex(inner, *kernel):
            where = i * stride[0] + p * dilation[0], j * stride[1] + q * dilation[1]
            y[c // (channels // group) * inner + m, *where] += x[c, i, j] * w[c, m, p, q]
    y = y[:, before[0] : full[0] - after[0], before[1] : full[1] - after[1]]
    return y + b[:, None, None]


WINDOWS = [
    # before, after, stride, dilation, group
    ((0, 0), (0, 0), (1, 1), (1, 1), 1),
    ((1, 0), (0, 2), (1, 1), (1, 1), 1),
    ((2, 1), (1, 2), (2, 3), (1, 1), 2),
    ((0, 1), (3, 0), (1, 2), (2, 1), 4),
    ((3, 3), (3, 3), (3, 2), (2, 3), 2),
]


@pytest.mark.parametrize(("before", "after", "stride", "dilation", "group"), WINDOWS)
def test_convolution_is_the_direct_sum_and_its_gradients_those_of_a_bilinear_map(
    before, after, stride, dilation, group
):
    rng = np.random.default_rng(3)
    x, w, b = (
        rng.normal(size=(2, 4, 7, 6)),
        rng.normal(size=(8, 4 // group, 3, 2)),
        rng.normal(size=8),
    )
    options = {"pad": tuple(zip(before, after, strict=True)), "stride": stride}
    options |= {"dilation": dilation, "group": group}
    rest = (before, after, stride, dilation, group)
    y, dx, dw, db = differentiate(lambda x, w, b: F.convolution(x, w, b, **options), x, w, b)
    np.testing.assert_allclose(y, [convolve(one, w, b, *rest) for one in x], rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(db, np.full(8, y[:, 0].size))
    # Bilinear in x and w: the sum of the result is the inner product of each with its gradient.
    products = np.sum(y) - np.sum(b) * y[:, 0].size
    np.testing.assert_allclose([np.sum(x * dx), np.sum(w * dw)], [products] * 2, rtol=1e-9)


@pytest.mark.parametrize("extra", [(0, 0), (1, 0)])
@pytest.mark.parametrize(("before", "after", "stride", "dilation", "group"), WINDOWS)
def test_transposed_convolution_is_the_direct_sum(before, after, stride, dilation, group, extra):
    rng = np.random.default_rng(4)
    extra = tuple(min(e, max(s, d) - 1) for e, s, d in zip(extra, stride, dilation, strict=True))
    x, w = rng.normal(size=(2, 4, 5, 5)), rng.normal(size=(4, 2, 3, 2))
    b = rng.normal(size=2 * group)
    options = {"pad": tuple(zip(before, after, strict=True)), "stride": stride}
    options |= {"dilation": dilation, "group": group, "output_padding": extra}
    y, dx, dw, _ = differentiate(lambda x, w, b: F.deconvolution(x, w, b, **options), x, w, b)
    rest = (before, after, stride, dilation, group, extra)
    expected = [transpose_convolve(one, w, b, *rest) for one in x]
    np.testing.assert_allclose(y, expected, rtol=1e-10, atol=1e-12)
    products = np.sum(y) - np.sum(b) * y[:, 0].size
    np.testing.assert_allclose([np.sum(x * dx), np.sum(w * dw)], [products] * 2, rtol=1e-9)


def pool(x, kernel, stride, before, after, ceil, reduce):
    """Reduce each window of (height, width), one at a time; what is outside is left out."""
    counts = [
        # All that begin inside, or in the padding before; else all that fit in what is padded.
        -(-(n + b) // s) if ceil else (n + b + a - k) // s + 1
        for n, k, s, b, a in zip(x.shape, kernel, stride, before, after, strict=True)
    ]
    y = np.zeros(counts)
    for i, j in np.ndindex(*counts):
        top, left = i * stride[0] - before[0], j * stride[1] - before[1]
        rows, columns = slice(max(top, 0), top + kernel[0]), slice(max(left, 0), left + kernel[1])
        y[i, j] = reduce(x[rows, columns])
    return y


@pytest.mark.parametrize("ceil", [False, True], ids=["floor", "ceil"])
@pytest.mark.parametrize(
    ("kernel", "stride", "before", "after"),
    [
        ((2, 2), (2, 2), (0, 0), (0, 0)),
        ((3, 2), (2, 3), (0, 0), (0, 0)),
        ((3, 3), (2, 2), (1, 1), (1, 1)),
        ((3, 4), (2, 3), (2, 0), (0, 3)),
        ((2, 3), (3, 2), (1, 2), (0, 1)),
    ],
)
@pytest.mark.parametrize(
    ("function", "reduce"),
    [
        (F.max_pooling, np.max),
        (F.sum_pooling, np.sum),
        (lambda *a, **k: F.average_pooling(*a, **k, including_pad=False), np.mean),
    ],
    ids=["max", "sum", "average"],
)
def test_pooling_is_the_direct_reduction(function, reduce, kernel, stride, before, after, ceil):
    x = np.random.default_rng(5).normal(size=(2, 3, 7, 8)) - 5  # padding with zero would show
    options = {"stride": stride, "pad": tuple(zip(before, after, strict=True))}
    y, gradient = differentiate(lambda x: function(x, kernel, ignore_border=not ceil, **options), x)
    expected = [
        [pool(image, kernel, stride, before, after, ceil, reduce) for image in one] for one in x
    ]
    np.testing.assert_allclose(y, expected, rtol=1e-12)
    np.testing.assert_allclose(
        np.sum(x * gradient), np.sum(y), rtol=1e-9
    )  # linear where it is smooth


# Writes and seeds --------------------------------------------------------------------------------


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
def test_a_write_to_a_saved_value_before_backward_is_an_error_that_names_it(dynamic):
    x = leaf([1.0, 2.0]).apply(name="weights")
    with nnl.auto_forward(dynamic):
        y = F.sum(x * x)
        y.forward() if not dynamic else None
        x.d[0] = 7
        with pytest.raises(StaleValueError, match="weights"):
            y.backward()


def training_run(dynamic=False, compiled=False):
    nnl.clear_parameters()
    nnl.seed(11)
    x = Variable.from_numpy_array(nnl.random.prng.normal(size=(8, 6)).astype(np.float32))

    def build():
        h = nnl.PF.batch_normalization(nnl.PF.affine(x, 16, name="a"), name="n")
        h = F.dropout(F.relu(h + F.randn(sigma=0.1, shape=h.shape)), 0.3)
        return F.mean(nnl.PF.affine(h, 2, name="b") ** 2)

    solver = nnl.S.Adam(0.01)
    static = None if dynamic else build()
    step = nnl.compile_step(static, solver) if compiled else None
    losses = []
    for _ in range(4):
        with nnl.auto_forward(dynamic):
            loss = static or build()
            solver.set_parameters(nnl.get_parameters(), reset=False, retain_state=True)
            if step is not None:
                step.run()
            else:
                loss.forward() if not dynamic else None
                solver.zero_grad()
                loss.backward()
                solver.update()
        losses.append(loss.d.copy())
    arrays = [p.d.copy() for p in nnl.get_parameters(grad_only=False).values()]
    nnl.clear_parameters()
    return [*losses, *arrays]


@pytest.mark.parametrize("kind", [{}, {"dynamic": True}, {"compiled": True}], ids=str)
def test_a_seed_fixes_every_result_bit_for_bit(kind):
    for one, two in zip(training_run(**kind), training_run(**kind), strict=True):
        np.testing.assert_array_equal(one, two)


def test_static_and_compiled_training_give_the_same_numbers_bit_for_bit():
    for one, two in zip(training_run(), training_run(compiled=True), strict=True):
        np.testing.assert_array_equal(one, two)
