"""Tests for softmax, its logarithm and gradients, and losses of classification, on a GPU."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from nnl_core.graph.operator import Array, lookup

Compute = Callable[..., tuple[Array, ...]]

SHAPES = {
    "rows of less than a warp": ((33, 5), 1),
    "rows of a warp": ((3, 480), 1),
    "rows of a block": ((2, 2052), 1),
    "odd rows of a block": ((2, 2051), 1),
    "rows too long to be held": ((2, 17000), 1),
    "columns": ((60, 70), 0),
    "columns of examples": ((2, 300, 3), 1),
}
along_any_axis = pytest.mark.parametrize("shape, axis", SHAPES.values(), ids=SHAPES.keys())


@along_any_axis
def test_softmax_along_any_axis_agrees_with_the_reference(
    compute: Compute, shape: tuple[int, ...], axis: int
) -> None:
    x = np.random.default_rng(1).normal(0, 3, shape)
    for name in ("nnl::softmax", "nnl::log_softmax"):
        (y,) = compute(name, x.astype(np.float32), axis=axis)
        target = lookup(name).reference(x, axis=axis)
        np.testing.assert_allclose(y, target, rtol=1e-5, atol=1e-6)


@along_any_axis
def test_gradients_along_any_axis_agree_with_the_reference(
    compute: Compute, shape: tuple[int, ...], axis: int
) -> None:
    rng = np.random.default_rng(2)
    g, y = rng.normal(size=shape), rng.uniform(0, 1, shape)
    given = [one.astype(np.float32) for one in (g, y)]
    (dx,) = compute("nnl::softmax_gradient", *given, axis=axis)
    target = lookup("nnl::softmax_gradient").reference(g, y, axis=axis)
    np.testing.assert_allclose(dx, target, rtol=1e-4, atol=1e-3)


@along_any_axis
def test_cross_entropy_along_any_axis_agrees_with_the_reference(
    compute: Compute, shape: tuple[int, ...], axis: int
) -> None:
    rng = np.random.default_rng(3)
    x, classes = rng.normal(0, 3, shape), shape[axis]
    labels = rng.integers(-1, classes, tuple(1 if at == axis else n for at, n in enumerate(shape)))
    weight = rng.uniform(0.5, 2, classes)
    ways = {"axis": axis, "label_smoothing": 0.1}
    given = [one.astype(np.float32) for one in (x, weight)]
    results = compute("nnl::softmax_cross_entropy", given[0], labels, given[1], **ways)
    targets = lookup("nnl::softmax_cross_entropy").reference(x, labels, weight, **ways)
    for one, target in zip(results, targets, strict=True):
        np.testing.assert_allclose(one, target, rtol=1e-4, atol=1e-5)


SPECIAL = {
    "infinite elements": [np.inf, 1.0, 2.0, -np.inf],
    "no number": [1.0, np.nan, 2.0, -np.inf],
    "all hidden": [-np.inf] * 4,
    "hidden before others": [-np.inf, -np.inf, 1.0, 2.0],
    "large ones": [1000.0, 1000.0, -1000.0, 999.0],
}


@pytest.mark.parametrize("row", SPECIAL.values(), ids=SPECIAL.keys())
@pytest.mark.parametrize("filled", [0, 17000], ids=["held", "not held"])
@pytest.mark.parametrize("name", ["nnl::softmax", "nnl::masked_softmax", "nnl::log_softmax"])
def test_special_elements_are_treated_as_by_the_reference(
    compute: Compute, name: str, filled: int, row: list[float]
) -> None:
    x = np.array([row + [-np.inf] * filled], np.float32)
    with np.errstate(all="ignore"):
        target = lookup(name).reference(x, axis=1)
    for axis, given in ((1, x), (0, np.ascontiguousarray(x.T))):
        (y,) = compute(name, given, axis=axis)
        np.testing.assert_allclose(y.reshape(target.shape), target, rtol=1e-5, atol=1e-6)


def test_more_rows_than_a_grid_has_in_one_direction(compute: Compute) -> None:
    x = np.random.default_rng(4).normal(size=(70001, 2)).astype(np.float32)
    (y,) = compute("nnl::softmax", x, axis=1)
    np.testing.assert_allclose(y[:, 0], 1 / (1 + np.exp(x[:, 1] - x[:, 0])), rtol=1e-5)
