"""Activation functions and softmax."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nnl_core import functions as F
from nnl_core.errors import OperatorError, ShapeError
from nnl_core.graph.autodiff import grad
from nnl_core.graph.modes import auto_forward
from nnl_core.graph.variable import Variable

Function = Callable[[Variable], Variable]


def log1p_exp(x: float) -> float:
    return max(x, 0) + math.log1p(math.exp(-abs(x)))


def logistic(x: float) -> float:
    return 0.5 * (1 + math.tanh(x / 2))


# Value and derivative of each function, in Python's own arithmetic.
CLOSED_FORMS: dict[str, tuple[Function, Callable[[float], float], Callable[[float], float]]] = {
    "relu": (F.relu, lambda x: max(x, 0), lambda x: float(x > 0)),
    "leaky_relu": (
        lambda x: F.leaky_relu(x, 0.2),
        lambda x: x if x > 0 else 0.2 * x,
        lambda x: 1 if x > 0 else 0.2,
    ),
    "relu6": (F.relu6, lambda x: min(max(x, 0), 6), lambda x: float(0 < x < 6)),
    "hard_sigmoid": (
        F.hard_sigmoid,
        lambda x: min(max(0.2 * x + 0.5, 0), 1),
        lambda x: 0.2 * (abs(x) < 2.5),
    ),
    "hard_tanh": (F.hard_tanh, lambda x: min(max(x, -1), 1), lambda x: float(abs(x) < 1)),
    "elu": (
        lambda x: F.elu(x, 1.5),
        lambda x: x if x > 0 else 1.5 * math.expm1(x),
        lambda x: 1 if x > 0 else 1.5 * math.exp(x),
    ),
    "selu": (
        lambda x: F.selu(x, 2.0, 0.5),
        lambda x: 2 * x if x > 0 else math.expm1(x),
        lambda x: 2 if x > 0 else math.exp(x),
    ),
    "sigmoid": (F.sigmoid, logistic, lambda x: logistic(x) * logistic(-x)),
    "log_sigmoid": (F.log_sigmoid, lambda x: -log1p_exp(-x), lambda x: logistic(-x)),
    "softplus": (
        lambda x: F.softplus(x, 2.0),
        lambda x: log1p_exp(2 * x) / 2,
        lambda x: logistic(2 * x),
    ),
    "tanh": (F.tanh, math.tanh, lambda x: 1 - math.tanh(x) ** 2),
    "tanh_shrink": (F.tanh_shrink, lambda x: x - math.tanh(x), lambda x: math.tanh(x) ** 2),
    "softsign": (F.softsign, lambda x: x / (1 + abs(x)), lambda x: 1 / (1 + abs(x)) ** 2),
    "swish": (
        F.swish,
        lambda x: x * logistic(x),
        lambda x: logistic(x) + x * logistic(x) * logistic(-x),
    ),
    "silu": (
        F.silu,
        lambda x: x * logistic(x),
        lambda x: logistic(x) + x * logistic(x) * logistic(-x),
    ),
    "mish": (
        F.mish,
        lambda x: x * math.tanh(log1p_exp(x)),
        lambda x: math.tanh(log1p_exp(x)) + x * logistic(x) * (1 - math.tanh(log1p_exp(x)) ** 2),
    ),
    "exact gelu": (
        lambda x: F.gelu(x, approximate="none"),
        lambda x: x * 0.5 * math.erfc(-x / math.sqrt(2)),
        lambda x: (
            0.5 * math.erfc(-x / math.sqrt(2)) + x * math.exp(-x * x / 2) / math.sqrt(2 * math.pi)
        ),
    ),
    "sinc": (
        F.sinc,
        lambda x: math.sin(x) / x,
        lambda x: (math.cos(x) - math.sin(x) / x) / x,
    ),
}
POINTS = np.array([-1000.0, -30.0, -2.7, -1.3, -0.4, 0.35, 0.9, 1.7, 3.0, 7.0, 30.0, 1000.0])


@pytest.mark.parametrize("name", CLOSED_FORMS)
def test_value_and_derivative_are_those_of_the_formula(name: str) -> None:
    function, value, derivative = CLOSED_FORMS[name]
    x = Variable.from_numpy_array(POINTS, need_grad=True)
    y = function(x)
    y.forward()
    y.backward()
    np.testing.assert_allclose(y.d, [value(p) for p in POINTS], rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(x.g, [derivative(p) for p in POINTS], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
@pytest.mark.parametrize("name", CLOSED_FORMS)
def test_large_inputs_give_finite_values_and_gradients(name: str, dtype: Any) -> None:
    x = Variable.from_numpy_array(np.array([-1000, 1000], dtype), need_grad=True)
    y = CLOSED_FORMS[name][0](x)
    y.forward()
    y.backward()
    assert y.dtype == dtype
    assert np.isfinite(y.d).all()
    assert np.isfinite(x.g).all()


@pytest.mark.parametrize("name", CLOSED_FORMS)
def test_nan_stays_nan(name: str) -> None:
    x = Variable.from_numpy_array(np.array([1.0, np.nan], np.float32))
    np.testing.assert_array_equal(np.isnan(CLOSED_FORMS[name][0](x).d), [False, True])


@pytest.mark.parametrize("name", CLOSED_FORMS)
def test_nan_that_where_leaves_out_has_gradient_zero(name: str) -> None:
    x = Variable.from_numpy_array(np.array([1.0, np.nan]), need_grad=True)
    y = F.where(np.array([True, False]), CLOSED_FORMS[name][0](x), 0.0)
    y.forward()
    y.backward()
    assert x.g[1] == 0


@pytest.mark.parametrize("name", CLOSED_FORMS)
def test_static_and_dynamic_graphs_agree(name: str) -> None:
    x = Variable.from_numpy_array(POINTS.astype(np.float32))
    static = CLOSED_FORMS[name][0](x)
    static.forward()
    with auto_forward():
        dynamic = CLOSED_FORMS[name][0](x)
    np.testing.assert_array_equal(static.d, dynamic.d)


def test_integers_become_single_precision() -> None:
    x = Variable.from_numpy_array(np.array([-1, 0, 2]))
    y = F.sigmoid(x)
    assert y.dtype == np.float32
    np.testing.assert_allclose(y.d, [logistic(v) for v in (-1, 0, 2)], rtol=1e-6)


@pytest.mark.parametrize(
    ("function", "expected"),
    [(F.relu, 0), (lambda x: F.leaky_relu(x, 0.3), 0.3), (lambda x: F.prelu(x, 0.3), 0.3)],
)
def test_the_gradient_at_a_kink_is_that_of_the_side_below(
    function: Function, expected: float
) -> None:
    x = Variable.from_numpy_array(np.zeros(1), need_grad=True)
    y = function(x)
    y.forward()
    y.backward()
    assert x.g[0] == expected


def test_an_infinite_gradient_does_not_pass_a_relu_that_is_off() -> None:
    x = Variable.from_numpy_array(np.array([-1.0, 1.0]), need_grad=True)
    y = F.relu(x)
    y.forward()
    y.backward(np.array([np.inf, 2.0]))
    np.testing.assert_array_equal(x.g, [0, 2])


def test_tanh_gelu_is_near_the_exact_one() -> None:
    x = Variable.from_numpy_array(np.linspace(-5, 5, 101))
    np.testing.assert_allclose(F.gelu(x).d, F.gelu(x, approximate="none").d, atol=5e-4)


def test_gelu_names_the_approximations_that_there_are() -> None:
    with pytest.raises(OperatorError, match="'erf'; it may be 'tanh' or 'none'"):
        F.gelu(Variable((2,)), approximate="erf")


def test_softplus_without_a_slope_is_an_error() -> None:
    with pytest.raises(OperatorError, match="beta is 0"):
        F.softplus(Variable((2,)), 0)


def test_sinc_is_one_at_zero_and_flat_there() -> None:
    x = Variable.from_numpy_array(np.array([0.0]), need_grad=True)
    y = F.sinc(x)
    (dx,) = grad(y, x)
    (second,) = grad(dx, x)
    assert y.d[0] == 1
    assert dx.d[0] == 0
    np.testing.assert_allclose(second.d, [-1 / 3])


@pytest.mark.parametrize("x", [1e-6, 1e-3, 0.1, 0.29999, 0.30001])
def test_the_gradient_of_sinc_near_zero_keeps_its_precision(x: float) -> None:
    variable = Variable.from_numpy_array(np.array([x]), need_grad=True)
    y = F.sinc(variable)
    y.forward()
    y.backward()
    terms = [(-1) ** k * 2 * k * x ** (2 * k - 1) / math.factorial(2 * k + 1) for k in range(1, 9)]
    np.testing.assert_allclose(variable.g, [sum(terms)], rtol=1e-9)


# With parameters or two halves -------------------------------------------------------------------


@pytest.mark.parametrize(("base_axis", "shape"), [(1, (1, 3, 1)), (-1, (1, 1, 4)), (0, (2, 1, 1))])
def test_prelu_has_a_slope_for_each_index_of_the_base_axis(
    base_axis: int, shape: tuple[int, ...]
) -> None:
    rng = np.random.default_rng(0)
    x = Variable.from_numpy_array(rng.normal(size=(2, 3, 4)), need_grad=True)
    slope = Variable.from_numpy_array(rng.normal(size=(int(np.prod(shape)),)), need_grad=True)
    y = F.prelu(x, slope, base_axis)
    y.forward()
    g = rng.normal(size=x.shape)
    y.backward(g)
    w = slope.d.reshape(shape)
    np.testing.assert_allclose(y.d, np.maximum(x.d, 0) + w * np.minimum(x.d, 0))
    np.testing.assert_allclose(x.g, np.where(x.d > 0, g, g * w))
    others = tuple(axis for axis in range(3) if axis != base_axis % 3)
    np.testing.assert_allclose(slope.g, (g * np.minimum(x.d, 0)).sum(others))


def test_prelu_names_the_axis_that_its_slopes_do_not_fit() -> None:
    with pytest.raises(ShapeError, match=r"slopes of shape \(4,\) do not fit axis 1 .* or 3"):
        F.prelu(Variable((2, 3)), Variable((4,)))


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_crelu_and_celu_join_both_signs_along_the_axis(axis: int) -> None:
    x = Variable.from_numpy_array(np.random.default_rng(0).normal(size=(2, 3, 4)))

    def elu(v: np.ndarray) -> np.ndarray:
        return np.where(v > 0, v, 0.5 * np.expm1(v))

    halves = np.maximum(x.d, 0), np.maximum(-x.d, 0)
    np.testing.assert_allclose(F.crelu(x, axis).d, np.concatenate(halves, axis))
    np.testing.assert_allclose(F.celu(x, 0.5, axis).d, np.concatenate((elu(x.d), elu(-x.d)), axis))


# Softmax -----------------------------------------------------------------------------------------

SCORES = st.lists(st.floats(-1000, 1000, width=32), min_size=1, max_size=80)


@settings(deadline=None)
@given(SCORES)
def test_softmax_is_a_distribution_that_a_constant_does_not_change(scores: list[float]) -> None:
    x = np.array([scores, scores])
    y = F.softmax(Variable.from_numpy_array(x)).d
    moved = F.softmax(Variable.from_numpy_array(x + 5)).d
    np.testing.assert_allclose(y.sum(-1), 1)
    np.testing.assert_allclose(moved, y, rtol=1e-9, atol=1e-12)


@settings(deadline=None)
@given(SCORES)
def test_log_softmax_is_finite_and_its_exponential_is_softmax(scores: list[float]) -> None:
    x = Variable.from_numpy_array(np.array([scores], np.float32), need_grad=True)
    y = F.log_softmax(x)
    y.forward()
    y.backward(np.random.default_rng(0).normal(size=y.shape))
    assert np.isfinite(y.d).all()
    assert np.isfinite(x.g).all()
    np.testing.assert_allclose(np.exp(y.d), F.softmax(x).d, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("function", [F.softmax, F.log_softmax, F.masked_softmax])
def test_the_axis_defaults_to_the_last(function: Callable[..., Variable]) -> None:
    x = Variable.from_numpy_array(np.random.default_rng(0).normal(size=(2, 3, 4)))
    np.testing.assert_array_equal(function(x).d, function(x, 2).d)


def test_softmax_of_two_scores_is_the_sigmoid_of_their_difference() -> None:
    x = Variable.from_numpy_array(np.array([[0.3, -1.2]]), need_grad=True)
    y = F.softmax(x)
    y.forward()
    y.backward(np.array([[1.0, 0.0]]))
    p = logistic(1.5)
    np.testing.assert_allclose(y.d, [[p, 1 - p]])
    np.testing.assert_allclose(x.g, [[p * (1 - p), -p * (1 - p)]])


def test_nan_among_the_scores_makes_only_their_row_nan() -> None:
    x = Variable.from_numpy_array(np.array([[1.0, np.nan], [0.0, 0.0]]))
    np.testing.assert_array_equal(F.softmax(x).d, [[np.nan, np.nan], [0.5, 0.5]])


@pytest.mark.parametrize("length", [2, 70])
@pytest.mark.parametrize("function", [F.softmax, F.log_softmax])
def test_a_nan_row_that_where_leaves_out_has_gradient_zero(
    function: Callable[..., Variable], length: int
) -> None:
    values = np.zeros((2, length))
    values[0, 1] = np.nan
    x = Variable.from_numpy_array(values, need_grad=True)
    y = F.where(np.array([[False], [True]]), function(x), 0.0)
    y.forward()
    y.backward(np.random.default_rng(0).normal(size=y.shape))
    np.testing.assert_array_equal(x.g[0], 0)
    assert x.g[1].any()


def test_masked_softmax_gives_hidden_elements_and_hidden_rows_zero() -> None:
    hidden = -np.inf
    x = Variable.from_numpy_array(
        np.array([[0.0, hidden, 0.0], [hidden, hidden, hidden]]), need_grad=True
    )
    y = F.masked_softmax(x)
    y.forward()
    y.backward(np.array([[1.0, 5.0, 0.0], [1.0, 2.0, 3.0]]))
    np.testing.assert_allclose(y.d, [[0.5, 0, 0.5], [0, 0, 0]])
    np.testing.assert_allclose(x.g, [[0.25, 0, -0.25], [0, 0, 0]])


def test_softmax_of_a_scalar_names_the_axis_that_is_missing() -> None:
    with pytest.raises(ShapeError, match="axis -1 is out of range for 0 axes"):
        F.softmax(Variable(()))
