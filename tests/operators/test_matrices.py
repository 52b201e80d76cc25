"""Inverse, determinant and Cholesky factor of matrices."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nnl_core import functions as F
from nnl_core.errors import OperatorError, ShapeError
from nnl_core.graph.variable import Variable


def of(*rows: list[float]) -> Variable:
    x = Variable.from_numpy_array(np.array(rows, np.float64), need_grad=True)
    x.grad.zero()
    return x


def gradient(x: Variable, y: Variable, weight: Any = 1.0) -> np.ndarray:
    y.forward()
    y.backward(np.broadcast_to(np.asarray(weight, y.dtype), y.shape))
    return np.array(x.g)


def test_inverse_of_two_by_two() -> None:
    assert F.batch_inv(of([1, 2], [3, 4])).d == pytest.approx(np.array([[-2, 1], [1.5, -0.5]]))


@given(st.integers(0, 2**32 - 1), st.integers(1, 6))
@settings(deadline=None, max_examples=20)
def test_inverse_times_matrix_is_one(seed: int, size: int) -> None:
    x = np.random.default_rng(seed).uniform(-1, 1, size=(2, 3, size, size)) + size * np.eye(size)
    product = x @ F.batch_inv(x).d
    np.testing.assert_allclose(product, np.broadcast_to(np.eye(size), x.shape), atol=1e-12)


def test_determinant_is_odd_under_exchange_of_rows() -> None:
    assert F.batch_det(np.eye(3)[[1, 0, 2]][None]).d == pytest.approx([-1])


def test_determinant_of_a_singular_matrix_is_zero_and_its_gradient_the_cofactors() -> None:
    x = of([1, 2], [2, 4])
    y = F.batch_det(x)
    np.testing.assert_allclose(gradient(x, y), [[4, -2], [-2, 1]], atol=1e-12)
    assert y.d == pytest.approx(0)


def test_gradient_of_the_determinant_is_zero_where_the_rank_is_two_short() -> None:
    x = Variable.from_numpy_array(np.ones((3, 3)), need_grad=True)
    x.grad.zero()
    np.testing.assert_allclose(gradient(x, F.batch_det(x)), np.zeros((3, 3)), atol=1e-12)


def test_log_determinant_is_of_the_magnitude() -> None:
    x = of([0, 3], [2, 0])
    y = F.batch_logdet(x)
    np.testing.assert_allclose(gradient(x, y), [[0, 1 / 3], [1 / 2, 0]], atol=1e-12)
    assert y.d == pytest.approx(np.log(6))


def test_log_determinant_does_not_overflow() -> None:
    x = np.eye(400, dtype=np.float32)[None] * 1000
    assert F.batch_logdet(x).d == pytest.approx([400 * np.log(1000)], rel=1e-6)


def test_log_determinant_of_a_singular_matrix_is_minus_infinity() -> None:
    assert F.batch_logdet(of([1, 2], [2, 4])).d == -np.inf


def test_no_elements_have_determinant_one() -> None:
    assert F.batch_det(np.zeros((2, 0, 0))).d.tolist() == [1, 1]


def test_cholesky_factors() -> None:
    x = [4.0, 2.0], [2.0, 5.0]
    assert F.batch_cholesky(of(*x)).d == pytest.approx(np.array([[2, 0], [1, 2]]))
    assert F.batch_cholesky(of(*x), upper=True).d == pytest.approx(np.array([[2, 1], [0, 2]]))


def test_cholesky_of_a_number_is_its_root() -> None:
    x = of([9])
    assert gradient(x, F.batch_cholesky(x)) == pytest.approx(1 / 6)


@pytest.mark.parametrize("upper", [False, True])
def test_gradient_of_cholesky_is_symmetric(upper: bool) -> None:
    # Recorded from nnabla 1.39: the gradient of the sum of the factor.
    x = of([4, 2], [2, 5])
    expected = [[0.1875, 0.125], [0.125, 0.25]]
    np.testing.assert_allclose(gradient(x, F.batch_cholesky(x, upper)), expected, atol=1e-12)


def test_a_singular_matrix_is_named() -> None:
    x = np.stack([np.eye(2), np.ones((2, 2))])
    with pytest.raises(OperatorError, match=r"batch_inv: matrix \(1,\) is singular"):
        F.batch_inv(x).forward()


def test_a_matrix_that_is_not_positive_definite_is_named() -> None:
    x = np.stack([[np.eye(2), np.eye(2), -np.eye(2)]])
    with pytest.raises(
        OperatorError, match=r"batch_cholesky: matrix \(0, 2\) is not positive definite"
    ):
        F.batch_cholesky(x).forward()


@pytest.mark.parametrize("function", [F.batch_inv, F.batch_det, F.batch_logdet, F.batch_cholesky])
def test_nan_stays_in_its_matrix(function: Any) -> None:
    x = np.stack([np.eye(2), np.full((2, 2), np.nan)])
    y = function(x).d
    assert np.isfinite(y[0]).all()
    assert np.isnan(y[1]).all()


@pytest.mark.parametrize("function", [F.batch_inv, F.batch_det, F.batch_logdet, F.batch_cholesky])
@pytest.mark.parametrize("shape", [(3,), (2, 3)])
def test_what_is_not_square_is_refused(function: Any, shape: tuple[int, ...]) -> None:
    with pytest.raises(ShapeError, match="the last two axes must be square matrices"):
        function(np.zeros(shape))
