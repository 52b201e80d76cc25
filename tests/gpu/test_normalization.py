"""Tests for moments, what is normalised by them, and running statistics on a GPU."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from nnl_core.graph.operator import Array, lookup

Compute = Callable[..., tuple[Array, ...]]

SHAPES = {
    "rows of less than a warp": ((33, 5), (1,)),
    "rows of a warp": ((3, 480), (1,)),
    "rows of a block": ((2, 1100), (1,)),
    "odd rows of a block": ((2, 1031), (1,)),
    "many rows": ((70001, 1), (1,)),
    "one long row": ((1, 40004), (1,)),
    "channels": ((5, 3, 8, 8), (0, 2, 3)),
    "odd channels": ((5, 3, 7, 7), (0, 2, 3)),
    "columns": ((300, 70), (0,)),
    "columns of examples": ((2, 150, 35), (1,)),
    "other axes": ((3, 4, 5, 6, 2), (1, 3)),
}


@pytest.mark.parametrize("shape, axes", SHAPES.values(), ids=SHAPES.keys())
def test_moments_over_any_axes_are_those_of_numpy(
    compute: Compute, shape: tuple[int, ...], axes: tuple[int, ...]
) -> None:
    x = np.random.default_rng(1).normal(5, 2, shape).astype(np.float32)
    mean, variance = compute("nnl::moments", x, axes=axes)
    wide = x.astype(np.float64)
    np.testing.assert_allclose(mean, wide.mean(axes, keepdims=True), rtol=1e-5)
    np.testing.assert_allclose(variance, wide.var(axes, keepdims=True), rtol=1e-4, atol=1e-9)


@pytest.mark.parametrize("shape, axes", SHAPES.values(), ids=SHAPES.keys())
def test_normalising_over_any_axes_agrees_with_the_reference(
    compute: Compute, shape: tuple[int, ...], axes: tuple[int, ...]
) -> None:
    rng = np.random.default_rng(2)
    kept = tuple(1 if axis in axes else n for axis, n in enumerate(shape))
    x = rng.normal(5, 2, shape)
    gamma, beta = rng.normal(size=kept), rng.normal(size=(1,) * len(shape))
    given = [one.astype(np.float32) for one in (x, gamma, beta)]
    results = compute("nnl::standardize", *given, axes=axes, eps=1e-3)
    targets = lookup("nnl::standardize").reference(x, gamma, beta, axes=axes, eps=1e-3)
    for one, target in zip(results, targets, strict=True):
        np.testing.assert_allclose(one, target, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("shape, axes", SHAPES.values(), ids=SHAPES.keys())
def test_gradients_over_any_axes_agree_with_the_reference(
    compute: Compute, shape: tuple[int, ...], axes: tuple[int, ...]
) -> None:
    rng = np.random.default_rng(3)
    kept = tuple(1 if axis in axes else n for axis, n in enumerate(shape))
    g, x = rng.normal(size=shape), rng.normal(size=shape)
    mean, variance, gamma = rng.normal(size=kept), rng.uniform(1, 2, kept), rng.normal(size=kept)
    given = (g, x, mean, variance, gamma)
    (dx,) = compute("nnl::standardize_gradient", *given, axes=axes, eps=1e-3)
    target = lookup("nnl::standardize_gradient").reference(*given, axes=axes, eps=1e-3)
    np.testing.assert_allclose(dx, target, rtol=1e-9, atol=1e-9)


def test_gains_whose_axes_lie_apart_are_broadcast(compute: Compute) -> None:
    rng = np.random.default_rng(4)
    x, gamma, beta = rng.normal(size=(4, 3, 8)), rng.normal(size=(4, 1, 8)), rng.normal(size=(8,))
    y, *_ = compute("nnl::standardize", x, gamma, beta, axes=(1, 2), eps=0.1)
    target, *_ = lookup("nnl::standardize").reference(x, gamma, beta, axes=(1, 2), eps=0.1)
    np.testing.assert_allclose(y, target, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("shape, axes", [((4, 600), (1,)), ((600, 4), (0,)), ((1, 20000), (1,))])
def test_variance_of_values_far_from_zero_keeps_its_digits(
    compute: Compute, shape: tuple[int, ...], axes: tuple[int, ...]
) -> None:
    x = (1e4 + np.random.default_rng(5).integers(-8, 9, shape) / 8).astype(np.float32)
    _, variance = compute("nnl::moments", x, axes=axes)
    expected = x.astype(np.float64).var(axes, keepdims=True)
    np.testing.assert_allclose(variance, expected, rtol=1e-3)


@pytest.mark.parametrize("shape, axes", [((2, 8), (1,)), ((8, 2), (0,)), ((1, 20000), (1,))])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_value_that_is_not_finite_reaches_mean_and_variance(
    compute: Compute, shape: tuple[int, ...], axes: tuple[int, ...], value: float
) -> None:
    x = np.ones(shape, np.float32)
    x[0, 0] = value
    mean, variance = compute("nnl::moments", x, axes=axes)
    np.testing.assert_equal(mean.flat[0], value)
    assert np.isnan(variance.flat[0])


def test_half_precision_is_summed_in_single(compute: Compute) -> None:
    x = np.full((2, 4096), 30, np.float16)
    x[:, ::2] = 34
    mean, variance = compute("nnl::moments", x, axes=(1,))
    assert mean.tolist() == [[32.0], [32.0]] and variance.tolist() == [[4.0], [4.0]]
