"""Tests for square matrices on a GPU."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from nnl_core.graph.operator import Array, lookup

Compute = Callable[..., tuple[Array, ...]]

SIZES = [1, 2, 9, 33, 80]  # a warp to a block for each; the last works in global memory


def _matrices(count: int, n: int) -> Array:
    """Return well-conditioned matrices that need rows exchanged."""
    rng = np.random.default_rng(1)
    x = rng.uniform(-1, 1, (count, n, n)) / np.sqrt(n) + 2 * np.eye(n)
    return np.ascontiguousarray(x[:, rng.permutation(n)])


@pytest.mark.parametrize("n", SIZES)
def test_an_inverse_times_its_matrix_is_the_identity(compute: Compute, n: int) -> None:
    x = _matrices(2, n)
    (y,) = compute("nnl::batch_inv", x)
    np.testing.assert_allclose(x @ y, np.broadcast_to(np.eye(n), x.shape), atol=1e-12)


@pytest.mark.parametrize("n", SIZES)
def test_determinants_are_those_of_numpy(compute: Compute, n: int) -> None:
    x = _matrices(3, n)
    (determinant,) = compute("nnl::batch_det", x)
    (logarithm,) = compute("nnl::batch_logdet", x)
    np.testing.assert_allclose(determinant, np.linalg.det(x), rtol=1e-11)
    np.testing.assert_allclose(logarithm, np.linalg.slogdet(x).logabsdet, rtol=1e-11)


@pytest.mark.parametrize("n", SIZES)
def test_a_cholesky_factor_times_itself_is_its_matrix(compute: Compute, n: int) -> None:
    x = _matrices(2, n)
    x = x @ x.swapaxes(1, 2)
    (y,) = compute("nnl::batch_cholesky", x)
    np.testing.assert_allclose(y @ y.swapaxes(1, 2), x, atol=1e-11)
    assert (np.triu(y, 1) == 0).all()


@pytest.mark.parametrize(
    "n, missing", [(1, 0), (1, 1), (2, 0), (2, 1), (2, 2), (5, 0), (5, 1), (5, 2), (33, 0), (33, 1)]
)
def test_cofactors_are_those_of_numpy_also_of_singular_matrices(
    compute: Compute, n: int, missing: int
) -> None:
    rank = max(n - missing, 0)
    rng = np.random.default_rng(2)
    x = rng.normal(size=(2, n, rank)) @ rng.normal(size=(2, rank, n)) / np.sqrt(n)
    (y,) = compute("nnl::batch_cofactor", x)
    target = lookup("nnl::batch_cofactor").reference(x)
    scale = max(1.0, float(np.abs(target).max()))
    np.testing.assert_allclose(y, target, rtol=0, atol=1e-9 * scale)


def test_a_singular_matrix_has_determinant_0_and_its_logarithm(compute: Compute) -> None:
    x = np.array([[[1.0, 2.0], [2.0, 4.0]], [[0.0, 0.0], [0.0, 0.0]]])
    (determinant,) = compute("nnl::batch_det", x)
    (logarithm,) = compute("nnl::batch_logdet", x)
    np.testing.assert_array_equal(determinant, [0, 0])
    np.testing.assert_array_equal(logarithm, [-np.inf, -np.inf])


@pytest.mark.parametrize("name", ["batch_inv", "batch_cholesky", "batch_cofactor"])
def test_a_matrix_that_is_not_finite_gives_nan_and_its_neighbours_their_results(
    compute: Compute, name: str
) -> None:
    x = np.broadcast_to(2 * np.eye(3), (3, 3, 3)).copy()
    x[1, 0, 2] = np.inf
    (y,) = compute(f"nnl::{name}", x)
    np.testing.assert_array_equal(y, lookup(f"nnl::{name}").reference(x))
