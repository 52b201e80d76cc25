"""Products of few factors: nearest of a rank, and tensors of known rank."""

from __future__ import annotations

import numpy as np
import pytest

import nnl_core as nnl
from nnl_core.errors import ParameterError
from nnl_core.parametric_functions.factorization import cp_decomposition, low_rank


def draw(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape)


def product(factors: list[np.ndarray]) -> np.ndarray:
    """The sum of outer products of columns."""
    total = np.ones((1, factors[0].shape[1]))
    for factor in factors:
        total = np.einsum("ar,br->abr", total, factor).reshape(-1, factor.shape[1])
    return total.sum(axis=1).reshape([len(factor) for factor in factors])


def test_a_matrix_of_that_rank_is_found_again() -> None:
    matrix = draw(5, 2) @ draw(2, 4, seed=1)
    left, right = low_rank(matrix, 2)
    assert (left.shape, right.shape) == ((5, 2), (2, 4))
    np.testing.assert_allclose(left @ right, matrix, atol=1e-12)


def test_what_is_left_out_are_the_smallest_singular_values() -> None:
    stack = draw(3, 5, 4)
    left, right = low_rank(stack, 2)
    rest = np.linalg.norm(stack - left @ right, axis=(1, 2))
    smallest = np.linalg.svd(stack, compute_uv=False)[:, 2:]
    np.testing.assert_allclose(rest, np.linalg.norm(smallest, axis=1), rtol=1e-10)


@pytest.mark.parametrize(
    ("shape", "rank"), [((6, 5, 4), 1), ((6, 5, 4), 3), ((4, 3, 3, 2), 2), ((5, 4), 2)]
)
def test_a_tensor_of_known_rank_is_found_again(shape: tuple[int, ...], rank: int) -> None:
    tensor = product([draw(n, rank, seed=n) for n in shape])
    factors = cp_decomposition(
        tensor, rank, max_iter=2000, stopping_criterion=1e-15, rng=np.random.default_rng(0)
    )
    assert [factor.shape for factor in factors] == [(n, rank) for n in shape]
    np.testing.assert_allclose(product(factors), tensor, atol=1e-5 * abs(tensor).max())


def test_columns_have_length_one_but_those_of_the_first_matrix() -> None:
    _, *others = cp_decomposition(draw(4, 3, 5), 2)
    for factor in others:
        np.testing.assert_allclose(np.linalg.norm(factor, axis=0), 1)


def test_rank_one_is_fitted_as_well_as_a_matrix_can_be() -> None:
    matrix = draw(6, 4)
    factors = cp_decomposition(matrix, 1, max_iter=1000, stopping_criterion=1e-15)
    rest = np.linalg.norm(matrix - product(factors))
    smallest = np.linalg.svd(matrix, compute_uv=False)[1:]
    assert rest == pytest.approx(np.linalg.norm(smallest), rel=1e-6)


def test_regularisation_makes_the_approximation_smaller() -> None:
    tensor = draw(4, 3, 5)
    sizes = [
        np.linalg.norm(
            product(cp_decomposition(tensor, 2, lambda_reg=weight, rng=np.random.default_rng(0)))
        )
        for weight in (0.0, 1.0, 10.0)
    ]
    assert sizes[0] > sizes[1] > sizes[2]


def test_passes_end_when_little_more_is_explained_or_with_max_iter() -> None:
    tensor = product([draw(n, 2, seed=n) for n in (6, 5, 4)])

    def error(**options: float) -> float:
        factors = cp_decomposition(tensor, 2, rng=np.random.default_rng(3), **options)
        return float(np.linalg.norm(product(factors) - tensor))

    assert error(max_iter=1) > error(stopping_criterion=1e-2) > error(stopping_criterion=1e-12)
    assert error(max_iter=1) > error(max_iter=50, stopping_criterion=-1)


def test_zeros_are_explained_by_zeros() -> None:
    assert not product(cp_decomposition(np.zeros((3, 2, 2)), 2)).any()


def test_the_seed_fixes_the_start() -> None:
    tensor = draw(4, 3, 5)
    found = []
    for _ in range(2):
        nnl.seed(5)
        found.append(cp_decomposition(tensor, 2))
    for one, other in zip(*found, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("options", [{"rank": 0}, {"rank": 2, "max_iter": 0}])
def test_rank_and_passes_are_at_least_one(options: dict[str, int]) -> None:
    with pytest.raises(ParameterError, match="must be at least 1"):
        cp_decomposition(np.ones((2, 2)), **options)
