"""Losses of vectors and of scores, against closed forms."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import nnl_core as nnl
from nnl_core import functions as F
from nnl_core.errors import OperatorError, ShapeError
from nnl_core.graph.variable import Variable
from nnl_core.testing.derivatives import central_difference

RNG = np.random.default_rng(5)
A, B, C = RNG.normal(size=(3, 4, 5))
SIGNS = np.array([1, -1, 1, -1])

LOSSES: dict[str, tuple[Callable[..., Variable], tuple[np.ndarray, ...]]] = {
    "contrastive": (lambda x, y: F.contrastive_loss(x, y, SIGNS > 0, 5.0), (A, B)),
    "cosine": (F.cosine_similarity, (A, B)),
    "cosine embedding": (lambda x, y: F.cosine_embedding_loss(x, y, SIGNS, -0.9), (A, B)),
    "hinge": (lambda x: F.hinge_loss(x, SIGNS[:, None], 0.5), (A,)),
    "info_nce": (lambda q, k, n: F.info_nce(q, k, n, 0.3), (A, B, C)),
    "ranking": (lambda x, y: F.margin_ranking_loss(x, y, SIGNS[:, None], 0.3), (A, B)),
    "triplet": (lambda a, p, n: F.triplet_loss(a, p, n, 2.0), (A, B, C)),
    "triplet, swapped": (lambda a, p, n: F.triplet_loss(a, p, n, 2.0, 3.0, True), (A, B, C)),
}
each_loss = pytest.mark.parametrize("name", LOSSES)


def given(x: Any) -> Variable:
    variable = Variable.from_numpy_array(np.asarray(x, np.float64), need_grad=True)
    variable.grad.zero()
    return variable


@each_loss
def test_gradient_is_the_derivative(name: str) -> None:
    loss, arrays = LOSSES[name]
    for position, array in enumerate(arrays):
        variables = [given(x) for x in arrays]
        y = loss(*variables)
        weight = np.random.default_rng(1).normal(size=y.shape)
        direction = np.random.default_rng(2).normal(size=array.shape)
        y.forward()
        y.backward(weight)

        def along(
            step: float, at: int = position, d: np.ndarray = direction, w: np.ndarray = weight
        ) -> tuple[float, float]:
            moved = [x + step * d if i == at else x for i, x in enumerate(arrays)]
            terms = loss(*moved).d * w
            return float(terms.sum()), float(np.abs(terms).sum())

        numeric, _ = central_difference(along)
        assert np.sum(variables[position].g * direction) == pytest.approx(numeric, rel=1e-6)


@each_loss
def test_gradient_has_a_gradient(name: str) -> None:
    loss, arrays = LOSSES[name]
    variables = [given(x) for x in arrays]
    first = nnl.grad([F.sum(loss(*variables) ** 2)], variables[:1])[0]
    total = F.sum(first * first)
    total.forward()
    total.backward()
    assert all(np.isfinite(variable.g).all() for variable in variables)


@each_loss
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_loss_has_the_dtype_of_the_vectors(name: str, dtype: Any) -> None:
    loss, arrays = LOSSES[name]
    nearest = {np.float16: 2e-2, np.float32: 1e-5, np.float64: 0}[dtype]
    y = loss(*(x.astype(dtype) for x in arrays))
    assert y.dtype == dtype
    np.testing.assert_allclose(y.d, loss(*arrays).d, rtol=nearest, atol=nearest)


@pytest.mark.parametrize("name", ["cosine", "triplet"])
def test_no_samples_have_no_losses(name: str) -> None:
    loss, arrays = LOSSES[name]
    assert loss(*(x[:0] for x in arrays)).d.shape == (0,)


# Cosines -----------------------------------------------------------------------------------------


def test_cosine_of_parallel_opposite_and_orthogonal_vectors() -> None:
    y = F.cosine_similarity(
        np.array([[2.0, 0], [2.0, 0], [2.0, 0]]), np.array([[5.0, 0], [-1.0, 0], [0.0, 3]])
    )
    assert y.d.tolist() == [1, -1, 0]


def test_cosine_along_another_axis() -> None:
    assert F.cosine_similarity(A, B, axis=0).d == pytest.approx(F.cosine_similarity(A.T, B.T).d)


def test_a_vector_of_zeros_is_similar_to_nothing() -> None:
    x = given(np.zeros((1, 3)))
    y = F.cosine_similarity(x, x)
    y.forward()
    y.backward(np.ones(1))
    assert y.d.tolist() == [0]
    assert x.g.tolist() == [[0, 0, 0]]


def test_cosine_embedding_loss_attracts_and_repels() -> None:
    x = np.array([[1.0, 0], [1.0, 0], [1.0, 0]])
    other = np.array([[0.6, 0.8], [0.6, 0.8], [-1.0, 0]])
    y = F.cosine_embedding_loss(x, other, np.array([1, -1, -1]), margin=0.5)
    assert y.d == pytest.approx([0.4, 0.1, 0])


# Distances ---------------------------------------------------------------------------------------


def test_contrastive_loss_attracts_and_repels() -> None:
    x = np.zeros((3, 2))
    other = np.array([[3.0, 4], [3.0, 4], [0.6, 0.8]])
    y = F.contrastive_loss(x, other, np.array([1, 0, 0]), margin=2.0)
    assert y.d == pytest.approx([12.5, 0, 0.5])


@pytest.mark.parametrize("together", [0, 1])
def test_contrastive_loss_has_no_direction_at_distance_zero(together: int) -> None:
    x = given([[1.0, 2.0]])
    y = F.contrastive_loss(x, np.array([[1.0, 2.0]]), np.array([together]))
    y.forward()
    y.backward(np.ones(1))
    assert y.d == pytest.approx([(1 - together) / 2])
    assert x.g.tolist() == [[0, 0]]


@pytest.mark.parametrize(
    ("p", "expected"), [(1.0, 7 - 3 + 1), (2.0, 5 - math.sqrt(5) + 1), (math.inf, 4 - 2 + 1)]
)
def test_triplet_loss_in_several_norms(p: float, expected: float) -> None:
    y = F.triplet_loss(np.zeros((1, 2)), np.array([[3.0, 4]]), np.array([[1.0, 2]]), p=p)
    assert y.d == pytest.approx([expected])


def test_triplet_loss_swaps_where_the_positive_is_nearer_to_the_negative() -> None:
    anchor, positive = np.zeros((1, 1)), np.array([[2.0]])
    negative = np.array([[3.0]])
    assert F.triplet_loss(anchor, positive, negative).d.tolist() == [0]
    assert F.triplet_loss(anchor, positive, negative, swap=True).d.tolist() == [2]


def test_triplet_loss_is_finite_where_all_are_one() -> None:
    x = given(np.ones((1, 2)))
    y = F.triplet_loss(x, x, x)
    y.forward()
    y.backward(np.ones(1))
    assert y.d.tolist() == [1]
    assert x.g.tolist() == [[0, 0]]


# Many against one --------------------------------------------------------------------------------


def test_info_nce_is_the_cross_entropy_of_cosines() -> None:
    cosines = np.array(
        [[a @ b / np.linalg.norm(a) / np.linalg.norm(b) for b in (*B, *C)] for a in A]
    )
    shares = np.exp(cosines / 0.5)
    shares /= shares.sum(axis=1, keepdims=True)
    expected = -np.log(np.diagonal(shares))
    assert F.info_nce(A, B, C, temperature=0.5).d == pytest.approx(expected)


def test_info_nce_of_what_cannot_be_told_apart_is_the_logarithm_of_the_number() -> None:
    assert F.info_nce(np.ones((4, 3)), np.ones((4, 3))).d == pytest.approx([math.log(4)] * 4)


def test_info_nce_refuses_a_temperature_that_is_not_positive() -> None:
    with pytest.raises(OperatorError, match="temperature is 0"):
        F.info_nce(A, B, temperature=0)


@pytest.mark.parametrize(
    "shapes", [((4, 5), (3, 5)), ((4, 5), (4, 5), (2, 4)), ((4,), (4,)), ((4, 5), (4, 5), (5,))]
)
def test_info_nce_refuses_other_shapes(shapes: tuple[tuple[int, ...], ...]) -> None:
    with pytest.raises(ShapeError, match=r"must be \(batch, features\) twice"):
        F.info_nce(*(np.ones(shape) for shape in shapes))


# Scores ------------------------------------------------------------------------------------------


def test_hinge_loss_has_no_gradient_at_the_margin_and_beyond() -> None:
    x = given([2.0, 1.0, 0.5, -1.0])
    y = F.hinge_loss(x, np.array([1, 1, 1, -1]))
    y.forward()
    y.backward(np.ones(4))
    assert y.d.tolist() == [0, 0, 0.5, 0]
    assert x.g.tolist() == [0, 0, -1, 0]


def test_ranking_loss_asks_for_order() -> None:
    y = F.margin_ranking_loss(
        np.array([3.0, 3, 1]), np.array([1.0, 1, 3]), np.array([1, -1, 1]), 0.5
    )
    assert y.d.tolist() == [0, 2.5, 2.5]


@pytest.mark.parametrize("loss", [F.hinge_loss, lambda x, t: F.margin_ranking_loss(x, 0.0 * x, t)])
def test_nan_is_not_hidden(loss: Any) -> None:
    assert np.isnan(loss(np.array([np.nan]), np.array([1.0])).d).all()


@pytest.mark.parametrize("loss", [F.cosine_embedding_loss, F.contrastive_loss])
def test_labels_that_would_broadcast_over_all_pairs_are_refused(loss: Any) -> None:
    with pytest.raises(ShapeError, match=r"target has shape \(4, 1\), expected \(4,\)"):
        loss(A, B, SIGNS[:, None])
