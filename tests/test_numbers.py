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


# Gradients of use ---------------------------------------------------------------------------------


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


# Integers -----------------------------------------------------------------------------------------


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


# NaN ----------------------------------------------------------------------------------------------

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


# Ties ---------------------------------------------------------------------------------------------


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


# Finite at a thousand -----------------------------------------------------------------------------

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
