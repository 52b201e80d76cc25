"""Convolution with a product of a column and a row for each place."""

from __future__ import annotations

import numpy as np
import pytest

from nnl_core import functions as F
from nnl_core.errors import ShapeError


def draw(*shape: int) -> np.ndarray:
    return np.random.default_rng(shape).normal(size=shape)


def test_kernels_that_are_the_same_everywhere_make_a_convolution() -> None:
    x, column, row = draw(2, 3, 6, 7), draw(3), draw(2)
    places = (4, 6)
    y = F.adaptive_separable_convolution(
        x,
        np.broadcast_to(column[:, None, None], (2, 3, *places)),
        np.broadcast_to(row[:, None, None], (2, 2, *places)),
    )
    kernels = np.broadcast_to(np.outer(column, row), (3, 1, 3, 2))
    np.testing.assert_allclose(y.d, F.convolution(x, kernels, group=3).d, rtol=1e-12)


def test_each_place_has_its_own_kernel() -> None:
    x = np.arange(9.0).reshape(1, 1, 3, 3)
    first, second = np.zeros((1, 2, 2, 2)), np.zeros((1, 2, 2, 2))
    first[0, :, 0], first[0, :, 1] = [[1], [0]], [[0], [1]]  # this row, or the next
    second[0, :, :, 0], second[0, :, :, 1] = [[1], [0]], [[0], [1]]  # this column, or the next
    assert F.adaptive_separable_convolution(x, first, second).d[0, 0].tolist() == [[0, 2], [6, 8]]


def test_dtypes_are_promoted() -> None:
    x, v, h = draw(1, 1, 3, 3), draw(1, 2, 2, 2), draw(1, 2, 2, 2)
    y = F.adaptive_separable_convolution(x.astype(np.float32), v, h.astype(np.float16))
    assert y.dtype == np.float64


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        (((1, 1, 3, 3), (1, 2, 3, 3), (1, 2, 3, 3)), r"to places \(2, 2\).* at places \(3, 3\)"),
        (((1, 1, 3, 3), (2, 2, 2, 2), (1, 2, 2, 2)), "batches and places must be the same"),
        (((1, 3, 3), (1, 2, 2, 2), (1, 2, 2, 2)), "must have four axes"),
    ],
)
def test_what_does_not_fit_is_named(shapes: tuple[tuple[int, ...], ...], message: str) -> None:
    with pytest.raises(ShapeError, match=message):
        F.adaptive_separable_convolution(*(draw(*shape) for shape in shapes))
