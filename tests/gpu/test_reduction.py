"""Tests for reductions on a GPU: sums, extremes and where they are, norms and variances."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from nnl_core.graph.operator import Array, lookup

Compute = Callable[..., tuple[Array, ...]]

SHAPES = {
    "rows of less than a warp": ((33, 5), (1,)),
    "rows of a warp": ((3, 480), (1,)),
    "rows of a block": ((2, 2052), (1,)),
    "odd rows of a block": ((2, 2051), (1,)),
    "many rows": ((70001, 1), (1,)),
    "all, in parts": ((40004,), (0,)),
    "few columns, in parts": ((3000, 7), (0,)),
    "columns": ((60, 70), (0,)),
    "columns of examples": ((2, 50, 35), (1,)),
    "channels": ((5, 3, 8, 8), (0, 2, 3)),
    "other axes": ((3, 4, 5, 6), (1, 3)),
    "axes that take turns": ((2, 3, 2, 3, 2, 3), (0, 2, 4)),
    "no axes": ((4, 3), ()),
}
over_any_axes = pytest.mark.parametrize("shape, axes", SHAPES.values(), ids=SHAPES.keys())


@over_any_axes
def test_sums_over_any_axes_are_those_of_numpy(
    compute: Compute, shape: tuple[int, ...], axes: tuple[int, ...]
) -> None:
    x = np.random.default_rng(1).uniform(0, 2, shape).astype(np.float32)
    (y,) = compute("nnl::sum", x, axes=axes)
    np.testing.assert_allclose(y, x.astype(np.float64).sum(axes), rtol=1e-5)


@over_any_axes
def test_the_first_of_equal_maxima_is_found_over_any_axes(
    compute: Compute, shape: tuple[int, ...], axes: tuple[int, ...]
) -> None:
    x = np.random.default_rng(2).integers(0, 5, shape).astype(np.float32)
    (y,) = compute("nnl::argmax", x, axes=axes)
    rest = tuple(axis for axis in range(x.ndim) if axis not in axes)
    lengths = [shape[axis] for axis in rest]
    rows = x.transpose(*rest, *axes).reshape(*lengths, -1)
    np.testing.assert_array_equal(y, rows.argmax(-1))


@over_any_axes
def test_deviations_over_any_axes_are_those_of_numpy(
    compute: Compute, shape: tuple[int, ...], axes: tuple[int, ...]
) -> None:
    x = np.random.default_rng(3).normal(100, 1, shape).astype(np.float32)
    (y,) = compute("nnl::std", x, axes=axes)
    np.testing.assert_allclose(y, x.astype(np.float64).std(axes), rtol=1e-4, atol=1e-5)


def test_the_first_nan_is_the_extreme(compute: Compute) -> None:
    x = np.random.default_rng(4).normal(size=(3, 2051)).astype(np.float32)
    x[1, [700, 30, 2050]] = np.nan
    (place,) = compute("nnl::argmax", x, axes=(1,))
    (value,) = compute("nnl::max", x, axes=(1,))
    assert place[1] == 30
    np.testing.assert_array_equal(np.isnan(value), [False, True, False])


def test_a_long_sum_of_half_precision_does_not_stop_growing(compute: Compute) -> None:
    (y,) = compute("nnl::sum", np.full((2, 9000), 0.5, np.float16), axes=(1,))
    np.testing.assert_array_equal(y, [4500, 4500])


def test_integers_are_summed_in_64_bits(compute: Compute) -> None:
    (y,) = compute("nnl::sum", np.full((3, 40), 2**31 - 1, np.int32), axes=(1,))
    np.testing.assert_array_equal(y, [40 * (2**31 - 1)] * 3)


def test_a_gradient_of_broadcasting_wraps_at_the_width_of_integers(compute: Compute) -> None:
    (y,) = compute("nnl::sum_to", np.full((40, 3), 100, np.int8), shape=(3,))
    np.testing.assert_array_equal(y, np.full(3, 4000 - 16 * 256 + 0, np.int8))


def test_norms_and_log_sums_do_not_overflow(compute: Compute) -> None:
    (norm,) = compute("nnl::norm", np.array([[3e38, 4e37], [0, 0]], np.float32), axes=(1,))
    np.testing.assert_allclose(norm, [3.0265492e38, 0], rtol=1e-6)
    x = np.array([[np.inf, 1], [-np.inf, -np.inf], [1000, 1000]], np.float32)
    (total,) = compute("nnl::logsumexp", x, axes=(1,))
    np.testing.assert_allclose(total, [np.inf, -np.inf, 1000 + np.log(2)], rtol=1e-6)


@over_any_axes
def test_elements_are_placed_where_they_were_picked(
    compute: Compute, shape: tuple[int, ...], axes: tuple[int, ...]
) -> None:
    x = np.random.default_rng(5).normal(size=shape).astype(np.float32)
    index = lookup("nnl::argmax").reference(x, axes=axes)
    (picked,) = compute("nnl::pick_reduced", x, index, axes=axes)
    np.testing.assert_array_equal(picked, x.max(axes) if axes else x)
    (placed,) = compute("nnl::place_reduced", picked, index, shape=shape, axes=axes)
    is_top = x == x.max(axes, keepdims=True) if axes else np.ones(shape, bool)
    np.testing.assert_array_equal(placed, np.where(is_top, x, 0))
